/* One encoder layer for answering, on packed rows: attention and feed-forward, no gradients.

   Included once for each precision of its products, which brings with it: NAME; the type Narrow of
   a row's number there, of which GROUP fill 32 bits; the type Sums of 16 sums, taken over DEPTH
   inputs at a time; ROWS and VECTORS that are made together; `narrow`, `multiply`, `begun` and
   `widened`. Softmax, norms, residuals and whatever lies between products are fp32.

   Texts know nothing of each other: a thread takes a few of them and walks the whole layer alone,
   its rows staying in the caches, and an answer never depends on what is in the same batch. */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include "rows.h"

#define PANEL (VECTORS * LANES)
#define QUERIES 8    /* rows of one piece of attention */
#define TOGETHER 96  /* rows, about, that a thread takes at a time */
#define BLOCK 48     /* rows of them that go through the feed-forward part together */
#define LINE 64      /* bytes that come into a cache together */
#define TERMS 15     /* of the polynomial in an activation */
#define UNROLLED _Pragma("GCC unroll 16") for
#define ALWAYS static inline __attribute__((always_inline))

/* W x + b, the weights as [outputs / PANEL][inputs / GROUP][PANEL][GROUP]; int8 has for each panel
   and every DEPTH inputs the scales of its outputs, and what their sums begin with. */
typedef struct {
  int64_t inputs, outputs;
  const void *weights;
  const float *bias, *scales;
  const int32_t *begin;
} Product;

typedef struct {
  int64_t width, heads, inner;
  float eps;
  float bound;       /* f(x) = x/2 + even(x): beyond the bound |x|/2, */
  float even[TERMS]; /* within it a polynomial in 2 (x/bound)^2 - 1 */
  float least;       /* what f never falls below */
  Product queries, keys_values, out, up, down;
  const float *norm1[2], *norm2[2]; /* gain, shift */
} EncoderLayer;

/* Rows as a product reads them; int8 has a scale for every DEPTH numbers of a row. */
typedef struct {
  Narrow *numbers;
  float *scales;
} Input;

/* Activated rows are never below a least value, the others are about 0. */
enum Range { AROUND_ZERO, ACTIVE };

static void narrow(const EncoderLayer *layer, Input to, const float *rows, int64_t stride,
                   int64_t count, int64_t width, enum Range range);
ALWAYS Sums multiply(Sums sums, vi row, vi weights);
ALWAYS Sums begun(const Product *p, int64_t place);
ALWAYS vf widened(Sums sums, const Product *p, int64_t place, Input from, int64_t group);

ALWAYS vf larger(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
ALWAYS vf smaller(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }

/* Into the second cache: the first has no room for what is needed later. */
ALWAYS void fetch(const void *line) { __builtin_prefetch(line, 0, 2); }

ALWAYS float added(vf x) { return _mm512_reduce_add_ps((__m512)x); }

ALWAYS vf activated(const EncoderLayer *layer, vf x) {
  vf size = larger(x, -x), inside = smaller(size, splat(layer->bound));
  vf t = inside * inside * (2 / (layer->bound * layer->bound)) - 1.0f;
  vf y = splat(layer->even[TERMS - 1]);
  UNROLLED(int i = TERMS - 2; i >= 0; i--) y = y * t + layer->even[i];
  return y + 0.5f * (x + size - inside);
}

enum After { PLAIN, ACTIVATED, ADDED };

/* `count` rows' products with one panel of weights; ADDED to what is at `to`. Meanwhile a part of
   the next panel comes into the cache: where a single text is answered now and then, the weights
   are far away each time. */
ALWAYS void piece(const EncoderLayer *layer, const Product *p, Input from, int64_t row,
                  int64_t panel, float *to, int64_t stride, const int count,
                  const enum After after) {
  const Narrow *w = (const Narrow *)p->weights + panel * PANEL * p->inputs;
  const char *next = (const char *)(w + PANEL * p->inputs), *end = next + (next - (const char *)w);
  const char *ahead = next + row / ROWS * (p->inputs / GROUP) * LINE;
  if (ahead >= end) ahead = (const char *)w; /* it is there */
  const Narrow *x = from.numbers + row * p->inputs;
  const int64_t depth = DEPTH < p->inputs ? DEPTH : p->inputs, groups = p->inputs / depth;
  vf totals[ROWS][VECTORS];
  UNROLLED(int v = 0; v < VECTORS; v++) {
    vf bias = load(p->bias + panel * PANEL + v * LANES);
    UNROLLED(int r = 0; r < count; r++) totals[r][v] = bias;
  }
  for (int64_t g = 0; g < groups; g++) {
    int64_t place = (panel * groups + g) * PANEL;
    if (p->scales && row < ROWS) UNROLLED(int v = 0; v < VECTORS; v++) {
      fetch(p->scales + place + groups * PANEL + v * LANES);
      fetch(p->begin + place + groups * PANEL + v * LANES);
    }
    Sums sums[ROWS][VECTORS];
    UNROLLED(int v = 0; v < VECTORS; v++) {
      Sums first = begun(p, place + v * LANES);
      UNROLLED(int r = 0; r < count; r++) sums[r][v] = first;
    }
    for (int64_t k = g * depth; k < (g + 1) * depth; k += GROUP, w += GROUP * PANEL) {
      fetch(ahead);
      ahead += LINE;
      vi weights[VECTORS];
      UNROLLED(int v = 0; v < VECTORS; v++) memcpy(&weights[v], w + GROUP * LANES * v, sizeof(vi));
      UNROLLED(int r = 0; r < count; r++) {
        int32_t group;
        memcpy(&group, x + r * p->inputs + k, sizeof group);
        vi numbers = (vi){} + group;
        UNROLLED(int v = 0; v < VECTORS; v++)
          sums[r][v] = multiply(sums[r][v], numbers, weights[v]);
      }
    }
    UNROLLED(int v = 0; v < VECTORS; v++) UNROLLED(int r = 0; r < count; r++)
      totals[r][v] += widened(sums[r][v], p, place + v * LANES, from, (row + r) * groups + g);
  }
  UNROLLED(int v = 0; v < VECTORS; v++) UNROLLED(int r = 0; r < count; r++) {
    float *at = to + (row + r) * stride + panel * PANEL + v * LANES;
    vf y = after == ADDED ? totals[r][v] + load(at) : totals[r][v];
    store(at, after == ACTIVATED ? activated(layer, y) : y);
  }
}

ALWAYS void product(const EncoderLayer *layer, const Product *p, Input from, int64_t rows,
                    float *to, int64_t stride, const enum After after) {
  for (int64_t panel = 0; panel * PANEL < p->outputs; panel++) {
    int64_t row = 0;
    for (; row + ROWS <= rows; row += ROWS)
      piece(layer, p, from, row, panel, to, stride, ROWS, after);
    switch (rows - row) {
      case 5: piece(layer, p, from, row, panel, to, stride, 5, after); break;
      case 4: piece(layer, p, from, row, panel, to, stride, 4, after); break;
      case 3: piece(layer, p, from, row, panel, to, stride, 3, after); break;
      case 2: piece(layer, p, from, row, panel, to, stride, 2, after); break;
      case 1: piece(layer, p, from, row, panel, to, stride, 1, after); break;
    }
  }
}

static void norm(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                 int64_t rows, int64_t width, const float *const gain_shift[2], float eps) {
  for (int64_t r = 0; r < rows; r++) {
    const float *x = from + r * from_stride;
    float *y = to + r * to_stride;
    vf total = {}, squares = {};
    for (int64_t i = 0; i < width; i += LANES) total += load(x + i);
    float mean = added(total) / width;
    for (int64_t i = 0; i < width; i += LANES) {
      vf off = load(x + i) - mean;
      squares += off * off;
    }
    float rate = 1 / sqrtf(added(squares) / width + eps);
    for (int64_t i = 0; i < width; i += LANES)
      store(y + i, (load(x + i) - mean) * rate * load(gain_shift[0] + i) + load(gain_shift[1] + i));
  }
}

/* [count, inner] times [inner, LANES]. */
ALWAYS void small_product(vf *sums, const float *a, int64_t a_stride, const float *b,
                          int64_t b_stride, int64_t inner, const int count) {
  UNROLLED(int r = 0; r < count; r++) sums[r] = (vf){};
  for (int64_t k = 0; k < inner; k++) {
    vf column = load(b + k * b_stride);
    UNROLLED(int r = 0; r < count; r++) sums[r] += a[r * a_stride + k] * column;
  }
}

/* Some queries of one head: scores, softmax, mixture. `turned` are the keys, [width][padded]; the
   bias is by how far a key lies behind the first query. */
ALWAYS void mix(float *to, int64_t to_stride, const float *queries, int64_t stride,
                const float *turned, const float *values, int64_t v_stride, int64_t length,
                int64_t width, const float *bias, float *shares, const int count) {
  int64_t padded = round_up(length, LANES);
  float scale = 1 / sqrtf(width);
  const vi numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vf sums[QUERIES], most[QUERIES];
  UNROLLED(int r = 0; r < count; r++) most[r] = splat(-FLT_MAX);
  for (int64_t j = 0; j < padded; j += LANES) {
    small_product(sums, queries, stride, turned + j, padded, width, count);
    vi there = numbers < (int32_t)(length - j);
    UNROLLED(int r = 0; r < count; r++) {
      sums[r] *= scale;
      if (bias) sums[r] += load(bias + j - r);
      sums[r] = pick(there, sums[r], splat(-FLT_MAX));
      store(shares + r * padded + j, sums[r]);
      most[r] = larger(most[r], sums[r]);
    }
  }
  float rates[QUERIES];
  UNROLLED(int r = 0; r < count; r++) {
    float top = _mm512_reduce_max_ps((__m512)most[r]);
    vf total = {};
    for (int64_t j = 0; j < padded; j += LANES) {
      vf e = exp16(load(shares + r * padded + j) - top);
      store(shares + r * padded + j, e);
      total += e;
    }
    rates[r] = 1 / added(total);
  }
  for (int64_t i = 0; i < width; i += LANES) {
    small_product(sums, shares, padded, values + i, v_stride, length, count);
    UNROLLED(int r = 0; r < count; r++) store(to + r * to_stride + i, sums[r] * rates[r]);
  }
}

/* One text: `asking` of its rows, from the first on, look at all of them. */
static void attend(const EncoderLayer *layer, float *to, const float *queries, int64_t q_stride,
                   int64_t asking, const float *keys_values, int64_t kv_stride, int64_t length,
                   const float *bias, int64_t reach, float *room) {
  int64_t width = layer->width / layer->heads, padded = round_up(length, LANES), d = layer->width;
  float *turned = room, *shares = room + width * padded;
  memset(turned, 0, width * padded * sizeof *turned);
  for (int64_t head = 0; head < layer->heads; head++) {
    const float *keys = keys_values + head * width, *values = keys + d;
    const float *by_distance = bias ? bias + head * (2 * reach - 1) + reach - 1 : NULL;
    for (int64_t j = 0; j < length; j++)
      for (int64_t i = 0; i < width; i++) turned[i * padded + j] = keys[j * kv_stride + i];
    for (int64_t at = 0; at < asking;) {
      /* The last rows are a whole piece, too, some of them done twice: alone they take longer. */
      if (asking - at < QUERIES && asking >= QUERIES) at = asking - QUERIES;
      const float *own = queries + at * q_stride + head * width;
      const float *near = bias ? by_distance - at : NULL;
      float *mixed = to + at * d + head * width;
      if (asking - at >= QUERIES) {
        mix(mixed, d, own, q_stride, turned, values, kv_stride, length, width, near, shares,
            QUERIES);
        at += QUERIES;
      } else {
        mix(mixed, d, own, q_stride, turned, values, kv_stride, length, width, near, shares, 1);
        at++;
      }
    }
  }
}

/* What follows attention: out, residual, norm, up, activation, down, residual, norm. */
static void feed_forward(const EncoderLayer *layer, float *to, const float *mixed,
                         const float *residual, int64_t rows, Input input, float *x, float *wide) {
  int64_t width = layer->width, inner = layer->inner;
  int64_t stride = round_up(width, PANEL), wide_stride = round_up(inner, PANEL);
  for (int64_t r = 0; r < rows; r++)
    memcpy(x + r * stride, residual + r * width, width * sizeof *x);
  narrow(layer, input, mixed, width, rows, width, AROUND_ZERO);
  product(layer, &layer->out, input, rows, x, stride, ADDED);
  norm(x, stride, x, stride, rows, width, layer->norm1, layer->eps);
  narrow(layer, input, x, stride, rows, width, AROUND_ZERO);
  product(layer, &layer->up, input, rows, wide, wide_stride, ACTIVATED);
  narrow(layer, input, wide, wide_stride, rows, inner, ACTIVE);
  product(layer, &layer->down, input, rows, x, stride, ADDED);
  norm(to, width, x, stride, rows, width, layer->norm2, layer->eps);
}

/* Memory of a thread's own, kept for its next call and given back when it ends: taken anew for
   every layer, it might come from the system, page by page, each time. */
static pthread_key_t room_key;
__attribute__((constructor)) static void make_room_key(void) {
  pthread_key_create(&room_key, free);
}

static float *room_for(int64_t floats) {
  int64_t *kept = pthread_getspecific(room_key); /* its size stands before it */
  if (!kept || *kept < floats) {
    free(kept);
    kept = (int64_t *)scratch(floats + LANES);
    if (kept) *kept = floats;
    pthread_setspecific(room_key, kept);
  }
  return kept ? (float *)kept + LANES : NULL;
}

/* The texts of a batch, and what is asked of them. */
typedef struct {
  const int64_t *lengths, *bias_of;
  const float *bias; /* [tables][heads][2 reach - 1], a vector longer than that, or none */
  int64_t texts, reach, first_only, threads;
} Batch;

/* Each text's first row of all, side by side. */
static void first_rows(float *to, const float *from, const int64_t *lengths, int64_t texts,
                       int64_t width) {
  for (int64_t t = 0; t < texts; from += lengths[t++] * width)
    memcpy(to + t * width, from, width * sizeof *to);
}

/* Texts `begin` to `end`, whose rows start at `h`; false where there is no memory. */
static int some_texts(const EncoderLayer *layer, float *to, const float *h, const Batch *batch,
                      int64_t begin, int64_t end) {
  const int64_t *lengths = batch->lengths + begin;
  int64_t texts = end - begin, rows = 0, longest = 0, d = layer->width;
  for (int64_t t = 0; t < texts; t++) {
    rows += lengths[t];
    longest = lengths[t] > longest ? lengths[t] : longest;
  }
  int64_t asking = batch->first_only ? texts : rows, block = asking < BLOCK ? asking : BLOCK;
  int64_t widest = d > layer->inner ? d : layer->inner;
  int64_t numbers = rows * d > block * widest ? rows * d : block * widest;
  int64_t stride = round_up(d, PANEL), kv_stride = round_up(2 * d, PANEL);
  int64_t sizes[] = {
      asking * stride, rows * kv_stride, asking * d, batch->first_only ? asking * d : 0,
      block * stride,
      block * round_up(layer->inner, PANEL),
      (d / layer->heads + QUERIES) * round_up(longest, LANES),
      numbers * (int64_t)sizeof(Narrow) / 4, numbers / DEPTH,
  };
  enum { COUNT = sizeof sizes / sizeof *sizes };
  int64_t total = 0;
  for (int i = 0; i < COUNT; i++) total += round_up(sizes[i], LANES);
  float *room = room_for(total), *parts[COUNT], *at = room;
  if (!room) return 0;
  for (int i = 0; i < COUNT; i++) parts[i] = at, at += round_up(sizes[i], LANES);
  float *queries = parts[0], *keys_values = parts[1], *mixed = parts[2];
  Input input = {(Narrow *)parts[7], parts[8]};

  narrow(layer, input, h, d, rows, d, AROUND_ZERO);
  product(layer, &layer->keys_values, input, rows, keys_values, kv_stride, PLAIN);
  const float *residual = h;
  if (batch->first_only) {
    first_rows(parts[3], h, lengths, texts, d);
    residual = parts[3];
    narrow(layer, input, residual, d, texts, d, AROUND_ZERO);
  }
  product(layer, &layer->queries, input, asking, queries, stride, PLAIN);
  int64_t table = layer->heads * (2 * batch->reach - 1), row = 0, q_row = 0;
  for (int64_t t = 0; t < texts; t++) {
    int64_t own = batch->first_only ? 1 : lengths[t];
    attend(layer, mixed + q_row * d, queries + q_row * stride, stride, own,
           keys_values + row * kv_stride, kv_stride, lengths[t],
           batch->bias ? batch->bias + table * batch->bias_of[begin + t] : NULL, batch->reach,
           parts[6]);
    row += lengths[t], q_row += own;
  }
  for (int64_t r = 0; r < asking; r += BLOCK)
    feed_forward(layer, to + r * d, mixed + r * d, residual + r * d,
                 asking - r < BLOCK ? asking - r : BLOCK, input, parts[4], parts[5]);
  return 1;
}

/* [rows, width] -> [rows, width], or [texts, width]; true if it was done. */
static int one_layer(const EncoderLayer *layer, float *to, const float *h, const Batch *batch) {
  int64_t parts = 0, size = 0, row = 0, *starts = malloc((2 * batch->texts + 2) * sizeof *starts);
  if (!starts) return 0;
  for (int64_t t = 0; t < batch->texts; t++) {
    int64_t own = batch->lengths[t];
    if (!t || size + own > TOGETHER) starts[2 * parts] = t, starts[2 * parts++ + 1] = row, size = 0;
    size += own, row += own;
  }
  starts[2 * parts] = batch->texts;
  int done = 1;
#pragma omp parallel for schedule(dynamic) reduction(&& : done) num_threads(batch->threads) \
    if (parts > 1 && batch->threads > 1)
  for (int64_t n = 0; n < parts; n++) {
    int64_t p = parts - 1 - n; /* the longest texts come last, and nobody shall wait for them */
    int64_t text = starts[2 * p], first = starts[2 * p + 1];
    done = some_texts(layer, to + (batch->first_only ? text : first) * layer->width,
                      h + first * layer->width, batch, text, starts[2 * p + 2]) && done;
  }
  free(starts);
  return done;
}

/* Layer after layer; only the last may be asked for first rows alone. Between them the rows are in
   `between`, in turn. 0 if it was done. */
int NAME(const EncoderLayer *const *layers, int64_t count, float *to, const float *h,
         float *const between[2], const Batch *batch) {
  Batch whole = *batch;
  whole.first_only = 0;
  for (int64_t i = 0; i < count; i++) {
    int last = i == count - 1;
    float *next = last ? to : between[i % 2];
    if (!one_layer(layers[i], next, h, last ? batch : &whole)) return 1;
    h = next;
  }
  return 0;
}
