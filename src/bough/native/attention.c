/* Scaled dot-product attention over packed rows, forward and backward, a text and a head at a time.

   The rows of one head are taken into fp32, so that what follows are small dense products; queries
   go in blocks, so that memory grows with a text's length and not with its square. The backward
   makes the shares again from the logarithm of each row's sum. */
#include "rows.h"

#define BLOCK 32 /* queries at a time */

typedef struct {
  const void *q, *k, *v; /* the first head's first element of row 0 */
  int64_t q_stride, kv_stride; /* elements from a row to the next */
  const int64_t *starts, *lengths; /* of each text */
  int64_t texts, heads, width;
  int64_t single; /* one query a text, in row `text` of q and out, instead of one a token */
  int64_t bf16;
  float scale; /* of the scores */
  const float *bias; /* [tables, heads, 2 reach - 1] by distance, or none */
  const int64_t *bias_of; /* of each text, which table */
  int64_t reach;
  const uint8_t *keep; /* per text [heads, queries, length], or none */
  const int64_t *keep_at; /* where each text's begin */
  float keep_scale;
} Attention;

/* c[m, n] (+)= a[m, k] b[k, n]: m a multiple of 4, n of 16; a's element (i, j) lies at
   i * rows + j * columns. */
static void product(float *c, int64_t ldc, const float *a, int64_t rows, int64_t columns,
                    const float *b, int64_t ldb, int64_t m, int64_t n, int64_t k, int add) {
  for (int64_t i = 0; i < m; i += 4) {
    const float *a0 = a + i * rows, *a1 = a0 + rows, *a2 = a1 + rows, *a3 = a2 + rows;
    for (int64_t j = 0; j < n;) {
      float *c0 = c + i * ldc + j, *c1 = c0 + ldc, *c2 = c1 + ldc, *c3 = c2 + ldc;
      if (n - j >= 32) {
        vf s00 = {}, s01 = {}, s10 = {}, s11 = {}, s20 = {}, s21 = {}, s30 = {}, s31 = {};
        for (int64_t l = 0; l < k; l++) {
          vf b0 = load(b + l * ldb + j), b1 = load(b + l * ldb + j + 16);
          int64_t at = l * columns;
          s00 += a0[at] * b0, s01 += a0[at] * b1, s10 += a1[at] * b0, s11 += a1[at] * b1;
          s20 += a2[at] * b0, s21 += a2[at] * b1, s30 += a3[at] * b0, s31 += a3[at] * b1;
        }
        if (add) {
          s00 += load(c0), s01 += load(c0 + 16), s10 += load(c1), s11 += load(c1 + 16);
          s20 += load(c2), s21 += load(c2 + 16), s30 += load(c3), s31 += load(c3 + 16);
        }
        store(c0, s00), store(c0 + 16, s01), store(c1, s10), store(c1 + 16, s11);
        store(c2, s20), store(c2 + 16, s21), store(c3, s30), store(c3 + 16, s31);
        j += 32;
      } else {
        vf s0 = {}, s1 = {}, s2 = {}, s3 = {};
        for (int64_t l = 0; l < k; l++) {
          vf b0 = load(b + l * ldb + j);
          int64_t at = l * columns;
          s0 += a0[at] * b0, s1 += a1[at] * b0, s2 += a2[at] * b0, s3 += a3[at] * b0;
        }
        if (add) s0 += load(c0), s1 += load(c1), s2 += load(c2), s3 += load(c3);
        store(c0, s0), store(c1, s1), store(c2, s2), store(c3, s3);
        j += 16;
      }
    }
  }
}

/* `rows` rows of one head as fp32 [rows, ld]; rows and columns that are not there are 0. */
static void gather(float *to, int64_t ld, int64_t padded, const void *from, int64_t stride,
                   int64_t rows, int64_t width, int bf16) {
  for (int64_t i = 0; i < padded; i++) {
    float *row = to + i * ld;
    if (i >= rows) {
      memset(row, 0, (size_t)ld * sizeof *row);
      continue;
    }
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES) store(row + j, load_row(from, i * stride + j, bf16));
    for (; j < width; j++) row[j] = load_one(from, i * stride + j, bf16);
    for (; j < ld; j++) row[j] = 0;
  }
}

static void scatter(void *to, int64_t stride, const float *from, int64_t ld, int64_t rows,
                    int64_t width, int bf16) {
  for (int64_t i = 0; i < rows; i++) {
    const float *row = from + i * ld;
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES) store_row(to, i * stride + j, load(row + j), bf16);
    for (; j < width; j++) store_one(to, i * stride + j, row[j], bf16);
  }
}

static void transpose(float *to, int64_t ldt, const float *from, int64_t ld, int64_t rows,
                      int64_t columns) {
  for (int64_t j = 0; j < columns; j++) {
    int64_t i = 0;
    for (; i < rows; i++) to[j * ldt + i] = from[i * ld + j];
    for (; i < ldt; i++) to[j * ldt + i] = 0;
  }
}

static const void *element(const void *p, int64_t at, int bf16) {
  return (const char *)p + at * (bf16 ? 2 : 4);
}

/* Where a text's work is, and how it is cut. */
typedef struct {
  int64_t start, length, queries, first; /* rows of keys; queries, and the first one's row */
  int64_t padded; /* length in whole vectors */
} Text;

static Text text_of(const Attention *a, int64_t t) {
  int64_t n = a->lengths[t], s = a->starts[t];
  return (Text){s, n, a->single ? 1 : n, a->single ? t : s, round_up(n, LANES)};
}

/* Scores of a block of queries, [rows, padded], scaled and with their bias. */
static void scores(const Attention *a, const Text *x, int64_t t, int64_t head, int64_t from,
                   int64_t rows, float *s, const float *q, const float *kt, int64_t w) {
  product(s, x->padded, q, w, 1, kt, x->padded, round_up(rows, 4), x->padded, a->width, 0);
  const float *bias = 0;
  if (a->bias) bias = a->bias + (a->bias_of[t] * a->heads + head) * (2 * a->reach - 1);
  for (int64_t i = 0; i < rows; i++) {
    float *row = s + i * x->padded;
    for (int64_t j = 0; j < x->padded; j += LANES) store(row + j, load(row + j) * a->scale);
    if (bias) {
      const float *by = bias + a->reach - 1 - (from + i); /* element j: distance (from + i) - j */
      for (int64_t j = 0; j < x->length; j++) row[j] += by[j];
    }
  }
}

static const uint8_t *mask_of(const Attention *a, const Text *x, int64_t t, int64_t head,
                              int64_t row) {
  return a->keep ? a->keep + a->keep_at[t] + (head * x->queries + row) * x->length : 0;
}

/* row * mask * factor; the mask has `length` bytes, the row whole vectors. */
static void masked(float *row, const uint8_t *mask, int64_t length, float factor) {
  int64_t j = 0;
  for (; j + LANES <= length; j += LANES)
    store(row + j, load(row + j) * load_mask(mask + j) * factor);
  for (; j < length; j++) row[j] *= mask[j] * factor;
}

static float softmax(float *row, int64_t length, int64_t padded) {
  float most = row[0];
  for (int64_t j = 1; j < length; j++) most = row[j] > most ? row[j] : most;
  for (int64_t j = length; j < padded; j++) row[j] = most - 200; /* e^-87 of the largest: nothing */
  vf total = {};
  for (int64_t j = 0; j < padded; j += LANES) {
    vf e = exp16(load(row + j) - most);
    store(row + j, e);
    total += e;
  }
  float all = sum(total);
  for (int64_t j = 0; j < padded; j += LANES) store(row + j, load(row + j) / all);
  for (int64_t j = length; j < padded; j++) row[j] = 0;
  return most + __builtin_logf(all);
}

static int64_t longest_of(const Attention *a) {
  int64_t most = 1;
  for (int64_t t = 0; t < a->texts; t++)
    if (a->lengths[t] > most) most = a->lengths[t];
  return round_up(most, LANES);
}

/* out: rows of `out_stride` elements; lse: [heads, queries of all texts]. */
void attention_forward(const Attention *a, void *out, int64_t out_stride, float *lse,
                       int64_t lse_stride) {
  int64_t most = longest_of(a), w = round_up(a->width, LANES);
  int bf16 = (int)a->bf16;
#pragma omp parallel
  {
    float *kt = scratch(w * most), *v = scratch(most * w), *k = scratch(most * w);
    float *q = scratch(BLOCK * w), *s = scratch(BLOCK * most), *o = scratch(BLOCK * w);
#pragma omp for collapse(2) schedule(dynamic, 4)
    for (int64_t t = 0; t < a->texts; t++) {
      for (int64_t head = 0; head < a->heads; head++) {
        Text x = text_of(a, t);
        int64_t column = head * a->width;
        const void *keys = element(a->k, x.start * a->kv_stride + column, bf16);
        const void *values = element(a->v, x.start * a->kv_stride + column, bf16);
        gather(k, w, x.length, keys, a->kv_stride, x.length, a->width, bf16);
        transpose(kt, x.padded, k, w, x.length, a->width);
        gather(v, w, x.length, values, a->kv_stride, x.length, a->width, bf16);
        for (int64_t from = 0; from < x.queries; from += BLOCK) {
          int64_t rows = x.queries - from < BLOCK ? x.queries - from : BLOCK;
          int64_t padded = round_up(rows, 4), first = x.first + from;
          const void *queries = element(a->q, first * a->q_stride + column, bf16);
          gather(q, w, padded, queries, a->q_stride, rows, a->width, bf16);
          scores(a, &x, t, head, from, rows, s, q, kt, w);
          for (int64_t i = 0; i < rows; i++) {
            float *row = s + i * x.padded;
            lse[head * lse_stride + first + i] = softmax(row, x.length, x.padded);
            const uint8_t *mask = mask_of(a, &x, t, head, from + i);
            if (mask) masked(row, mask, x.length, a->keep_scale);
          }
          product(o, w, s, x.padded, 1, v, w, padded, w, x.length, 0);
          void *to = (void *)element(out, first * out_stride + column, bf16);
          scatter(to, out_stride, o, w, rows, a->width, bf16);
        }
      }
    }
    free(kt), free(v), free(k), free(q), free(s), free(o);
  }
}

/* What the shares of one row get: ds = p (dp - sum p dp), where dp and p are before dropout. `s` has
   the scores and becomes the shares as they were used, `d` has the gradient of those. */
static void softmax_backward(float *s, float *d, const uint8_t *mask, float lse, int64_t length,
                             int64_t padded, float factor) {
  if (mask) masked(d, mask, length, factor);
  vf dot = {};
  for (int64_t j = 0; j < padded; j += LANES) {
    vf p = exp16(load(s + j) - lse);
    store(s + j, p);
    if (j + LANES > length)
      for (int64_t i = length; i < padded; i++) s[i] = 0;
    dot += load(s + j) * load(d + j);
  }
  float all = sum(dot);
  for (int64_t j = 0; j < padded; j += LANES)
    store(d + j, load(s + j) * (load(d + j) - all));
  if (mask) masked(s, mask, length, factor);
}

static void backward_of_head(const Attention *a, int64_t t, int64_t head, const void *d_out,
                             int64_t out_stride, const float *lse, int64_t lse_stride, void *d_q,
                             void *d_k, void *d_v, float *d_bias, float *memory, int64_t most) {
  int64_t w = round_up(a->width, LANES), column = head * a->width;
  int bf16 = (int)a->bf16;
  Text x = text_of(a, t);
  int64_t tall = round_up(x.length, 4); /* rows of what is summed over queries */
  float *k = memory, *kt = k + most * w, *vt = kt + most * w, *dk = vt + most * w;
  float *dv = dk + most * w, *q = dv + most * w, *go = q + BLOCK * w, *dq = go + BLOCK * w;
  float *s = dq + BLOCK * w, *d = s + BLOCK * most;
  int64_t place = x.start * a->kv_stride + column;
  gather(k, w, x.length, element(a->v, place, bf16), a->kv_stride, x.length, a->width, bf16);
  transpose(vt, x.padded, k, w, x.length, a->width);
  gather(k, w, x.length, element(a->k, place, bf16), a->kv_stride, x.length, a->width, bf16);
  transpose(kt, x.padded, k, w, x.length, a->width);
  for (int64_t from = 0; from < x.queries; from += BLOCK) {
    int64_t rows = x.queries - from < BLOCK ? x.queries - from : BLOCK;
    int64_t padded = round_up(rows, 4), first = x.first + from;
    const void *queries = element(a->q, first * a->q_stride + column, bf16);
    gather(q, w, padded, queries, a->q_stride, rows, a->width, bf16);
    const void *grads = element(d_out, first * out_stride + column, bf16);
    gather(go, w, padded, grads, out_stride, rows, a->width, bf16);
    scores(a, &x, t, head, from, rows, s, q, kt, w);
    product(d, x.padded, go, w, 1, vt, x.padded, padded, x.padded, a->width, 0);
    for (int64_t i = 0; i < rows; i++)
      softmax_backward(s + i * x.padded, d + i * x.padded, mask_of(a, &x, t, head, from + i),
                       lse[head * lse_stride + first + i], x.length, x.padded, a->keep_scale);
    if (d_bias) {
      float *bias = d_bias + (a->bias_of[t] * a->heads + head) * (2 * a->reach - 1);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < x.length; j++)
          bias[a->reach - 1 - (from + i) + j] += d[i * x.padded + j];
    }
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < x.padded; j += LANES)
        store(d + i * x.padded + j, load(d + i * x.padded + j) * a->scale);
    product(dv, w, s, 1, x.padded, go, w, tall, w, rows, from > 0);
    product(dk, w, d, 1, x.padded, q, w, tall, w, rows, from > 0);
    product(dq, w, d, x.padded, 1, k, w, padded, w, x.length, 0);
    void *to = (void *)element(d_q, first * a->q_stride + column, bf16);
    scatter(to, a->q_stride, dq, w, rows, a->width, bf16);
  }
  scatter((void *)element(d_k, place, bf16), a->kv_stride, dk, w, x.length, a->width, bf16);
  scatter((void *)element(d_v, place, bf16), a->kv_stride, dv, w, x.length, a->width, bf16);
}

/* d_q, d_k, d_v lie as q, k, v do. d_bias, if any, is added to: then a head's texts come one after
   another in one thread, so that the sum has one order. */
void attention_backward(const Attention *a, const void *d_out, int64_t out_stride,
                        const float *lse, int64_t lse_stride, void *d_q, void *d_k, void *d_v,
                        float *d_bias) {
  int64_t most = longest_of(a), w = round_up(a->width, LANES);
  int64_t size = 5 * most * w + 3 * BLOCK * w + 2 * BLOCK * most;
#pragma omp parallel
  {
    float *memory = scratch(size);
    if (d_bias) {
#pragma omp for schedule(dynamic, 1)
      for (int64_t head = 0; head < a->heads; head++)
        for (int64_t t = 0; t < a->texts; t++)
          backward_of_head(a, t, head, d_out, out_stride, lse, lse_stride, d_q, d_k, d_v, d_bias,
                           memory, most);
    } else {
#pragma omp for collapse(2) schedule(dynamic, 4)
      for (int64_t t = 0; t < a->texts; t++)
        for (int64_t head = 0; head < a->heads; head++)
          backward_of_head(a, t, head, d_out, out_stride, lse, lse_stride, d_q, d_k, d_v, 0,
                           memory, most);
    }
    free(memory);
  }
}
