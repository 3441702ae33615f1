/* y = x W^T with W in int8 or int4, packed in panels of LANES outputs, in one of three ways:

   - int8: weights are widened to float32 inside the product, and a scale multiplies each output.
   - int4: as int8, with a scale and a middle (bfloat16) for each group of inputs.
   - w8a8: each row of x is rounded to int8 as well; products are added up in int32, exactly.

   A row's result does not depend on the rows beside it, to the last bit. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "registers.h"

#define MOST_TILES 3 /* of the same weights, before widening them once for all costs less */
#define AHEAD 1024 /* bytes of int8 weights that are asked for early: a fifth faster at one row */
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* Round a row to 1 .. 255 around 128 and return its scale; a number that is none is not lost. */
static float quantise(const float *x, uint8_t *codes, int64_t inputs) {
    float largest = 0.0f, none = 0.0f;
    for (int64_t k = 0; k < inputs; k++) {
        float size = fabsf(x[k]);
        largest = size > largest ? size : largest;
        none += x[k] * 0.0f;
    }
    float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (int64_t k = 0; k < inputs; k++) codes[k] = (uint8_t)((int32_t)rintf(x[k] * inverse) + 128);
    for (int64_t k = inputs; k % 4; k++) codes[k] = 128;
    return largest / 127.0f + none;
}

/* Below, sums are added up in the order of the inputs, whatever is computed beside them. */
#if defined(__clang__)
#pragma clang fp reassociate(off)
#else
#pragma GCC optimize("no-associative-math")
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t whole __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int8_t narrow __attribute__((vector_size(LANES), aligned(1)));
typedef uint8_t pairs __attribute__((vector_size(LANES), aligned(1)));

typedef struct {
    const void *x;
    const int8_t *w;
    const void *scales; /* float32 by output; int4: bfloat16 [panels][groups][2][LANES] */
    const void *rows_of; /* w8a8: float32 scale by row */
    const int32_t *sums; /* w8a8: 128 times the sum of the weights, by output */
    float *y;
    int64_t rows, inputs, outputs, group;
} Product;

INLINE vector widen(const int8_t *codes) {
#if defined(__AVX512F__) /* gcc takes a lane at a time in the line for all others */
    return (vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)codes)));
#elif defined(__AVX2__)
    return (vector)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)codes)));
#else
    return __builtin_convertvector(__builtin_convertvector(*(const narrow *)codes, whole), vector);
#endif
}

INLINE vector nibbles(pairs codes) {
    return __builtin_convertvector(__builtin_convertvector(codes, whole), vector);
}

INLINE vector from_bfloat16(const uint16_t *bits) {
    whole wide;
    for (int l = 0; l < LANES; l++) wide[l] = (int32_t)((uint32_t)bits[l] << 16);
    vector value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

INLINE void store(const Product *p, int64_t row, int64_t panel, vector sums) {
    int64_t first = panel * LANES, left = p->outputs - first;
    memcpy(p->y + row * p->outputs + first, &sums, sizeof(float) * (left < LANES ? left : LANES));
}

INLINE vector load(const float *from) {
    vector values;
    memcpy(&values, from, sizeof values);
    return values;
}

/* Weights are those of `ready`, [panels][inputs][LANES], or widened from int8 where it is none. */
INLINE void tile_of(
    const Product *p, const float *ready, int64_t row, int64_t panel, const int rows,
    const int panels
) {
    const float *x = (const float *)p->x + row * p->inputs;
    const int8_t *w = p->w + panel * p->inputs * LANES;
    vector sums[MOST_ROWS][PANELS] = {0};
    for (int64_t k = 0; k < p->inputs; k++)
        for (int j = 0; j < panels; j++) {
            int64_t place = (j * p->inputs + k) * LANES;
            if (!ready) __builtin_prefetch(w + place + AHEAD);
            vector weights = ready ? load(ready + place) : widen(w + place);
            for (int r = 0; r < rows; r++) sums[r][j] += x[r * p->inputs + k] * weights;
        }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < panels; j++) {
            if (!p->group) sums[r][j] *= load((const float *)p->scales + (panel + j) * LANES);
            store(p, row + r, panel + j, sums[r][j]);
        }
}

INLINE void tile_ready(
    const Product *p, const float *ready, int64_t row, int64_t panel, const int rows,
    const int panels
) {
    tile_of(p, ready, row, panel, rows, panels);
}

INLINE void tile_int8(
    const Product *p, const float *none, int64_t row, int64_t panel, const int rows,
    const int panels
) {
    (void)none;
    tile_of(p, 0, row, panel, rows, panels);
}

static void unpack_int8(const Product *p, int64_t panel, int64_t panels, float *into) {
    const int8_t *w = p->w + panel * p->inputs * LANES;
    for (int64_t k = 0; k < panels * p->inputs; k++, w += LANES, into += LANES) {
        vector weights = widen(w);
        memcpy(into, &weights, sizeof weights);
    }
}

/* Where the weights of a panel lie, and how a group of them is widened. */
typedef struct {
    const int8_t *codes;
    const uint16_t *grid;
} Panel;

INLINE Panel panel_at(const Product *p, int64_t panel) {
    int64_t groups = (p->inputs + p->group - 1) / p->group;
    return (Panel){
        p->w + panel * (p->inputs / 2) * LANES, (const uint16_t *)p->scales + panel * groups * 2 * LANES
    };
}

INLINE void of_group(Panel at, int64_t group, vector *scale, vector *lowest) {
    const uint16_t *of = at.grid + group * 2 * LANES;
    *scale = from_bfloat16(of);
    *lowest = from_bfloat16(of + LANES) - 8 * *scale;
}

INLINE int64_t end_of(const Product *p, int64_t group) {
    int64_t end = (group + 1) * p->group;
    return end < p->inputs ? end : p->inputs;
}

INLINE void tile_int4(
    const Product *p, const float *none, int64_t row, int64_t panel, const int rows,
    const int panels
) {
    (void)none;
    const float *x = (const float *)p->x + row * p->inputs;
    vector sums[MOST_ROWS][PANELS] = {0};
    for (int64_t g = 0; g * p->group < p->inputs; g++) {
        vector scale[PANELS], lowest[PANELS];
        for (int j = 0; j < panels; j++) of_group(panel_at(p, panel + j), g, scale + j, lowest + j);
        for (int64_t k = g * p->group / 2; k < end_of(p, g) / 2; k++)
            for (int j = 0; j < panels; j++) {
                pairs codes = *(const pairs *)(panel_at(p, panel + j).codes + k * LANES);
                vector even = nibbles(codes & 15) * scale[j] + lowest[j];
                vector odd = nibbles(codes >> 4) * scale[j] + lowest[j];
                for (int r = 0; r < rows; r++) {
                    const float *at = x + r * p->inputs + 2 * k;
                    sums[r][j] += at[0] * even;
                    sums[r][j] += at[1] * odd;
                }
            }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < panels; j++) store(p, row + r, panel + j, sums[r][j]);
}

static void unpack_int4(const Product *p, int64_t panel, int64_t panels, float *into) {
    for (int64_t j = 0; j < panels; j++)
        for (int64_t g = 0; g * p->group < p->inputs; g++) {
            Panel at = panel_at(p, panel + j);
            vector scale, lowest;
            of_group(at, g, &scale, &lowest);
            for (int64_t k = g * p->group / 2; k < end_of(p, g) / 2; k++) {
                pairs codes = *(const pairs *)(at.codes + k * LANES);
                vector both[2] = {
                    nibbles(codes & 15) * scale + lowest, nibbles(codes >> 4) * scale + lowest
                };
                memcpy(into + (j * p->inputs + 2 * k) * LANES, both, sizeof both);
            }
        }
}

/* Add four products to each lane: of the bytes of `four` (0 to 255) and of the weights there. */
INLINE whole dot_of_four(whole sums, int32_t four, const int8_t *w) {
#if defined(__AVX512VNNI__)
    return (whole)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(four), _mm512_loadu_si512(w));
#elif defined(__AVXVNNI__)
    __m256i weights = _mm256_loadu_si256((const __m256i *)w);
    return (whole)_mm256_dpbusd_avx_epi32((__m256i)sums, _mm256_set1_epi32(four), weights);
#else
    const uint8_t *x = (const uint8_t *)&four;
    for (int l = 0; l < LANES; l++)
        sums[l] += x[0] * w[4 * l] + x[1] * w[4 * l + 1] + x[2] * w[4 * l + 2] + x[3] * w[4 * l + 3];
    return sums;
#endif
}

INLINE void tile_w8a8(
    const Product *p, const float *none, int64_t row, int64_t panel, const int rows,
    const int panels
) {
    (void)none;
    int64_t fours = (p->inputs + 3) / 4;
    const int32_t *x = (const int32_t *)p->x + row * fours;
    const int8_t *w = p->w + panel * fours * 4 * LANES;
    whole sums[MOST_ROWS][PANELS] = {0};
    for (int64_t k = 0; k < fours; k++)
        for (int j = 0; j < panels; j++)
            for (int r = 0; r < rows; r++)
                sums[r][j] = dot_of_four(
                    sums[r][j], x[r * fours + k], w + (j * fours + k) * 4 * LANES);
    for (int r = 0; r < rows; r++) {
        float scale = ((const float *)p->rows_of)[row + r];
        for (int j = 0; j < panels; j++) {
            whole shift;
            memcpy(&shift, p->sums + (panel + j) * LANES, sizeof shift);
            vector exact = __builtin_convertvector(sums[r][j] - shift, vector);
            vector scales = load((const float *)p->scales + (panel + j) * LANES);
            store(p, row + r, panel + j, exact * scales * scale);
        }
    }
}

#define CASE(tile, r, j) case r: tile(p, ready, row, panel, r, j); break;
#define CASES(tile, j) CASE(tile, 1, j) CASE(tile, 2, j) CASE(tile, 3, j) CASE(tile, 4, j) \
    CASE(tile, 5, j) CASE(tile, 6, j)
#define TILES(name, tile) \
    static void name( \
        const Product *p, const float *ready, int64_t row, int64_t panel, int64_t panels, int rows \
    ) { \
        if (panels == PANELS) switch (rows) { CASES(tile, PANELS) } \
        else for (; panels; panel++, panels--, ready += ready ? p->inputs * LANES : 0) \
            switch (rows) { CASES(tile, 1) } \
    }

TILES(tiles_ready, tile_ready)
TILES(tiles_int8, tile_int8)
TILES(tiles_int4, tile_int4)
TILES(tiles_w8a8, tile_w8a8)

typedef void Tiles(const Product *, const float *, int64_t, int64_t, int64_t, int);
typedef void Unpack(const Product *, int64_t, int64_t, float *);

/* Weights are widened once for all rows where many tiles read them. */
static void multiply(const Product *p, Tiles *tiles, Unpack *unpack, int threads) {
    int64_t groups = (p->rows + MOST_ROWS - 1) / MOST_ROWS;
    int64_t panels = (p->outputs + LANES - 1) / LANES;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        size_t room = sizeof(float) * PANELS * LANES * p->inputs;
        float *ready = unpack && groups > MOST_TILES ? malloc(room) : 0;
#pragma omp for schedule(static)
        for (int64_t panel = 0; panel < panels; panel += PANELS) {
            int64_t count = panels - panel < PANELS ? panels - panel : PANELS;
            if (ready) unpack(p, panel, count, ready);
            for (int64_t g = 0; g < groups; g++) {
                int64_t first = g * p->rows / groups, end = (g + 1) * p->rows / groups;
                (ready ? tiles_ready : tiles)(p, ready, first, panel, count, (int)(end - first));
            }
        }
        free(ready);
    }
}

int lanes(void) { return LANES; }

void int8(
    const float *x, const int8_t *w, const float *scales, float *y, int64_t rows, int64_t inputs,
    int64_t outputs, int threads
) {
    Product p = {x, w, scales, 0, 0, y, rows, inputs, outputs, 0};
    multiply(&p, tiles_int8, unpack_int8, threads);
}

void int4(
    const float *x, const int8_t *w, const uint16_t *grid, float *y, int64_t rows, int64_t inputs,
    int64_t outputs, int64_t group, int threads
) {
    Product p = {x, w, grid, 0, 0, y, rows, inputs, outputs, group};
    multiply(&p, tiles_int4, unpack_int4, threads);
}

/* `codes` has room for rows of `inputs` bytes, each up to a multiple of 4, `row_scales` for one
   number a row. */
void w8a8(
    const float *x, const int8_t *w, const float *scales, const int32_t *sums, float *y,
    uint8_t *codes, float *row_scales, int64_t rows, int64_t inputs, int64_t outputs, int threads
) {
    int64_t width = (inputs + 3) / 4 * 4;
    for (int64_t r = 0; r < rows; r++)
        row_scales[r] = quantise(x + r * inputs, codes + r * width, inputs);
    Product p = {codes, w, scales, row_scales, sums, y, rows, inputs, outputs, 0};
    multiply(&p, tiles_w8a8, 0, threads);
}
