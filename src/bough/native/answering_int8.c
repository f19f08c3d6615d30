/* Answering with products of 8-bit numbers, exact in 32 bits.

   Every 64 numbers of a row, and every 64 weights of an output, have a scale of their own, so a
   large one coarsens few others, and no row's answer depends on another row. Rows about 0 are
   bytes about 128, which the sums begin with; activated ones count from their least value, which
   the bias has in it: see answering.py. */
#ifdef __AVX512VNNI__
#include "rows.h"

#define NAME answering_int8
#define GROUP 4
#define DEPTH 64
#define ROWS 6 /* 12 sums and 12 totals, for 32 registers */
#define VECTORS 2
typedef uint8_t Narrow;
typedef vi Sums;
#include "answering.h"

static void narrow(const EncoderLayer *layer, Input to, const float *rows, int64_t stride,
                   int64_t count, int64_t width, enum Range range) {
  const float least = range == ACTIVE ? layer->least : 0, zero = range == ACTIVE ? 0 : 128;
  const float steps = range == ACTIVE ? 255 : 127;
  for (int64_t r = 0; r < count; r++)
    for (int64_t g = 0; g < width / DEPTH; g++) {
      const float *x = rows + r * stride + g * DEPTH;
      vf parts[DEPTH / LANES];
      __m512i most = _mm512_setzero_si512(); /* as bits: what is no number is larger than all */
      UNROLLED(int i = 0; i < DEPTH / LANES; i++) {
        parts[i] = load(x + i * LANES) - least;
        most = _mm512_max_epi32(most, (__m512i)((vi)parts[i] & 0x7fffffff));
      }
      int32_t bits = _mm512_reduce_max_epi32(most);
      float largest;
      memcpy(&largest, &bits, sizeof largest);
      float rate = largest > 0 ? steps / largest : 0;
      UNROLLED(int i = 0; i < DEPTH / LANES; i++) {
        vi whole = __builtin_convertvector(parts[i] * rate + (zero + 0.5f), vi);
        vb bytes = __builtin_convertvector(whole, vb);
        memcpy(to.numbers + r * width + g * DEPTH + i * LANES, &bytes, sizeof bytes);
      }
      to.scales[r * (width / DEPTH) + g] = largest / steps;
    }
}

ALWAYS Sums multiply(Sums sums, vi row, vi weights) {
  return (vi)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)row, (__m512i)weights);
}

ALWAYS Sums begun(const Product *p, int64_t place) {
  vi first;
  memcpy(&first, p->begin + place, sizeof first);
  return first;
}

ALWAYS vf widened(Sums sums, const Product *p, int64_t place, Input from, int64_t group) {
  return __builtin_convertvector(sums, vf) * (load(p->scales + place) * from.scales[group]);
}
#endif
