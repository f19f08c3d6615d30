/* Answering with products in fp32; and the embeddings, which are fp32 in every precision. */
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

/* Vectors of words, positions and, if there is a table, segments. */
typedef struct {
  const float *rows;
  int64_t count;
} Table;

typedef struct {
  int64_t width;
  float eps;
  Table tables[3];
  const float *norm[2];
} Embeddings;

/* Rows of numbers, `strides` apart, one of each table -> the norm of their sum; 0 if it was done,
   1 where a number is beyond its table. */
int answering_embeddings(const Embeddings *e, float *to, const int64_t *const numbers[3],
                         const int64_t strides[3], int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    float *row = to + r * e->width;
    for (int t = 0; t < 3 && e->tables[t].count; t++) {
      int64_t number = numbers[t][r * strides[t]];
      if (number < 0 || number >= e->tables[t].count) return 1;
      const float *own = e->tables[t].rows + number * e->width;
      for (int64_t i = 0; i < e->width; i += LANES)
        store(row + i, t ? load(row + i) + load(own + i) : load(own + i));
    }
  }
  norm(to, e->width, to, e->width, rows, e->width, e->norm, e->eps);
  return 0;
}
#endif
