/* What lies between the products of a layer, in one pass over the rows each: residual, dropout and
   norm; GELU; sums of columns. Sums are in fp32, in an order that depends on nothing but the number
   of threads. */
#include <omp.h>

#include "rows.h"

/* How many rows each thread takes, one after another. */
static void span(int64_t rows, int64_t *from, int64_t *to) {
  int64_t threads = omp_get_num_threads(), n = omp_get_thread_num();
  *from = rows * n / threads;
  *to = rows * (n + 1) / threads;
}

/* The threads' own rows of sums, added up in the order of the threads. */
static void gather_sums(float *to, const float *parts, int64_t threads, int64_t width) {
  for (int64_t j = 0; j < width; j++) {
    float total = 0;
    for (int64_t n = 0; n < threads; n++) total += parts[n * width + j];
    to[j] = total;
  }
}

static int whole(int64_t width) { return width % LANES == 0; }

/* total = x + z * keep * factor, and out = norm(total) * gain + shift; width is in whole vectors.
   `total`, `mean` and `rate` (one over the deviation) are what the backward needs; `keep` may be
   none, and so may `total`. */
int norm_forward(const void *x, const void *z, const uint8_t *keep, float factor, const float *gain,
                 const float *shift, float eps, int64_t rows, int64_t width, int64_t bf16,
                 void *total, void *out, float *mean, float *rate) {
  if (!whole(width)) return 1;
  int narrow = (int)bf16;
#pragma omp parallel
  {
    float *row = scratch(width);
    int64_t from, to;
    span(rows, &from, &to);
    for (int64_t i = from; i < to; i++) {
      vf sums = {}, squares = {};
      for (int64_t j = 0; j < width; j += LANES) {
        int64_t at = i * width + j;
        vf y = load_row(z, at, narrow);
        if (keep) y = y * load_mask(keep + at) * factor;
        y += load_row(x, at, narrow);
        store(row + j, y);
        if (total) store_row(total, at, y, narrow);
        sums += y;
      }
      float m = sum(sums) / (float)width;
      for (int64_t j = 0; j < width; j += LANES) {
        vf y = load(row + j) - m;
        squares += y * y;
      }
      float r = 1 / __builtin_sqrtf(sum(squares) / (float)width + eps);
      for (int64_t j = 0; j < width; j += LANES) {
        vf y = (load(row + j) - m) * r;
        store_row(out, i * width + j, y * load(gain + j) + load(shift + j), narrow);
      }
      mean[i] = m;
      rate[i] = r;
    }
    free(row);
  }
  return 0;
}

/* d_total is the gradient of x, d_z = d_total * keep * factor that of z (the same without `keep`:
   then d_z may be none). d_gain and d_shift: [width]. */
int norm_backward(const void *d_out, const void *total, const float *mean, const float *rate,
                  const uint8_t *keep, float factor, const float *gain, int64_t rows, int64_t width,
                  int64_t bf16, void *d_total, void *d_z, float *d_gain, float *d_shift) {
  if (!whole(width)) return 1;
  int narrow = (int)bf16, threads = 1;
  float *gains = 0, *shifts = 0;
#pragma omp parallel
  {
#pragma omp single
    {
      threads = omp_get_num_threads();
      gains = calloc((size_t)(threads * width), sizeof *gains);
      shifts = calloc((size_t)(threads * width), sizeof *shifts);
    }
    float *own_gain = gains + omp_get_thread_num() * width;
    float *own_shift = shifts + omp_get_thread_num() * width;
    float *normed = scratch(width), *grad = scratch(width);
    int64_t from, to;
    span(rows, &from, &to);
    for (int64_t i = from; i < to; i++) {
      float m = mean[i], r = rate[i];
      vf sums = {}, dots = {};
      for (int64_t j = 0; j < width; j += LANES) {
        int64_t at = i * width + j;
        vf n = (load_row(total, at, narrow) - m) * r, d = load_row(d_out, at, narrow);
        store(own_gain + j, load(own_gain + j) + d * n);
        store(own_shift + j, load(own_shift + j) + d);
        d *= load(gain + j);
        store(normed + j, n);
        store(grad + j, d);
        sums += d;
        dots += d * n;
      }
      float average = sum(sums) / (float)width, dot = sum(dots) / (float)width;
      for (int64_t j = 0; j < width; j += LANES) {
        int64_t at = i * width + j;
        vf d = (load(grad + j) - average - load(normed + j) * dot) * r;
        store_row(d_total, at, d, narrow);
        if (d_z) store_row(d_z, at, keep ? d * load_mask(keep + at) * factor : d, narrow);
      }
    }
    free(normed), free(grad);
  }
  gather_sums(d_gain, gains, threads, width);
  gather_sums(d_shift, shifts, threads, width);
  free(gains), free(shifts);
  return 0;
}

/* The normal distribution's share below x, and its density there. Abramowitz and Stegun 7.1.26: right
   to 1.5e-7. */
static inline void normal(vf x, vf *share, vf *density) {
  vf positive = pick(x < 0.0f, -x, x);
  vf e = exp16(positive * positive * -0.5f);
  vf t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * positive);
  vf p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  vf tail = 0.5f * p * t * e; /* beyond |x| */
  *share = pick(x < 0.0f, tail, 1.0f - tail);
  *density = e * 0.39894228f;
}

/* y = x share(x): GELU. n in whole vectors. */
int gelu_forward(const void *x, void *y, int64_t n, int64_t bf16) {
  if (!whole(n)) return 1;
  int narrow = (int)bf16;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i += LANES) {
    vf a = load_row(x, i, narrow), share, density;
    normal(a, &share, &density);
    store_row(y, i, a * share, narrow);
  }
  return 0;
}

/* d_x from d_y; and y, made again. */
int gelu_backward(const void *x, const void *d_y, void *d_x, void *y, int64_t n, int64_t bf16) {
  if (!whole(n)) return 1;
  int narrow = (int)bf16;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i += LANES) {
    vf a = load_row(x, i, narrow), share, density;
    normal(a, &share, &density);
    store_row(d_x, i, load_row(d_y, i, narrow) * (share + a * density), narrow);
    store_row(y, i, a * share, narrow);
  }
  return 0;
}

/* Each column's sum: [rows, width] -> [width] in fp32. */
int column_sums(const void *x, int64_t rows, int64_t width, int64_t bf16, float *out) {
  if (!whole(width)) return 1;
  int narrow = (int)bf16, threads = 1;
  float *parts = 0;
#pragma omp parallel
  {
#pragma omp single
    {
      threads = omp_get_num_threads();
      parts = calloc((size_t)(threads * width), sizeof *parts);
    }
    float *own = parts + omp_get_thread_num() * width;
    int64_t from, to;
    span(rows, &from, &to);
    for (int64_t i = from; i < to; i++)
      for (int64_t j = 0; j < width; j += LANES)
        store(own + j, load(own + j) + load_row(x, i * width + j, narrow));
  }
  gather_sums(out, parts, threads, width);
  free(parts);
  return 0;
}

/* `count` bytes, 1 where an element stays: where the byte is not below `least` that it has in the
   words which splitmix64 (https://doi.org/10.1145/2714064.2660195) makes of the seed. Every word
   depends on its number alone, so nothing hangs on the number of threads. */
int keep_mask(uint64_t seed, int64_t count, int64_t least, uint8_t *keep) {
  enum { WORDS = 64, BYTES = 8 * WORDS };
#pragma omp parallel for schedule(static)
  for (int64_t from = 0; from < count; from += BYTES) {
    uint64_t words[WORDS];
    for (int64_t i = 0; i < WORDS; i++) {
      uint64_t z = seed + (uint64_t)(from / 8 + i + 1) * 0x9e3779b97f4a7c15u;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      words[i] = z ^ (z >> 31);
    }
    const uint8_t *bytes = (const uint8_t *)words;
    int64_t own = count - from < BYTES ? count - from : BYTES;
    uint8_t below = (uint8_t)least;
    for (int64_t i = 0; i < own; i++) keep[from + i] = bytes[i] >= below;
  }
  return 0;
}
