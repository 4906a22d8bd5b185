/* The error of a backward pass, against the same formula in a wider type.
 *
 * In units of u times the largest |dx| of the group, or the largest sum of the parameter's array. Where these cancel, to
 * less than half of what their terms would give by chance, the terms are the scale.
 */
#ifndef CN_CHECK_GRADIENT_UNITS_H
#define CN_CHECK_GRADIENT_UNITS_H

#include "check_backward.h"

typedef struct {
    wide mean, correction, rstd, average, slope; /* hat = ((x - mean) - correction) * rstd */
    wide largest_dx, largest_term;
} exact_group;

typedef struct {
    wide weight, bias, weight_squares, bias_squares;
} exact_parameter;

typedef struct {
    const problem *problem;
    const backward_call *call;
    exact_group *groups;
    exact_parameter *parameters;
} exact_gradient;

static inline wide larger(wide a, wide b) { return a > b ? a : b; }

/* hat and g = dy * weight of element i. */
static inline void exact_terms(const exact_gradient *e, size_t i, size_t group, size_t c, wide *hat, wide *g)
{
    const exact_group *k = &e->groups[group];
    const backward_call *call = e->call;
    *hat = (((wide)call->x[i] - k->mean) - k->correction) * k->rstd;
    wide offset = e->problem->op == RMS ? call->weight_offset : 0;
    *g = call->dy[i] * (call->weight ? offset + (wide)call->weight[c] : 1);
}

static inline wide exact_dx(const exact_gradient *e, size_t i, size_t group, size_t c)
{
    const exact_group *k = &e->groups[group];
    wide hat, g;
    exact_terms(e, i, group, c, &hat, &g);
    return k->rstd * (g - k->average - hat * k->slope);
}

/* The statistics: x's own, but in inference those given. */
static inline void exact_statistics(exact_gradient *e, const reference *r, size_t groups, double eps)
{
    for (size_t k = 0; k < groups; k++) {
        wide variance = r[k].count > 0 ? r[k].square / r[k].count + eps : 0;
        e->groups[k] = (exact_group){.mean = r[k].mean, .correction = r[k].correction};
        e->groups[k].rstd = variance > 0 ? 1 / sqrt(variance) : 0;
        if (e->problem->op == INFERENCE)
            e->groups[k] = (exact_group){.mean = e->call->mean[k], .rstd = e->call->rstd[k]};
    }
}

static inline void exact_sums(exact_gradient *e, const reference *r, size_t n)
{
    const op op = e->problem->op;
    size_t k, c;
    for (size_t i = 0; i < n; i++) {
        wide hat, g, dy = e->call->dy[i];
        locate(e->problem, i, &k, &c);
        exact_terms(e, i, k, c, &hat, &g);
        e->groups[k].average += op == RMS || op == INFERENCE ? 0 : g / r[k].count;
        e->groups[k].slope += op == INFERENCE ? 0 : g * hat / r[k].count;
        e->groups[k].largest_term = larger(e->groups[k].largest_term, e->groups[k].rstd * fabs(g));
        exact_parameter *p = &e->parameters[c];
        p->weight += dy * hat, p->weight_squares += dy * hat * dy * hat;
        p->bias += dy, p->bias_squares += dy * dy;
    }
    for (size_t i = 0; i < n; i++) {
        locate(e->problem, i, &k, &c);
        e->groups[k].largest_dx = larger(e->groups[k].largest_dx, fabs(exact_dx(e, i, k, c)));
    }
}

static inline double units(real value, wide exact, wide largest, wide by_chance)
{
    wide scale = largest < by_chance / 2 ? by_chance : largest, error = fabs(value - exact);
    if (error == 0)
        return 0;
    return error > 0 ? (double)(error / (UNIT_ROUNDOFF * scale)) : INFINITY; /* a NaN is infinitely wrong */
}

static inline double dx_units(const exact_gradient *e, size_t n)
{
    double worst = 0;
    for (size_t i = 0, k, c; i < n; i++) {
        locate(e->problem, i, &k, &c);
        const exact_group *g = &e->groups[k];
        worst = fmax(worst, units(e->call->dx[i], exact_dx(e, i, k, c), g->largest_dx, g->largest_term));
    }
    return worst;
}

static inline double parameter_units(const exact_gradient *e)
{
    exact_parameter most = {0};
    double worst = 0;
    for (size_t c = 0; c < e->problem->channels; c++) {
        const exact_parameter *p = &e->parameters[c];
        most.weight = larger(most.weight, fabs(p->weight));
        most.bias = larger(most.bias, fabs(p->bias));
        most.weight_squares = larger(most.weight_squares, p->weight_squares);
        most.bias_squares = larger(most.bias_squares, p->bias_squares);
    }
    for (size_t c = 0; c < e->problem->channels; c++) {
        const exact_parameter *p = &e->parameters[c];
        worst = fmax(worst, units(e->call->dweight[c], p->weight, most.weight, sqrt(most.weight_squares)));
        worst = fmax(worst, units(e->call->dbias[c], p->bias, most.bias, sqrt(most.bias_squares)));
    }
    return worst;
}

/* Of all three gradients of a call that has been made; r: the statistics of x. */
static inline double worst_gradient_units(const problem *p, const backward_call *call, const reference *r, double eps)
{
    size_t n = count_elements(p), groups = count_groups(p);
    exact_gradient e = {p, call, allocate(groups * sizeof *e.groups), allocate(p->channels * sizeof *e.parameters)};
    for (size_t c = 0; c < p->channels; c++)
        e.parameters[c] = (exact_parameter){0};
    exact_statistics(&e, r, groups, eps);
    exact_sums(&e, r, n);
    double worst = fmax(dx_units(&e, n), parameter_units(&e));
    free(e.groups), free(e.parameters);
    return worst;
}

#endif
