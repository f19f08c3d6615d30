/* Answering with products of bf16 numbers, summed in fp32. */
#ifdef __AVX512BF16__
#include "rows.h"

#define NAME answering_bf16
#define GROUP 2
#define DEPTH INT64_MAX /* no scales: all inputs at once */
#define ROWS 6 /* with as many vectors, 24 sums for 32 registers */
#define VECTORS 4
typedef uint16_t Narrow;
typedef vf Sums;
#include "answering.h"

static void narrow(const EncoderLayer *layer, Input to, const float *rows, int64_t stride,
                   int64_t count, int64_t width, enum Range range) {
  (void)layer, (void)range;
  for (int64_t r = 0; r < count; r++)
    for (int64_t i = 0; i < width; i += LANES)
      store_row(to.numbers, r * width + i, load(rows + r * stride + i), 1);
}

ALWAYS Sums multiply(Sums sums, vi row, vi weights) {
  return (vf)_mm512_dpbf16_ps((__m512)sums, (__m512bh)row, (__m512bh)weights);
}

ALWAYS Sums begun(const Product *p, int64_t place) { return (void)p, (void)place, (vf){}; }

ALWAYS vf widened(Sums sums, const Product *p, int64_t place, Input from, int64_t group) {
  return (void)p, (void)place, (void)from, (void)group, sums;
}
#endif
