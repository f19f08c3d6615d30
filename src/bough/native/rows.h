/* Rows of fp32 or bf16 numbers, read and written 16 at a time and computed in fp32.

   The vectors are the compiler's own, so that the same text serves every processor; where there
   are instructions for rounding to bf16 they are used. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#define LANES 16
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef uint16_t vh __attribute__((vector_size(32)));
typedef uint8_t vb __attribute__((vector_size(16)));

static inline vf load(const float *p) {
  vf x;
  memcpy(&x, p, sizeof x);
  return x;
}

static inline void store(float *p, vf x) { memcpy(p, &x, sizeof x); }

static inline vf splat(float x) { return (vf){} + x; }

static inline vf pick(vi where, vf a, vf b) { return (vf)((where & (vi)a) | (~where & (vi)b)); }

static inline float sum(vf x) {
  float total = 0;
  for (int i = 0; i < LANES; i++) total += x[i];
  return total;
}

static inline float from_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint16_t to_bf16(float x) { /* to the nearest, ties to even; no number stays none */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* `at`: an element's number; `bf16`: whether the elements are so narrow. */
static inline vf load_row(const void *p, int64_t at, int bf16) {
  if (!bf16) return load((const float *)p + at);
  vh h;
  memcpy(&h, (const uint16_t *)p + at, sizeof h);
  return (vf)(__builtin_convertvector(h, vu) << 16);
}

static inline void store_row(void *p, int64_t at, vf x, int bf16) {
  if (!bf16) {
    store((float *)p + at, x);
    return;
  }
#ifdef __AVX512BF16__
  __m256bh h = _mm512_cvtneps_pbh((__m512)x);
  memcpy((uint16_t *)p + at, &h, sizeof h);
#else
  vu bits = (vu)x;
  vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  vi none = x != x;
  vh h = __builtin_convertvector(((vu)none & 0x7fc0) | (~(vu)none & rounded), vh);
  memcpy((uint16_t *)p + at, &h, sizeof h);
#endif
}

static inline float load_one(const void *p, int64_t at, int bf16) {
  return bf16 ? from_bf16(((const uint16_t *)p)[at]) : ((const float *)p)[at];
}

static inline void store_one(void *p, int64_t at, float x, int bf16) {
  if (bf16)
    ((uint16_t *)p)[at] = to_bf16(x);
  else
    ((float *)p)[at] = x;
}

/* 16 bytes of a mask, each 0 or 1, as numbers. */
static inline vf load_mask(const uint8_t *p) {
  vb m;
  memcpy(&m, p, sizeof m);
  return __builtin_convertvector(__builtin_convertvector(m, vi), vf);
}

/* e^x for x up to about 88; below -87 it is e^-87. Cephes' polynomial, right to 2 units in the last
   place; what is no number stays none. */
static inline vf exp16(vf x) {
  x = pick(x < -87.0f, splat(-87.0f), x);
  vf n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest whole number */
  vf r = x - n * 0.693359375f + n * 2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  vi whole = __builtin_convertvector(n, vi);
  return p * (vf)((whole + 127) << 23);
}

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Memory of a thread's own, in whole vectors. */
static inline float *scratch(int64_t floats) {
  return aligned_alloc(64, (size_t)round_up(floats * 4 + 64, 64));
}
