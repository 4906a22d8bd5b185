/* Test vectors of the check program: vectors.py writes an array of them with exact results. */
#ifndef CN_VECTOR_H
#define CN_VECTOR_H

#include <stddef.h>
#include <stdint.h>

/* What an output's element should be, and what its error is counted in. `slack` is what the spacing of subnormal numbers
 * excuses, in units. */
typedef struct {
    double exact, unit;
    float slack;
} expected;

typedef struct {
    const char *op, *data;
    size_t batch, channels, spatial, groups;
    int layout;
    double eps, weight_offset;
    const float *x, *weight, *bias, *dy, *mean, *rstd; /* of batch norm inference, rstd is the variance */
    const expected *out[3];                            /* y; or dx, dweight, dbias */
} vector;

typedef struct {
    const char *op;
    size_t rows, cols;
    double eps, input_scale, weight_scale, bias_scale, output_scale;
    int input_zero_point, output_zero_point;
    const int8_t *x;
    const int16_t *weight;
    const int32_t *bias;
    const float *exact; /* steps, before rounding */
} vector_s8;

extern const vector vectors[];
extern const size_t vector_count;
extern const vector_s8 vectors_s8[];
extern const size_t vector_s8_count;

#endif
