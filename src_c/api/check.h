/* Argument checks of the public functions. Each says what is wrong with one kind of argument, or CNORM_OK. */
#ifndef CN_CHECK_H
#define CN_CHECK_H

#include "../cnorm.h"
#include "../table.h"

#include <math.h>
#include <stdint.h>

#define CN_API(name) CN_DTYPE_NAME(cnorm_##name, CN_REAL)
#define CN_KERNELS CN_DTYPE_NAME(cn_kernels, CN_REAL)()

/* a * b * c elements of real, or SIZE_MAX if that is not a size in bytes. */
static inline size_t element_count(size_t a, size_t b, size_t c)
{
    if (a == 0 || b == 0 || c == 0)
        return 0;
    if (a > SIZE_MAX / sizeof(real) / b || a * b > SIZE_MAX / sizeof(real) / c)
        return SIZE_MAX;
    return a * b * c;
}

static inline cnorm_status check_eps(double eps) { return eps >= 0 && isfinite(eps) ? CNORM_OK : CNORM_ERROR_VALUE; }

static inline cnorm_status check_layout(cnorm_layout layout)
{
    return layout == CNORM_CHANNELS_FIRST || layout == CNORM_CHANNELS_LAST ? CNORM_OK : CNORM_ERROR_VALUE;
}

static inline bool apart(const real *a, size_t n, const real *b, size_t m)
{
    uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return !a || !b || p + n * sizeof(real) <= q || q + m * sizeof(real) <= p;
}

/* Running statistics come in pairs; they are updated, so they may overlap neither each other nor a parameter. */
static inline cnorm_status check_running(const real *mean, const real *var, double momentum, const real *weight,
                                         const real *bias, size_t channels)
{
    if (!mean != !var)
        return CNORM_ERROR_NULL;
    if (mean && !isfinite(momentum))
        return CNORM_ERROR_VALUE;
    bool clear = apart(mean, channels, var, channels);
    for (int i = 0; i < 2; i++)
        clear &= apart(i ? var : mean, channels, weight, channels) && apart(i ? var : mean, channels, bias, channels);
    return clear ? CNORM_OK : CNORM_ERROR_OVERLAP;
}

/* The arrays every forward has: y and x of n elements, weight and bias of `parameters`. */
static inline cnorm_status check_arrays(const real *y, const real *x, size_t n, const real *weight, const real *bias,
                                        size_t parameters)
{
    if (n == SIZE_MAX)
        return CNORM_ERROR_VALUE;
    if (n && (!y || !x))
        return CNORM_ERROR_NULL;
    if ((y != x && !apart(y, n, x, n)) || !apart(y, n, weight, parameters) || !apart(y, n, bias, parameters))
        return CNORM_ERROR_OVERLAP;
    return CNORM_OK;
}

/* An array of statistics that is written: it may not touch y or x. */
static inline cnorm_status check_statistics(const real *s, size_t m, const real *y, const real *x, size_t n)
{
    return apart(s, m, y, n) && apart(s, m, x, n) ? CNORM_OK : CNORM_ERROR_OVERLAP;
}

static inline cnorm_status check_workspace(const void *workspace, size_t size, size_t needed)
{
    if (needed == 0)
        return CNORM_OK;
    return workspace && size >= needed && (uintptr_t)workspace % sizeof(double) == 0 ? CNORM_OK : CNORM_ERROR_WORKSPACE;
}

/* The first that is not CNORM_OK. */
static inline cnorm_status first_error(const cnorm_status *checks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (checks[i] != CNORM_OK)
            return checks[i];
    return CNORM_OK;
}

#define FIRST_ERROR(...)                                                                                               \
    first_error((const cnorm_status[]){__VA_ARGS__}, sizeof((const cnorm_status[]){__VA_ARGS__}) / sizeof(cnorm_status))

static inline cn_work plan_forward(size_t n) { return cn_plan_work(2 * n * sizeof(real), n * sizeof(real)); }

#endif
