/* The check program of the boards: every vector through the library, the worst error of each op in units and a hash of
 * the bits that came out. The exit status is 1 if an error is beyond the promise. Runs on the host as well, for the hash.
 */
#include "cnorm.h"
#include "vector.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FORWARD_UNITS 6
#define BACKWARD_UNITS 16
#define ELEMENTS_MOST 512
#define WORKSPACE_BYTES 16384
#define HASH_START 0xcbf29ce484222325u

/* y, mean, rstd; or dx, dweight, dbias. */
static float out[3][ELEMENTS_MOST];
static double workspace[WORKSPACE_BYTES / sizeof(double)];
static const size_t size = WORKSPACE_BYTES;

static cnorm_status layer_norm(const vector *v)
{
    return cnorm_layer_norm_forward_f32(out[0], out[1], out[2], v->x, v->weight, v->bias, v->batch, v->channels, v->eps,
                                        workspace, size);
}

static cnorm_status layer_norm_backward(const vector *v)
{
    return cnorm_layer_norm_backward_f32(out[0], out[1], out[2], v->dy, v->x, v->mean, v->rstd, v->weight, v->batch,
                                         v->channels, workspace, size);
}

static cnorm_status rms_norm(const vector *v)
{
    return cnorm_rms_norm_forward_f32(out[0], out[2], v->x, v->weight, v->bias, v->batch, v->channels, v->eps,
                                      v->weight_offset, workspace, size);
}

static cnorm_status rms_norm_backward(const vector *v)
{
    return cnorm_rms_norm_backward_f32(out[0], out[1], out[2], v->dy, v->x, v->rstd, v->weight, v->batch, v->channels,
                                       v->weight_offset, workspace, size);
}

static cnorm_status group_norm(const vector *v)
{
    return cnorm_group_norm_forward_f32(out[0], out[1], out[2], v->x, v->weight, v->bias, v->batch, v->channels,
                                        v->spatial, v->groups, v->eps, v->layout, workspace, size);
}

static cnorm_status group_norm_backward(const vector *v)
{
    return cnorm_group_norm_backward_f32(out[0], out[1], out[2], v->dy, v->x, v->mean, v->rstd, v->weight, v->batch,
                                         v->channels, v->spatial, v->groups, v->layout, workspace, size);
}

static cnorm_status instance_norm(const vector *v)
{
    return cnorm_instance_norm_forward_f32(out[0], out[1], out[2], NULL, NULL, v->x, v->weight, v->bias, v->batch,
                                           v->channels, v->spatial, v->eps, 0, v->layout, workspace, size);
}

static cnorm_status instance_norm_backward(const vector *v)
{
    return cnorm_instance_norm_backward_f32(out[0], out[1], out[2], v->dy, v->x, v->mean, v->rstd, v->weight, v->batch,
                                            v->channels, v->spatial, v->layout, workspace, size);
}

static cnorm_status batch_norm(const vector *v)
{
    return cnorm_batch_norm_forward_f32(out[0], out[1], out[2], NULL, NULL, v->x, v->weight, v->bias, v->batch,
                                        v->channels, v->spatial, v->eps, 0, 1, v->layout, workspace, size);
}

static cnorm_status batch_norm_backward(const vector *v)
{
    return cnorm_batch_norm_backward_f32(out[0], out[1], out[2], v->dy, v->x, v->mean, v->rstd, v->weight, v->batch,
                                         v->channels, v->spatial, 1, v->layout, workspace, size);
}

static cnorm_status batch_norm_inference(const vector *v)
{
    return cnorm_batch_norm_inference_f32(out[0], v->x, v->mean, v->rstd, v->weight, v->bias, v->batch, v->channels,
                                          v->spatial, v->eps, v->layout, workspace, size);
}

static const struct {
    const char *name;
    cnorm_status (*run)(const vector *v);
    double allowed; /* units */
} ops[] = {
    {"layer_norm", layer_norm, FORWARD_UNITS},
    {"rms_norm", rms_norm, FORWARD_UNITS},
    {"group_norm", group_norm, FORWARD_UNITS},
    {"instance_norm", instance_norm, FORWARD_UNITS},
    {"batch_norm", batch_norm, FORWARD_UNITS},
    {"batch_norm_inference", batch_norm_inference, FORWARD_UNITS},
    {"layer_norm_backward", layer_norm_backward, BACKWARD_UNITS},
    {"rms_norm_backward", rms_norm_backward, BACKWARD_UNITS},
    {"group_norm_backward", group_norm_backward, BACKWARD_UNITS},
    {"instance_norm_backward", instance_norm_backward, BACKWARD_UNITS},
    {"batch_norm_backward", batch_norm_backward, BACKWARD_UNITS},
};
#define OPS (sizeof ops / sizeof ops[0])

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

/* Infinite for a NaN. */
static double worst_units(const float *values, const expected *e, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double error = fabs(values[i] - e[i].exact), units = error > 0 ? error / e[i].unit - e[i].slack : error;
        if (!(units <= worst))
            worst = units == units ? units : INFINITY;
    }
    return worst;
}

static int check_op(size_t op, uint64_t *all)
{
    int failures = 0;
    size_t count = 0;
    double worst = 0;
    uint64_t hash = HASH_START;
    for (const vector *v = vectors; v < vectors + vector_count; v++) {
        if (strcmp(v->op, ops[op].name) != 0)
            continue;
        memset(out, 0, sizeof out);
        cnorm_status status = ops[op].run(v);
        double here = 0;
        for (int o = 0; o < 3 && v->out[o]; o++) {
            double units = worst_units(out[o], v->out[o], o ? v->channels : v->batch * v->channels * v->spatial);
            here = units > here ? units : here;
        }
        hash = hash_bytes(hash, out, sizeof out);
        worst = here > worst ? here : worst;
        count++;
        if (status != CNORM_OK || !(here <= ops[op].allowed)) {
            failures++;
            printf("FAIL %s (%u, %u, %u) layout %d, %s: %s, %.2f units\n", v->op, (unsigned)v->batch,
                   (unsigned)v->channels, (unsigned)v->spatial, v->layout, v->data, cnorm_status_string(status), here);
        }
    }
    printf("%-24s %3u vectors  worst %5.2f units  hash %08x%08x\n", ops[op].name, (unsigned)count, worst,
           (unsigned)(hash >> 32), (unsigned)hash);
    *all = hash_bytes(*all, &hash, sizeof hash);
    return failures + (count == 0);
}

static int check_fixed_point(uint64_t *all)
{
    static int8_t y[ELEMENTS_MOST * 2];
    int failures = 0;
    double worst = 0;
    uint64_t hash = HASH_START;
    for (const vector_s8 *v = vectors_s8; v < vectors_s8 + vector_s8_count; v++) {
        cnorm_norm_s8 norm;
        cnorm_status status =
            cnorm_norm_s8_setup(&norm, v->cols, v->eps, v->input_scale, v->input_zero_point, v->weight_scale,
                                v->bias_scale, v->output_scale, v->output_zero_point);
        if (status == CNORM_OK)
            status = (strcmp(v->op, "layer_norm_s8") == 0 ? cnorm_layer_norm_s8 : cnorm_rms_norm_s8)(
                y, v->x, v->weight, v->bias, v->rows, &norm);
        failures += status != CNORM_OK;
        for (size_t i = 0; i < v->rows * v->cols; i++) {
            double steps = fabs(y[i] - (double)v->exact[i]);
            worst = steps > worst ? steps : worst;
        }
        hash = hash_bytes(hash, y, v->rows * v->cols);
    }
    printf("%-24s %3u vectors  worst %5.3f steps  hash %08x%08x\n", "layer_norm_s8, rms_norm_s8",
           (unsigned)vector_s8_count, worst, (unsigned)(hash >> 32), (unsigned)hash);
    *all = hash_bytes(*all, &hash, sizeof hash);
    return failures + !(worst < 1);
}

int main(void)
{
    int failures = 0;
    uint64_t hash = HASH_START;
    for (size_t op = 0; op < OPS; op++)
        failures += check_op(op, &hash);
    failures += check_fixed_point(&hash);
    printf("%s: %d failures, hash %08x%08x\n", failures ? "FAIL" : "PASS", failures, (unsigned)(hash >> 32),
           (unsigned)hash);
    return failures != 0;
}
