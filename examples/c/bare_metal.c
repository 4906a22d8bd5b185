/* Layer norm without an operating system: static memory, no heap, no stdio. On a board, main is what the start-up code
 * calls; here its status tells whether the rows came out normalised.
 *
 *     arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -O3 -c cnorm.c bare_metal.c
 */
#include "cnorm.h"

enum { ROWS = 4, COLS = 64 };

/* Rows so short need no workspace on any machine; longer ones ask for some, and 8 bytes of alignment. */
static double workspace[1];
static float activations[ROWS][COLS], mean[ROWS], rstd[ROWS];
static const float eps = 1e-5f;

/* Stands for a sensor, or the layer before. */
static void fill(void)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            activations[r][c] = 1000.0f * (float)r + (float)(c * c % 17);
}

/* A normalised row has the sum 0 and the sum of squares COLS, but for rounding and eps. */
static int is_normalised(const float *row)
{
    float sum = 0, squares = 0;
    for (int c = 0; c < COLS; c++)
        sum += row[c], squares += row[c] * row[c];
    return sum > -0.01f && sum < 0.01f && squares > 0.999f * COLS && squares < 1.001f * COLS;
}

int main(void)
{
    fill();
    if (cnorm_layer_norm_forward_workspace_f32(ROWS, COLS) > sizeof workspace)
        return 2;
    cnorm_status status = cnorm_layer_norm_forward_f32(activations[0], mean, rstd, activations[0], NULL, NULL, ROWS,
                                                       COLS, eps, workspace, sizeof workspace);
    if (status != CNORM_OK)
        return 3;
    for (int r = 0; r < ROWS; r++)
        if (!is_normalised(activations[r]))
            return 4;
    return 0;
}
