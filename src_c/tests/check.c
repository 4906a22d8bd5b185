/* make check: every kernel on every ISA level this CPU runs and with several threads, without Python.
 *
 * The files check_*.c, compiled once per dtype, compare results, and fixed.c those of the fixed-point norms. Each of the
 * newer ones has the errors of its ops' arguments too; check_backward_errors.c has those of the older backward functions, and
 * this file those of the older forward ones, the report and the status.
 */
#include "check.h"
#include "cnorm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool check_is_quick = false;

static int failures = 0;

static void expect(cnorm_status got, cnorm_status wanted, const char *what)
{
    if (got == wanted)
        return;
    failures++;
    printf("FAIL %s: got \"%s\", expected \"%s\"\n", what, cnorm_status_string(got), cnorm_status_string(wanted));
}

/* Each wrong argument is refused, and nothing is written. */
static void check_errors(void)
{
    enum { N = 8 };
    float x[N] = {1, 2, 3, 4, 5, 6, 7, 8}, y[N] = {0}, mean[N] = {0}, var[N] = {0};
    double workspace[4096];
    size_t size = sizeof workspace;
    expect(cnorm_layer_norm_forward_f32(y, NULL, NULL, x, NULL, NULL, 2, 4, -1, workspace, size), CNORM_ERROR_VALUE,
           "negative eps");
    expect(cnorm_layer_norm_forward_f32(y, NULL, NULL, x, NULL, NULL, 2, 4, NAN, workspace, size), CNORM_ERROR_VALUE,
           "eps not a number");
    expect(cnorm_layer_norm_forward_f32(y, NULL, NULL, NULL, NULL, NULL, 2, 4, 0, workspace, size), CNORM_ERROR_NULL,
           "no x");
    expect(cnorm_layer_norm_forward_f32(x + 1, NULL, NULL, x, NULL, NULL, 1, 4, 0, workspace, size),
           CNORM_ERROR_OVERLAP, "y overlaps x");
    expect(cnorm_layer_norm_forward_f32(y, y, NULL, x, NULL, NULL, 2, 4, 0, workspace, size), CNORM_ERROR_OVERLAP,
           "mean overlaps y");
    expect(cnorm_layer_norm_forward_f32(y, mean, mean, x, NULL, NULL, 2, 4, 0, workspace, size), CNORM_ERROR_OVERLAP,
           "mean is rstd");
    expect(cnorm_layer_norm_forward_f32(y, mean, NULL, x, mean, NULL, 2, 4, 0, workspace, size), CNORM_ERROR_OVERLAP,
           "mean overlaps weight");
    expect(cnorm_batch_norm_forward_f32(y, NULL, NULL, NULL, NULL, x, NULL, NULL, 2, SIZE_MAX / 128, 64, 0, 0, 1,
                                        CNORM_CHANNELS_LAST, workspace, size),
           CNORM_ERROR_VALUE, "more channels than memory");
    expect(cnorm_layer_norm_forward_f32(y, NULL, NULL, x, NULL, NULL, SIZE_MAX / 2, 4, 0, workspace, size),
           CNORM_ERROR_VALUE, "more elements than memory");
    expect(cnorm_group_norm_forward_f32(y, NULL, NULL, x, NULL, NULL, 1, 4, 2, 3, 0, CNORM_CHANNELS_FIRST, workspace,
                                        size),
           CNORM_ERROR_VALUE, "groups do not divide channels");
    expect(cnorm_group_norm_forward_f32(y, NULL, NULL, x, NULL, NULL, 1, 4, 2, 0, 0, CNORM_CHANNELS_FIRST, workspace,
                                        size),
           CNORM_ERROR_VALUE, "no groups");
    expect(cnorm_batch_norm_forward_f32(y, NULL, NULL, NULL, NULL, x, NULL, NULL, 1, 8, 1, 0, 0, 1,
                                        CNORM_CHANNELS_FIRST, workspace, size),
           CNORM_ERROR_VALUE, "one value a channel");
    expect(cnorm_batch_norm_forward_f32(y, NULL, NULL, mean, NULL, x, NULL, NULL, 2, 4, 1, 0, 0, 1,
                                        CNORM_CHANNELS_FIRST, workspace, size),
           CNORM_ERROR_NULL, "running_mean alone");
    expect(cnorm_batch_norm_forward_f32(y, mean, NULL, mean, var, x, NULL, NULL, 2, 4, 1, 0, 0, 1, CNORM_CHANNELS_FIRST,
                                        workspace, size),
           CNORM_ERROR_OVERLAP, "mean is running_mean");
    expect(cnorm_batch_norm_forward_f32(y, NULL, NULL, mean, var, x, NULL, NULL, 2, 4, 1, 0, 0, 1, CNORM_CHANNELS_FIRST,
                                        NULL, 0),
           CNORM_ERROR_WORKSPACE, "no workspace");
    expect(cnorm_instance_norm_forward_f32(y, NULL, NULL, mean, var, x, NULL, NULL, 2, 4, 1, 0, 0, CNORM_CHANNELS_FIRST,
                                           workspace, size),
           CNORM_ERROR_VALUE, "running statistics of one position");
    expect(
        cnorm_batch_norm_inference_f32(y, x, NULL, var, NULL, NULL, 2, 4, 1, 0, CNORM_CHANNELS_FIRST, workspace, size),
        CNORM_ERROR_NULL, "inference without a mean");
    expect(cnorm_spade_inference_f32(y, x, mean, var, x, (cnorm_strides){8, 2, 2}, x, (cnorm_strides){0}, 1, 4, 2, 0, 1,
                                     CNORM_CHANNELS_FIRST, workspace, size),
           CNORM_ERROR_VALUE, "gamma with gaps");
    expect(cnorm_spade_inference_f32(y, x, mean, var, x, (cnorm_strides){0}, y, (cnorm_strides){0}, 1, 4, 2, 0, 1,
                                     CNORM_CHANNELS_FIRST, workspace, size),
           CNORM_ERROR_OVERLAP, "y overlaps beta");
    expect(cnorm_spade_backward_f32(y, y, NULL, x, x, mean, var, x, (cnorm_strides){0}, 1, 4, 2, 0, 1, 1,
                                    CNORM_CHANNELS_FIRST, workspace, size),
           CNORM_ERROR_OVERLAP, "dgamma is dx");
    expect(cnorm_set_isa("sse9"), CNORM_ERROR_ISA, "unknown level");
    expect(cnorm_set_num_threads(0), CNORM_ERROR_VALUE, "no threads");
    expect(cnorm_layer_norm_forward_f32(NULL, NULL, NULL, NULL, NULL, NULL, 0, 4, 0, NULL, 0), CNORM_OK, "empty");
    static const float zeros[N];
    if (memcmp(y, zeros, sizeof y) || memcmp(mean, zeros, sizeof mean) || memcmp(var, zeros, sizeof var)) {
        failures++;
        printf("FAIL a refused call has written\n");
    }
}

static void report(const char *pass, check_result f32, check_result f64)
{
    failures += f32.failures + f64.failures;
    printf("hash, %s: f32 %016llx f64 %016llx\n", pass, (unsigned long long)f32.hash, (unsigned long long)f64.hash);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* emulators take their time from line to line */
    check_is_quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    printf("cnorm %s, %s, levels:", cnorm_version(), cnorm_compiler());
    for (int i = 0; cnorm_isa_level(i); i++)
        printf(" %s", cnorm_isa_level(i));
    printf("\n");
    check_errors();
    failures += check_backward_errors_f32() + check_backward_errors_f64();
    check_result f32 = check_kernels_f32(), f64 = check_kernels_f64();
    report("forward", f32, f64);
    f32 = check_backward_f32(), f64 = check_backward_f64();
    report("backward", f32, f64);
    f32 = check_adaptive_f32(), f64 = check_adaptive_f64();
    report("adaptive", f32, f64);
    f32 = check_spade_f32(), f64 = check_spade_f64();
    report("spade", f32, f64);
    f32 = check_sync_batch_norm_f32(), f64 = check_sync_batch_norm_f64();
    report("batch norm over ranks", f32, f64);
    f32 = check_whiten_f32(), f64 = check_whiten_f64();
    report("whiten", f32, f64);
    f32 = check_spectral_norm_f32(), f64 = check_spectral_norm_f64();
    report("spectral norm", f32, f64);
    failures += check_fixed();
    f32 = check_vectors_f32(), f64 = check_vectors_f64();
    report("vectors", f32, f64);
    failures += check_cosine_norm_f32() + check_cosine_norm_f64();
    printf("%s: %d failures\n", failures ? "FAIL" : "PASS", failures);
    return failures != 0;
}
