/* Attention of one query row per sequence over keys and values that lie in spans of slots.

   Keys and values are [slots, KV_HEADS, HEAD_DIM]; queries and the result are [sequences, KV_HEADS,
   GROUP, HEAD_DIM]. A sequence reads spans of `span_tokens` slots, from the one that its window
   begins in (what the window has left there is hidden) to the one that its context ends in; row s
   of `starts`, `stride` numbers apart, has the first slot of each. Softmax is computed in tiles
   with a running maximum (Milakov and Gimelshein, arXiv 1805.02867), all sums in float32; a row
   depends on nothing else in the batch.

   The compiler gets the shape, -DKV_HEADS, -DGROUP and -DHEAD_DIM, and the formats: -DBFLOAT16 and
   -DINT8 or not. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "exponential.h"

#define TILE 32
#define ROWS (KV_HEADS * GROUP)
#define STRIDE (KV_HEADS * HEAD_DIM)
#define LOWEST -1e30f

#ifdef BFLOAT16 /* queries and the result; keys and values as well, but for INT8 */
typedef uint16_t number;

static inline float widen(number bits) {
    union { uint32_t bits; float value; } wide = {(uint32_t)bits << 16};
    return wide.value;
}

static inline number narrow(float value) { /* to the nearest, ties to even */
    union { float value; uint32_t bits; } wide = {value};
    return (number)((wide.bits + 0x7fff + ((wide.bits >> 16) & 1)) >> 16);
}
#else
typedef float number;

static inline float widen(number value) { return value; }
static inline number narrow(float value) { return value; }
#endif
#ifdef INT8 /* keys and values, each head of a slot with its scale */
typedef int8_t stored;

static inline float widen_stored(stored code) { return code; }
#define TIMES_SCALE(scales, t) *(scales)[(t) * KV_HEADS]
#else
typedef number stored;
#define widen_stored widen
#define TIMES_SCALE(scales, t)
#endif

typedef struct {
    const stored *keys, *values;
    const float *key_scales, *value_scales; /* [slots, KV_HEADS], of INT8 */
} Slots;

typedef struct {
    float query[ROWS][HEAD_DIM], sink_query[ROWS][HEAD_DIM];
    float sums[ROWS][HEAD_DIM], largest[ROWS], total[ROWS];
} Work;

static inline float dot(const float *a, const float *b) {
    float sum = 0.0f;
    for (int d = 0; d < HEAD_DIM; d++) sum += a[d] * b[d];
    return sum;
}

/* Ask for the row of a head that will be read a span later: the hardware does not see it coming. */
static inline void fetch(const stored *row) {
    for (int d = 0; d < HEAD_DIM; d += 64 / sizeof(stored)) __builtin_prefetch(row + d);
}

/* Add a tile of one kv head to the sums of its query heads. */
static void add_tile(
    Work *work, const float (*query)[HEAD_DIM], int head, const Slots *slots, int64_t slot,
    int tokens, int64_t ahead
) {
    const stored *keys = slots->keys + slot * STRIDE + head * HEAD_DIM;
    const stored *values = slots->values + slot * STRIDE + head * HEAD_DIM;
#ifdef INT8
    const float *key_scales = slots->key_scales + slot * KV_HEADS + head;
    const float *value_scales = slots->value_scales + slot * KV_HEADS + head;
#endif
    float scores[GROUP][TILE], wide[HEAD_DIM];
    int first = head * GROUP;
    for (int t = 0; t < tokens; t++) {
        fetch(keys + ahead + t * STRIDE);
        for (int d = 0; d < HEAD_DIM; d++) wide[d] = widen_stored(keys[t * STRIDE + d]);
        for (int g = 0; g < GROUP; g++)
            scores[g][t] = dot(query[first + g], wide) TIMES_SCALE(key_scales, t);
    }
    for (int g = 0; g < GROUP; g++)
        for (int t = tokens; t < TILE; t++) scores[g][t] = LOWEST;
    for (int g = 0; g < GROUP; g++) {
        float *row = scores[g], before = work->largest[first + g], top = before, added = 0.0f;
        for (int t = 0; t < TILE; t++) top = row[t] > top ? row[t] : top;
        for (int t = 0; t < TILE; t++) row[t] = exponential(row[t] - top);
        for (int t = 0; t < tokens; t++) added += row[t];
        float kept = exponential(before - top);
        for (int d = 0; d < HEAD_DIM; d++) work->sums[first + g][d] *= kept;
        work->total[first + g] = work->total[first + g] * kept + added;
        work->largest[first + g] = top;
    }
    for (int t = 0; t < tokens; t++) {
        fetch(values + ahead + t * STRIDE);
        for (int d = 0; d < HEAD_DIM; d++) wide[d] = widen_stored(values[t * STRIDE + d]);
        for (int g = 0; g < GROUP; g++) {
            float share = scores[g][t] TIMES_SCALE(value_scales, t);
            for (int d = 0; d < HEAD_DIM; d++) work->sums[first + g][d] += share * wide[d];
        }
    }
}

static void widen_scaled(float (*wide)[HEAD_DIM], const number *queries, float scale) {
    for (int r = 0; r < ROWS; r++)
        for (int d = 0; d < HEAD_DIM; d++) wide[r][d] = widen(queries[r * HEAD_DIM + d]) * scale;
}

/* Turn each row by the angles of its sequence; element d pairs with d + HEAD_DIM / 2. */
static void turn(float (*turned)[HEAD_DIM], const float (*rows)[HEAD_DIM], const float *cosines,
                 const float *sines) {
    for (int r = 0; r < ROWS; r++)
        for (int d = 0; d < HEAD_DIM; d++)
            turned[r][d] =
                rows[r][d] * cosines[d] + rows[r][(d + HEAD_DIM / 2) % HEAD_DIM] * sines[d];
}

/* The first `sinks` slots meet the queries turned by these angles, the others the queries. */
static void attend(
    Work *work, const number *queries, int64_t sinks, const float *cosines, const float *sines,
    const Slots *slots, number *out, const int64_t *starts, int64_t hidden, int64_t context,
    int64_t span_tokens, float scale
) {
    memset(work->sums, 0, sizeof work->sums);
    memset(work->total, 0, sizeof work->total);
    for (int r = 0; r < ROWS; r++) work->largest[r] = LOWEST;
    widen_scaled(work->query, queries, scale);
    if (sinks) turn(work->sink_query, work->query, cosines, sines);
    for (int64_t left = hidden + context; left > 0; left -= span_tokens, starts++, hidden = 0) {
        int64_t end = left < span_tokens ? left : span_tokens;
        int64_t ahead = left > span_tokens ? (starts[1] - *starts) * STRIDE : 0;
        for (int64_t t = hidden, tokens; t < end; t += tokens) {
            tokens = end - t < TILE ? end - t : TILE;
            if (sinks > 0 && tokens > sinks) tokens = sinks;
            for (int head = 0; head < KV_HEADS; head++)
                add_tile(work, sinks > 0 ? work->sink_query : work->query, head, slots,
                         *starts + t, (int)tokens, ahead);
            if (sinks > 0) sinks -= tokens;
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int d = 0; d < HEAD_DIM; d++)
            out[r * HEAD_DIM + d] = narrow(work->sums[r][d] / work->total[r]);
}

/* With sinks, `cosines` and `sines` are [sequences, HEAD_DIM]; otherwise they are not read. */
void decode_attention(
    const number *queries, const stored *keys, const stored *values, const float *key_scales,
    const float *value_scales, number *out, const int64_t *starts, int64_t stride,
    const int64_t *contexts, const float *cosines, const float *sines, int64_t window,
    int64_t sinks, int64_t span_tokens, int sequences, float scale, int threads
) {
    Slots slots = {keys, values, key_scales, value_scales};
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(dynamic)
    for (int s = 0; s < sequences; s++) {
        Work work;
        int64_t row = (int64_t)s * ROWS * HEAD_DIM;
        int64_t first = contexts[s] > window ? contexts[s] - window : 0;
        int64_t angles = sinks ? s * HEAD_DIM : 0;
        attend(&work, queries + row, sinks, cosines + angles, sines + angles, &slots,
               out + row, starts + s * stride + first / span_tokens, first % span_tokens,
               contexts[s] - first, span_tokens, scale);
    }
}
