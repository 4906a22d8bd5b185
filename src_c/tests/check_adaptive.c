/* AdaIN and adaptive layer norm of one dtype, forward and backward: the baseline against a plain computation, every other
 * level and thread count against the bits of the baseline, and wrong arguments against their status.
 *
 * Both are seen as maps of `spatial` elements, each with a weight and a bias of its own: AdaIN's channels, with standard
 * deviation and mean of the style's; a row's elements, with 1 + scale and shift. Forward units are those of
 * check_kernels.c; a gradient's is u times the largest of its map (of its array: scale and shift).
 */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define UNITS_ALLOWED 6
#define GRADIENT_UNITS 16
#define EPS 1e-5

/* AdaIN: batch, channels, spatial, style_spatial, layout; adaptive layer norm (style_spatial 0): batch, rows, cols. */
typedef struct {
    size_t batch, channels, spatial, style_spatial;
    cnorm_layout layout;
    double offset, scale;
} sizes;

static const sizes cases[] = {
    {3, 5, 35, 70, 0, 1e3, 1},    {3, 5, 35, 70, 1, 1e3, 1}, {2, 3, 70001, 4097, 0, 10, 1},
    {2, 3, 70001, 4097, 1, 0, 1}, {9, 40, 49, 1, 1, 0, 1},   {1, 3, 1, 33, 0, 0, 1},
    {2, 4, 33, 50, 1, 0, 1e28},   {3, 5, 70, 0, 0, 1e4, 1},  {9, 40, 257, 0, 0, -3, 1e-3},
    {1, 2, 90001, 0, 0, 100, 1},  {2, 64, 1152, 0, 0, 0, 1}, {4, 1, 33, 0, 0, 0, 1e30},
};

enum { Y, DX, DSTYLE, DSHIFT, MEAN, RSTD, STYLE_MEAN, STYLE_RSTD, OUTPUTS };

typedef struct {
    size_t n, style_n, maps, size[OUTPUTS], forward_size, backward_size;
    real *x, *style, *shift, *dy, *out[OUTPUTS]; /* style: or scale */
    void *workspace;
} arrays;

static bool is_adain(const sizes *s) { return s->style_spatial > 0; }

static real *random_values(size_t n, double offset, double scale)
{
    real *values = allocate(n * sizeof(real));
    for (size_t i = 0; i < n; i++)
        values[i] = (real)(offset + scale * noise());
    return values;
}

static arrays make_arrays(const sizes *s)
{
    size_t b = s->batch, c = s->channels, n = s->spatial, m = s->style_spatial;
    arrays a = {.n = b * c * n, .style_n = is_adain(s) ? b * c * m : b * n, .maps = b * c};
    a.forward_size = is_adain(s) ? CN_API(adain_forward_workspace)(b, c, n, m, s->layout, s->layout)
                                 : CN_API(ada_layer_norm_forward_workspace)(b, c, n);
    a.backward_size = is_adain(s) ? CN_API(adain_backward_workspace)(b, c, n, m, s->layout, s->layout)
                                  : CN_API(ada_layer_norm_backward_workspace)(b, c, n);
    a.workspace = allocate(a.forward_size > a.backward_size ? a.forward_size : a.backward_size);
    a.x = random_values(a.n, s->offset, s->scale);
    a.style = random_values(a.style_n, is_adain(s) ? -20 : 0, 3);
    a.shift = random_values(a.style_n, 0, 1);
    a.dy = random_values(a.n, 0.1, 1);
    for (int i = 0; i < OUTPUTS; i++) {
        a.size[i] = i <= DX ? a.n : i <= DSHIFT ? a.style_n : a.maps;
        a.out[i] = allocate(a.size[i] * sizeof(real));
    }
    return a;
}

static void free_arrays(arrays *a)
{
    free(a->x), free(a->style), free(a->shift), free(a->dy), free(a->workspace);
    for (int i = 0; i < OUTPUTS; i++)
        free(a->out[i]);
}

static cnorm_status run(const sizes *s, arrays *a)
{
    real **o = a->out;
    for (int i = 0; i < OUTPUTS; i++)
        memset(o[i], 0, a->size[i] * sizeof(real));
    cnorm_status status;
    if (is_adain(s)) {
        status = CN_API(adain_forward)(o[Y], o[MEAN], o[RSTD], o[STYLE_MEAN], o[STYLE_RSTD], a->x, a->style, s->batch,
                                       s->channels, s->spatial, s->style_spatial, EPS, 1, s->layout, s->layout,
                                       a->workspace, a->forward_size);
        return status ? status
                      : CN_API(adain_backward)(o[DX], o[DSTYLE], a->dy, a->x, a->style, o[MEAN], o[RSTD], o[STYLE_RSTD],
                                               s->batch, s->channels, s->spatial, s->style_spatial, 1, s->layout,
                                               s->layout, a->workspace, a->backward_size);
    }
    status = CN_API(ada_layer_norm_forward)(o[Y], o[MEAN], o[RSTD], a->x, a->style, a->shift, s->batch, s->channels,
                                            s->spatial, EPS, a->workspace, a->forward_size);
    return status
               ? status
               : CN_API(ada_layer_norm_backward)(o[DX], o[DSTYLE], o[DSHIFT], a->dy, a->x, o[MEAN], o[RSTD], a->style,
                                                 s->batch, s->channels, s->spatial, a->workspace, a->backward_size);
}

/* Element i of a map of n elements. */
static size_t element(const sizes *s, size_t map, size_t i, size_t n)
{
    size_t c = map % s->channels;
    return s->layout == CNORM_CHANNELS_LAST ? (map - c) * n + i * s->channels + c : map * n + i;
}

typedef struct {
    long double mean, low, std;
    size_t freed; /* what the sum of squares was divided by */
} exact_statistics;

static exact_statistics statistics_of(const sizes *s, const real *x, size_t map, size_t n)
{
    exact_statistics e = {.freed = is_adain(s) && n > 1 ? n - 1 : n};
    long double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        e.mean += x[element(s, map, i, n)] / (long double)n;
    for (size_t i = 0; i < n; i++)
        sum += x[element(s, map, i, n)] - e.mean;
    e.low = sum / (long double)n;
    for (size_t i = 0; i < n; i++) {
        long double d = (x[element(s, map, i, n)] - e.mean) - e.low;
        square += d * d;
    }
    e.std = sqrtl(square / (long double)e.freed + EPS);
    return e;
}

static long double hat(exact_statistics e, real x) { return ((x - e.mean) - e.low) / e.std; }

static void see(double *worst, long double error, long double unit)
{
    double units = error == 0 ? 0 : (double)(error / unit);
    if (!(units <= *worst))
        *worst = units;
}

/* The errors of y and dx of one map, and of AdaIN's dstyle. */
static void check_map(const sizes *s, const arrays *a, size_t map, double *forward, double *backward)
{
    size_t n = s->spatial, m = s->style_spatial, sample = map / s->channels;
    exact_statistics e = statistics_of(s, a->x, map, n), style = {0};
    if (is_adain(s))
        style = statistics_of(s, a->style, map, m);
    long double sum = 0, hat_sum = 0, dy_sum = 0, dy_hat_sum = 0, square = 0, largest = 0;
    long double *g = allocate(n * sizeof *g);
    for (size_t i = 0; i < n; i++) {
        size_t at = element(s, map, i, n), p = sample * n + i;
        long double weight = is_adain(s) ? style.std : (real)(1 + a->style[p]), h = hat(e, a->x[at]);
        long double bias = is_adain(s) ? style.mean + style.low : a->shift[p], size = fabsl(h) > 1 ? fabsl(h) : 1;
        see(forward, fabsl(a->out[Y][at] - (h * weight + bias)), UNIT_ROUNDOFF * (size * fabsl(weight) + fabsl(bias)));
        g[i] = a->dy[at] * weight;
        sum += g[i], hat_sum += g[i] * h, dy_sum += a->dy[at], dy_hat_sum += a->dy[at] * h;
        square += (long double)a->dy[at] * a->dy[at];
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = element(s, map, i, n);
        g[i] = (g[i] - sum / n - hat(e, a->x[at]) * hat_sum / e.freed) / e.std;
        largest = fabsl(g[i]) > largest ? fabsl(g[i]) : largest;
    }
    for (size_t i = 0; i < n; i++)
        see(backward, fabsl(a->out[DX][element(s, map, i, n)] - g[i]), UNIT_ROUNDOFF * largest);
    free(g);
    long double slope = is_adain(s) ? dy_hat_sum / style.freed : 0, average = is_adain(s) ? dy_sum / m : 0;
    for (size_t i = 0; i < m; i++) {
        size_t at = element(s, map, i, m);
        long double dstyle = average + hat(style, a->style[at]) * slope, scale = fabsl(average) + fabsl(slope);
        long double chance = sqrtl(square) / (2 * m); /* of terms that cancel */
        see(backward, fabsl(a->out[DSTYLE][at] - dstyle), UNIT_ROUNDOFF * (scale > chance ? scale : chance));
    }
}

/* Scale's and shift's gradients of one sample, of adaptive layer norm. */
static void check_sample(const sizes *s, const arrays *a, size_t sample, double *worst)
{
    size_t n = s->spatial;
    long double *sums = allocate(2 * n * sizeof *sums), largest[2] = {0};
    memset(sums, 0, 2 * n * sizeof *sums);
    for (size_t row = sample * s->channels; row < (sample + 1) * s->channels; row++) {
        exact_statistics e = statistics_of(s, a->x, row, n);
        for (size_t i = 0; i < n; i++)
            sums[i] += a->dy[row * n + i] * hat(e, a->x[row * n + i]), sums[n + i] += a->dy[row * n + i];
    }
    for (size_t i = 0; i < 2 * n; i++)
        largest[i / n] = fabsl(sums[i]) > largest[i / n] ? fabsl(sums[i]) : largest[i / n];
    for (size_t i = 0; i < 2 * n; i++)
        see(worst, fabsl(a->out[i < n ? DSTYLE : DSHIFT][sample * n + i % n] - sums[i]),
            UNIT_ROUNDOFF * largest[i / n]);
    free(sums);
}

static int check_case(const sizes *s, uint64_t *hash, double *forward, double *backward)
{
    int failures = 0;
    arrays a = make_arrays(s);
    uint64_t baseline = 0;
    for (int variant = 0; choose_variant(variant); variant++) {
        cnorm_status status = run(s, &a);
        uint64_t bits = HASH_START;
        for (int i = 0; i < OUTPUTS; i++)
            bits = hash_bytes(bits, a.out[i], a.size[i] * sizeof(real));
        baseline = variant ? baseline : bits;
        if (status == CNORM_OK && bits == baseline)
            continue;
        failures++;
        printf("FAIL %s adaptive (%zu, %zu, %zu, %zu): %s, %d threads: %s\n", DTYPE, s->batch, s->channels, s->spatial,
               s->style_spatial, cnorm_isa(), cnorm_get_num_threads(), cnorm_status_string(status));
    }
    bool measured = is_measured(a.n);
    for (size_t map = 0; measured && map < a.maps; map++)
        check_map(s, &a, map, forward, backward);
    for (size_t sample = 0; measured && !is_adain(s) && sample < s->batch; sample++)
        check_sample(s, &a, sample, backward);
    *hash = hash_bytes(*hash, &baseline, sizeof baseline);
    free_arrays(&a);
    return failures;
}

static int expect(cnorm_status got, cnorm_status wanted, const char *what)
{
    if (got != wanted)
        printf("FAIL %s adaptive, %s: %s\n", DTYPE, what, cnorm_status_string(got));
    return got != wanted;
}

/* Each wrong argument is refused. */
static int check_errors(void)
{
    enum { N = 8, BYTES = 4096 };
    real x[N] = {1, 2, 3, 4, 5, 6, 7, 8}, s[N] = {1, 2, 3, 4, 5, 6, 7, 8}, y[N], other[N], m[N] = {1, 1};
    double workspace[BYTES / sizeof(double)];
    const cnorm_layout first = CNORM_CHANNELS_FIRST;
    int failures = 0;
#define ADAIN(y, style, m, eps, size)                                                                                  \
    CN_API(adain_forward)(y, NULL, NULL, NULL, NULL, x, style, 1, 2, 4, m, eps, 1, first, first, workspace, size)
    failures += expect(ADAIN(y, s, 4, EPS, BYTES), CNORM_OK, "a call of AdaIN");
    failures += expect(ADAIN(y, s, 4, -1, BYTES), CNORM_ERROR_VALUE, "negative eps");
    failures += expect(ADAIN(y, s, 0, EPS, BYTES), CNORM_ERROR_VALUE, "no style");
    failures += expect(ADAIN(y, NULL, 4, EPS, BYTES), CNORM_ERROR_NULL, "style is NULL");
    failures += expect(ADAIN(s, s, 4, EPS, BYTES), CNORM_ERROR_OVERLAP, "y is style");
    failures += expect(ADAIN(y, s, 4, EPS, 8), CNORM_ERROR_WORKSPACE, "little workspace");
#undef ADAIN
    failures += expect(CN_API(adain_backward)(y, y, x, x, s, m, m, m, 1, 2, 4, 4, 1, first, first, workspace, BYTES),
                       CNORM_ERROR_OVERLAP, "both gradients in one place");
    failures +=
        expect(CN_API(adain_backward)(y, other, x, x, s, m, m, NULL, 1, 2, 4, 4, 1, first, first, workspace, BYTES),
               CNORM_ERROR_NULL, "no rstd of the style");
    failures += expect(CN_API(ada_layer_norm_forward)(y, NULL, NULL, x, NULL, s, 1, 2, 4, EPS, workspace, BYTES),
                       CNORM_ERROR_NULL, "no scale");
    failures += expect(CN_API(ada_layer_norm_forward)(s, NULL, NULL, x, s, m, 1, 2, 4, EPS, workspace, BYTES),
                       CNORM_ERROR_OVERLAP, "y is scale");
    failures += expect(CN_API(ada_layer_norm_backward)(y, other, NULL, x, x, m, m, NULL, 1, 2, 4, workspace, BYTES),
                       CNORM_ERROR_NULL, "backward without scale");
    failures += expect(CN_API(ada_layer_norm_backward)(y, other, other, x, x, m, m, s, 1, 2, 4, workspace, BYTES),
                       CNORM_ERROR_OVERLAP, "two gradients in one place");
    return failures;
}

check_result CN_DTYPE_NAME(check_adaptive, CN_REAL)(void)
{
    check_result result = {check_errors(), HASH_START};
    double forward = 0, backward = 0;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        result.failures += check_case(&cases[i], &result.hash, &forward, &backward);
    result.failures += !(forward <= UNITS_ALLOWED) + !(backward <= GRADIENT_UNITS);
    report_op("adaptive norms", forward, backward, result.hash);
    return result;
}
