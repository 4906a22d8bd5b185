/* Layer norm of a file: rows of COLS floats (float32, this machine's byte order) in, the same number of floats out.
 *
 *     cc -O3 -c cnorm.c && cc normalise_file.c cnorm.o -lm -o normalise_file
 *     ./normalise_file 768 input.f32 output.f32
 */
#include "cnorm.h"

#include <stdio.h>
#include <stdlib.h>

/* All floats of a file; NULL if it cannot be read. */
static float *read_floats(const char *name, size_t *count)
{
    float *data = NULL;
    size_t room = 0, n = 0, got = 1;
    FILE *file = fopen(name, "rb");
    while (file && got > 0) {
        if (n == room) {
            float *larger = realloc(data, (room = 2 * room + 4096) * sizeof *data);
            if (!larger)
                break;
            data = larger;
        }
        n += got = fread(data + n, sizeof *data, room - n, file);
    }
    if (!file || ferror(file) || got > 0)
        free(data), data = NULL;
    if (file)
        fclose(file);
    *count = n;
    return data;
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "normalise_file: %s: %s\n", what, why);
    return 1;
}

int main(int argc, char **argv)
{
    size_t n, cols = argc == 4 ? (size_t)strtoul(argv[1], NULL, 10) : 0;
    if (cols == 0)
        return fail("usage", "normalise_file COLS INPUT OUTPUT");
    float *x = read_floats(argv[2], &n);
    if (!x || n % cols != 0)
        return fail(argv[2], x ? "not a whole number of rows" : "cannot be read");
    size_t rows = n / cols, size = cnorm_layer_norm_forward_workspace_f32(rows, cols);
    void *workspace = size > 0 ? malloc(size) : NULL;
    /* In place, without weight and bias, and without the statistics. */
    cnorm_status status = cnorm_layer_norm_forward_f32(x, NULL, NULL, x, NULL, NULL, rows, cols, 1e-5, workspace, size);
    if (status != CNORM_OK)
        return fail("layer norm", cnorm_status_string(status));
    FILE *file = fopen(argv[3], "wb");
    if (!file || fwrite(x, sizeof *x, n, file) != n || fclose(file) != 0)
        return fail(argv[3], "cannot be written");
    free(workspace);
    free(x);
    return 0;
}
