/* The operators between products, in float32; rows are contiguous unless a stride is given. */

#include <math.h>
#include <stdint.h>

#include "exponential.h"

static inline void norm_row(const float *x, const float *weight, float *out, int64_t n, float eps) {
    float squares = 0.0f;
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    float scale = 1.0f / sqrtf(squares / (float)n + eps);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

/* Rows take the rows of `weights` in turn: one for all, or one for each head. */
void rms_norm(
    const float *x, const float *weights, float *out, int64_t rows, int64_t n, int64_t weight_rows,
    float eps
) {
    for (int64_t r = 0; r < rows; r++)
        norm_row(x + r * n, weights + r % weight_rows * n, out + r * n, n, eps);
}

void add_norm(
    const float *x, const float *delta, const float *weight, float *sum, float *out, int64_t rows,
    int64_t n, float eps
) {
    for (int64_t r = 0; r < rows; r++) {
        float *row = sum + r * n;
        for (int64_t i = 0; i < n; i++) row[i] = x[r * n + i] + delta[r * n + i];
        norm_row(row, weight, out + r * n, n, eps);
    }
}

/* Element i turns with element i + width / 2; the first half of `sines` is negative. */
void rotate(
    const float *x, const float *cosines, const float *sines, float *out, int64_t rows,
    int64_t row_stride, int64_t heads, int64_t width
) {
    int64_t half = width / 2;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++) {
            const float *from = x + r * row_stride + h * width;
            const float *cosine = cosines + r * width, *sine = sines + r * width;
            float *to = out + (r * heads + h) * width;
            for (int64_t i = 0; i < half; i++) {
                to[i] = from[i] * cosine[i] + from[i + half] * sine[i];
                to[i + half] = from[i + half] * cosine[i + half] + from[i] * sine[i + half];
            }
        }
}

void swiglu(const float *gate_up, float *out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) {
        const float *gate = gate_up + 2 * r * n, *up = gate + n;
        for (int64_t i = 0; i < n; i++)
            out[r * n + i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
    }
}
