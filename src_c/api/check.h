/* Argument checks of the public functions. Each says what is wrong with one kind of argument, or CNORM_OK. */
#ifndef CN_CHECK_H
#define CN_CHECK_H

#include "../cnorm.h"
#include "../table.h"

#include <math.h>
#include <stdint.h>

#define CN_API(name) CN_DTYPE_NAME(cnorm_##name, CN_REAL)

/* A library of one level is built with -DCN_ONE_LEVEL=1 and that level's CN_ISA here too. The table is a constant of each
 * file then: calls go straight to the kernels, and the linker keeps those alone that a program calls. */
#ifdef CN_ONE_LEVEL
#define CN_TABLE_LINKAGE static
#include "../kernels/table.c"
#define CN_KERNELS (&CN(table))
#else
#define CN_KERNELS CN_DTYPE_NAME(cn_kernels, CN_REAL)()
#endif

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

static inline cnorm_status check_count(size_t n) { return n != SIZE_MAX ? CNORM_OK : CNORM_ERROR_VALUE; }

static inline cnorm_status check_layout(cnorm_layout layout)
{
    return layout == CNORM_CHANNELS_FIRST || layout == CNORM_CHANNELS_LAST ? CNORM_OK : CNORM_ERROR_VALUE;
}

/* One element a channel in space is the same array in either layout: the channels-last kernels take it. */
static inline bool as_last(size_t spatial, cnorm_layout layout)
{
    return layout == CNORM_CHANNELS_LAST || spatial == 1;
}

/* Whether the channels can be cut into groups of one size. */
static inline bool divides(size_t groups, size_t channels) { return groups > 0 && channels % groups == 0; }

/* Running statistics come in pairs. */
static inline cnorm_status check_running(const real *mean, const real *var, double momentum)
{
    if (!mean != !var)
        return CNORM_ERROR_NULL;
    return !mean || isfinite(momentum) ? CNORM_OK : CNORM_ERROR_VALUE;
}

/* Arrays of a call. Absent ones have no data. */
typedef struct {
    const real *data;
    size_t n;
} region;

static inline bool overlaps(region a, region b)
{
    uintptr_t p = (uintptr_t)a.data, q = (uintptr_t)b.data;
    return a.data && b.data && p < q + b.n * sizeof(real) && q < p + a.n * sizeof(real);
}

/* y is x or apart from it; y and the other arrays that are written are apart from each other, from x and from the arrays
 * that are only read. */
static inline cnorm_status check_overlaps(region y, region x, const region *written, size_t n_written,
                                          const region *read, size_t n_read)
{
    bool clear = y.data == x.data || !overlaps(y, x);
    for (size_t r = 0; r < n_read; r++)
        clear &= !overlaps(y, read[r]);
    for (size_t w = 0; w < n_written; w++) {
        clear &= !overlaps(written[w], y) && !overlaps(written[w], x);
        for (size_t r = 0; r < n_read; r++)
            clear &= !overlaps(written[w], read[r]);
        for (size_t v = 0; v < w; v++)
            clear &= !overlaps(written[w], written[v]);
    }
    return clear ? CNORM_OK : CNORM_ERROR_OVERLAP;
}

/* y and x are there, and nothing overlaps. */
static inline cnorm_status check_arrays(region y, region x, const region *written, size_t n_written, const region *read,
                                        size_t n_read)
{
    if (y.n && (!y.data || !x.data))
        return CNORM_ERROR_NULL;
    return check_overlaps(y, x, written, n_written, read, n_read);
}

/* Numbers of double (n of them) beside an array of m elements: one of the two is written. */
static inline cnorm_status check_apart(const double *numbers, size_t n, const real *data, size_t m)
{
    uintptr_t p = (uintptr_t)numbers, q = (uintptr_t)data;
    bool overlap = numbers && data && p < q + m * sizeof(real) && q < p + n * sizeof(double);
    return overlap ? CNORM_ERROR_OVERLAP : CNORM_OK;
}

/* The arrays of a backward pass: n elements, statistics and parameters. dx, dweight and dbias may be absent. */
typedef struct {
    const real *dx, *dweight, *dbias, *dy, *x, *mean, *rstd, *weight;
    bool centred; /* there is a mean */
    size_t n, statistics, parameters;
} gradient_arrays;

static inline cnorm_status check_gradient(gradient_arrays a)
{
    const region written[] = {{a.dweight, a.parameters}, {a.dbias, a.parameters}};
    const region read[] = {{a.x, a.n}, {a.mean, a.statistics}, {a.rstd, a.statistics}, {a.weight, a.parameters}};
    if (a.n && (!a.dy || !a.x || !a.rstd || (a.centred && !a.mean)))
        return CNORM_ERROR_NULL;
    return check_overlaps((region){a.dx, a.n}, (region){a.dy, a.n}, written, 2, read, 4);
}

static inline cnorm_status check_workspace(const void *workspace, size_t size, size_t needed)
{
    if (needed == 0)
        return CNORM_OK;
    return workspace && size >= needed && (uintptr_t)workspace % sizeof(double) == 0 ? CNORM_OK : CNORM_ERROR_WORKSPACE;
}

/* Leaves the calling function with the status of a check that fails. */
#define CN_CHECK(check)                                                                                                \
    do {                                                                                                               \
        cnorm_status status = (check);                                                                                 \
        if (status != CNORM_OK)                                                                                        \
            return status;                                                                                             \
    } while (0)

static inline cn_work plan_forward(size_t n) { return cn_plan_work(2 * n * sizeof(real), n * sizeof(real)); }

static inline cn_work plan_backward(size_t n, const real *dx)
{
    return cn_plan_work((dx ? 3 : 2) * n * sizeof(real), dx ? n * sizeof(real) : 0);
}

#endif
