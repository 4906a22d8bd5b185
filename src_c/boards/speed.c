/* Instructions per element of the row norms, where qemu counts them: -icount shift=0 lets a nanosecond pass with each, and
 * SysTick runs at 25 MHz on these boards. Instructions are not cycles, but tell soft floating point from none.
 */
#include "cnorm.h"

#include <stdio.h>

#define ROWS 8
#ifndef COLS
#define COLS 256
#endif
#define INSTRUCTIONS_PER_TICK 40
#define SYSTICK_START 0xffffffu
#define SYSTICK ((volatile uint32_t *)0xe000e010)

static float x[ROWS * COLS], y[ROWS * COLS], weight[COLS], bias[COLS];
static int8_t x8[ROWS * COLS], y8[ROWS * COLS];
static int16_t weight16[COLS];
static int32_t bias32[COLS];
static cnorm_norm_s8 norm;
static cnorm_status status;

static void layer_norm(void)
{
    status |= cnorm_layer_norm_forward_f32(y, NULL, NULL, x, weight, bias, ROWS, COLS, 1e-5, NULL, 0);
}

static void rms_norm(void)
{
    status |= cnorm_rms_norm_forward_f32(y, NULL, x, weight, NULL, ROWS, COLS, 1e-5, 0, NULL, 0);
}
static void layer_norm_s8(void) { status |= cnorm_layer_norm_s8(y8, x8, weight16, bias32, ROWS, &norm); }
static void rms_norm_s8(void) { status |= cnorm_rms_norm_s8(y8, x8, weight16, NULL, ROWS, &norm); }

static void report(const char *name, void (*call)(void))
{
    SYSTICK[0] = 0;
    SYSTICK[1] = SYSTICK_START;
    SYSTICK[2] = 0; /* begins at SYSTICK_START */
    SYSTICK[0] = 5; /* on, the processor's clock */
    call();
    uint32_t ticks = SYSTICK_START - SYSTICK[2];
    printf("%-14s %4u instructions per element\n", name, (unsigned)(ticks * INSTRUCTIONS_PER_TICK / (ROWS * COLS)));
}

int main(void)
{
    uint32_t random = 1;
    for (int i = 0; i < ROWS * COLS; i++) {
        random = random * 1664525u + 1013904223u;
        x8[i] = (int8_t)(random >> 24);
        x[i] = (float)x8[i] / 64 + 1;
        weight[i % COLS] = 1, weight16[i % COLS] = 8192;
    }
    status = cnorm_norm_s8_setup(&norm, COLS, 1e-5, 0.02, 0, 1.0 / 8192, 1e-6, 0.03, 0);
    report("layer_norm", layer_norm);
    report("rms_norm", rms_norm);
    report("layer_norm_s8", layer_norm_s8);
    report("rms_norm_s8", rms_norm_s8);
    return status != CNORM_OK;
}
