/* Answering with products in fp32. */
#ifdef __AVX512F__
#include "rows.h"

#define NAME answering_fp32
#define GROUP 1
#define DEPTH INT64_MAX /* no scales: all inputs at once */
#define ROWS 6 /* with as many vectors, 24 sums for 32 registers */
#define VECTORS 4
typedef float Narrow;
typedef vf Sums;
#include "answering.h"

static void narrow(const EncoderLayer *layer, Input to, const float *rows, int64_t stride,
                   int64_t count, int64_t width, enum Range range) {
  (void)layer, (void)range;
  for (int64_t r = 0; r < count; r++)
    memcpy(to.numbers + r * width, rows + r * stride, width * sizeof *rows);
}

ALWAYS Sums multiply(Sums sums, vi row, vi weights) { return sums + (vf)row * (vf)weights; }

ALWAYS Sums begun(const Product *p, int64_t place) { return (void)p, (void)place, (vf){}; }

ALWAYS vf widened(Sums sums, const Product *p, int64_t place, Input from, int64_t group) {
  return (void)p, (void)place, (void)from, (void)group, sums;
}
#endif
