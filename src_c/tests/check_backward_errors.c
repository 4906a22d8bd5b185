/* Each wrong argument of the backward functions of one dtype is refused with its status, and nothing is written. */
#include "check.h"
#include "check_backward.h"

#include <string.h>

enum { BATCHES = 3, CHANNELS = 6, SPATIAL = 700, GROUPS = 2, N = BATCHES * CHANNELS * SPATIAL, MOST = 32 };
enum { WORKSPACE_BYTES = 1 << 20 };

/* Arrays one behind the other, with room for the largest call at each. Layer and RMS norm take spatial to be 1. */
typedef struct {
    real dx[2 * N], dy[2 * N], x[2 * N], dweight[MOST], dbias[MOST], mean[MOST], rstd[MOST], weight[MOST];
    double workspace[WORKSPACE_BYTES / sizeof(double)];
} arrays;

static arrays before, now;
static int failures;

static backward_call valid_call(op op)
{
    backward_call c = {.dx = now.dx,
                       .dweight = now.dweight,
                       .dbias = now.dbias,
                       .dy = now.dy,
                       .x = now.x,
                       .mean = now.mean,
                       .rstd = now.rstd,
                       .weight = now.weight,
                       .batch = BATCHES,
                       .channels = CHANNELS,
                       .spatial = op == LAYER || op == RMS ? 1 : SPATIAL,
                       .groups = GROUPS,
                       .weight_offset = 1,
                       .layout = CNORM_CHANNELS_LAST,
                       .workspace = now.workspace};
    c.workspace_size = backward_workspace(op, &c);
    return c;
}

static void fail(op op, const char *what, const char *remark)
{
    failures++;
    printf("FAIL %s %s backward, %s: %s\n", DTYPE, op_names[op], what, remark);
}

static void expect(op op, const backward_call *c, cnorm_status wanted, const char *what)
{
    cnorm_status got = run_backward(op, c);
    if (got != wanted)
        fail(op, what, cnorm_status_string(got));
    if (got == CNORM_OK) /* which may use its workspace */
        memcpy(now.workspace, before.workspace, sizeof now.workspace);
    if (memcmp(&now, &before, sizeof now)) {
        fail(op, what, "arrays have been written");
        memcpy(&now, &before, sizeof now);
    }
}

static void check_missing(op op)
{
    const char *const names[] = {"no dy", "no x", "no rstd", "no mean"};
    for (int i = 0; i < (op == RMS ? 3 : 4); i++) {
        backward_call c = valid_call(op);
        const real **arrays[] = {&c.dy, &c.x, &c.rstd, &c.mean};
        *arrays[i] = NULL;
        expect(op, &c, CNORM_ERROR_NULL, names[i]);
        c.dx = c.dweight = c.dbias = NULL;
        expect(op, &c, CNORM_ERROR_NULL, names[i]);
    }
}

/* Each output, moved onto each input by one element from either end; dx may be dy but not lie on a part of it. */
static void check_overlaps(op op)
{
    for (int output = 0; output < 3; output++)
        for (int input = 0; input < (op == RMS ? 4 : 5); input++) {
            backward_call c = valid_call(op);
            real **outputs[] = {&c.dx, &c.dweight, &c.dbias};
            const real *inputs[] = {c.dy, c.x, c.rstd, c.weight, c.mean};
            *outputs[output] = (real *)inputs[input] + 1;
            expect(op, &c, CNORM_ERROR_OVERLAP, "an output overlaps the end of an input");
            *outputs[output] = (real *)inputs[input] - 1;
            expect(op, &c, CNORM_ERROR_OVERLAP, "an output overlaps the beginning of an input");
            *outputs[output] = (real *)inputs[input];
            if (output != 0 || input != 0)
                expect(op, &c, CNORM_ERROR_OVERLAP, "an output is an input");
        }
    backward_call c = valid_call(op);
    c.dbias = c.dweight;
    expect(op, &c, CNORM_ERROR_OVERLAP, "dbias is dweight");
    c = valid_call(op);
    c.dweight = c.dx + 1;
    expect(op, &c, CNORM_ERROR_OVERLAP, "dweight overlaps dx");
    c = valid_call(op);
    c.dbias = c.dx + 1, c.dweight = NULL;
    expect(op, &c, CNORM_ERROR_OVERLAP, "dbias overlaps dx");
}

static void check_workspaces(op op)
{
    backward_call c = valid_call(op);
    if (c.workspace_size == 0 || c.workspace_size > WORKSPACE_BYTES - sizeof(double))
        fail(op, "workspace", "the check wants a call that needs some");
    c.workspace = NULL;
    expect(op, &c, CNORM_ERROR_WORKSPACE, "no workspace");
    c = valid_call(op), c.workspace_size--;
    expect(op, &c, CNORM_ERROR_WORKSPACE, "a workspace too small");
    c = valid_call(op), c.workspace = (char *)c.workspace + 4;
    expect(op, &c, CNORM_ERROR_WORKSPACE, "a workspace not aligned");
}

static void check_scalars(op op)
{
    const size_t too_many[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / CHANNELS / sizeof(real) + 1};
    for (size_t i = 0; i < COUNT_OF(too_many); i++) {
        backward_call c = valid_call(op);
        c.batch = too_many[i];
        expect(op, &c, CNORM_ERROR_VALUE, "more elements than memory");
        if (backward_workspace(op, &c) != 0)
            fail(op, "more elements than memory", "a workspace for them");
    }
    const double offsets[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; op == RMS && i < COUNT_OF(offsets); i++) {
        backward_call c = valid_call(op);
        c.weight_offset = offsets[i];
        expect(op, &c, CNORM_ERROR_VALUE, "weight_offset not finite");
    }
    for (int layout = -1; op != LAYER && op != RMS && layout <= 2; layout += 3) {
        backward_call c = valid_call(op);
        c.layout = (cnorm_layout)layout;
        expect(op, &c, CNORM_ERROR_VALUE, "no layout");
    }
    const size_t groups[] = {0, 4, 7, 12, SIZE_MAX};
    for (size_t i = 0; op == GROUP && i < COUNT_OF(groups); i++) {
        backward_call c = valid_call(op);
        c.groups = groups[i];
        expect(op, &c, CNORM_ERROR_VALUE, "groups do not divide channels");
    }
}

/* What looks like a mistake and is none. */
static void check_allowed(op op)
{
    backward_call c = valid_call(op);
    c.dx = c.dweight = c.dbias = NULL;
    expect(op, &c, CNORM_OK, "no output");
    c.batch = 0;
    c.dy = c.x = c.mean = c.rstd = c.weight = NULL, c.workspace = NULL, c.workspace_size = 0;
    expect(op, &c, CNORM_OK, "empty");
    c.dweight = now.dweight, c.dbias = now.dbias;
    memset(before.dweight, 0, CHANNELS * sizeof(real)), memset(before.dbias, 0, CHANNELS * sizeof(real));
    expect(op, &c, CNORM_OK, "parameter gradients of an empty batch");
}

int CN_DTYPE_NAME(check_backward_errors, CN_REAL)(void)
{
    for (op op = LAYER; op < OPS; op++) {
        real *all = (real *)&before;
        for (size_t i = 0; i < sizeof before / sizeof(real); i++)
            all[i] = (real)(2 + noise());
        memcpy(&now, &before, sizeof now);
        check_missing(op);
        check_overlaps(op);
        check_workspaces(op);
        check_scalars(op);
        check_allowed(op);
    }
    return failures;
}
