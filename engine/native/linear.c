/* y = x W^T in float32, with W packed as [ceil(outputs / LANES)][inputs][LANES].

   Every output is one sum in the order of the inputs, however many rows there are: a row's result
   does not depend on its batch, to the last bit. One row runs as fast as the weights are read. */

#include <stdint.h>
#include <string.h>

#include "registers.h"

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));

static inline __attribute__((always_inline)) void tile(
    const float *x, const float *w, float *y, int64_t inputs, int64_t outputs, int left,
    const int rows, const int panels
) {
    vector sums[MOST_ROWS][PANELS];
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels; p++) sums[r][p] = (vector){0};
    for (int64_t k = 0; k < inputs; k++)
        for (int p = 0; p < panels; p++) {
            vector weights = *(const vector *)(w + (p * inputs + k) * LANES);
            for (int r = 0; r < rows; r++) sums[r][p] += x[r * inputs + k] * weights;
        }
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels; p++) {
            int lanes = left - p * LANES < LANES ? left - p * LANES : LANES;
            memcpy(y + r * outputs + p * LANES, &sums[r][p], sizeof(float) * lanes);
        }
}

#define TILE(r, p) case r: tile(x, w, y, inputs, outputs, left, r, p); break;
#define TILES(p) TILE(1, p) TILE(2, p) TILE(3, p) TILE(4, p) TILE(5, p) TILE(6, p)

static void tile_of(
    const float *x, const float *w, float *y, int64_t inputs, int64_t outputs, int left, int rows
) {
    if (left > (PANELS - 1) * LANES)
        switch (rows) { TILES(PANELS) }
    else
        for (; left > 0; left -= LANES, w += inputs * LANES, y += LANES)
            switch (rows) { TILES(1) }
}

int lanes(void) { return LANES; }

void linear(
    const float *x, const float *w, float *y, int64_t rows, int64_t inputs, int64_t outputs,
    int threads
) {
    int64_t groups = (rows + MOST_ROWS - 1) / MOST_ROWS, width = PANELS * LANES;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t o = 0; o < outputs; o += width)
        for (int64_t g = 0; g < groups; g++) {
            int64_t first = g * rows / groups, end = (g + 1) * rows / groups;
            int left = outputs - o < width ? (int)(outputs - o) : (int)width;
            tile_of(x + first * inputs, w + o * inputs, y + first * outputs + o, inputs, outputs,
                    left, (int)(end - first));
        }
}
