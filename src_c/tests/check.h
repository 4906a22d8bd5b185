/* What the parts of the check program have to offer, compiled for each dtype. */
#ifndef CN_CHECK_PROGRAM_H
#define CN_CHECK_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int failures;
    uint64_t hash; /* of the bits of every output of the baseline */
} check_result;

/* Fewer threads and choices of outputs, and no errors of large arrays: for emulators. The hashes are the same. */
extern bool check_is_quick;

check_result check_kernels_f32(void);
check_result check_kernels_f64(void);

check_result check_backward_f32(void);
check_result check_backward_f64(void);

check_result check_adaptive_f32(void);
check_result check_adaptive_f64(void);

check_result check_spade_f32(void);
check_result check_spade_f64(void);

check_result check_whiten_f32(void);
check_result check_whiten_f64(void);

int check_backward_errors_f32(void); /* failures */
int check_backward_errors_f64(void);

check_result check_sync_batch_norm_f32(void);
check_result check_sync_batch_norm_f64(void);

check_result check_vectors_f32(void);
check_result check_vectors_f64(void);

check_result check_spectral_norm_f32(void);
check_result check_spectral_norm_f64(void);

int check_cosine_norm_f32(void); /* failures */
int check_cosine_norm_f64(void);

int check_fixed(void); /* failures */

#endif
