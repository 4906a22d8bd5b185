/* Whitening's statistics (Huang et al. 2018): mean and covariance of channels over batch and space, within groups.
 *
 *     mean[c] = average of x[c]        covariance[g][i][j] = average of (x[i] - mean[i]) * (x[j] - mean[j])
 *
 * and, for the backward pass, the covariance of the channels of x with those of another array of the same shape.
 *
 * Passes: x is read once from memory, 1S (both arrays: 2S). A block of columns is packed with its channels side by side,
 * centred in the cache by a shift, and multiplied with itself, or with the other array's block, in tiles (tile.h).
 * Of x with itself the tiles above the diagonal are enough. Blocks are merged by Chan's formula for matrices: with the
 * distance D of a block's mean from that of the n columns so far, of k columns,
 *
 *     M2 += M2 of the block + D D^T n k / (n + k)
 *
 * The shift is the mean of the columns so far, rounded to `real`, or of a block far from there its own, for which it is
 * packed twice. What the shift left of the block's mean is subtracted, k delta delta^T: no digits are lost, since of
 * k D D^T, nearly the same, the formula adds at least half. Constant channels have rows of exact zeros.
 * Split: a task takes a piece of the blocks of one group; pieces are merged in order. Their number depends on the
 * problem's size alone, and so does a block's: the bits are those of one thread. A channel with a non-finite value
 * spoils its own group's results only.
 */
#include "kernels.h"
#include "whiten_block.h"

#define COVARIANCE_BLOCK 32768 /* elements: what is summed in a block joins the matrix at once */
#define TASKS_WANTED 16
#define BLOCKS_PER_PIECE 8
#define FAR 4                        /* the largest distance is that many times the mean's, or a block is far */
#define PIECE_ACCS ((size_t)1 << 20) /* of all the matrices of a group's pieces together */

/* One of the two arrays in a piece: its block, and by channel its mean in two words, at least its largest distance from it,
 * and of the present block the mean's distance from it in two parts. */
typedef struct {
    const real *x;
    real *block, *shift;
    acc *mean, *lost, *peak, *delta, *step;
} side;

typedef struct {
    side a, b;
    acc *m2, *m2_lost;
    acc count;
} piece;

typedef struct {
    const real *x, *other;
    double *mean, *peak, *covariance;
    whiten_shape shape; /* in joined groups */
    size_t joined, pieces;
    char *workspace;
} covariance_job;

/* Narrow groups are taken several at a time: as many as fill a panel. What they have in common is not asked for. */
static size_t joined_groups(size_t groups, size_t d)
{
    size_t n = d > 0 && d < PANEL ? PANEL / d : 1;
    while (groups % n)
        n--;
    return n;
}

static size_t piece_count(const whiten_shape *s)
{
    size_t n = TASKS_WANTED / (s->groups ? s->groups : 1), width = padded_channels(s);
    size_t by_blocks = block_count(s) / BLOCKS_PER_PIECE, by_memory = PIECE_ACCS / (width ? width * width : 1);
    n = n < by_blocks ? n : by_blocks;
    n = n < by_memory ? n : by_memory;
    return n ? n : 1;
}

static size_t side_bytes(const whiten_shape *s)
{
    size_t width = padded_channels(s);
    return 5 * width * sizeof(acc) + padded((block_columns(s) + 1) * width * sizeof(real), sizeof(acc));
}

static size_t matrix_bytes(const whiten_shape *s)
{
    return (sizeof(real) == sizeof(acc) ? 2 : 1) * padded_channels(s) * padded_channels(s) * sizeof(acc);
}

static size_t piece_bytes(const whiten_shape *s, bool two) { return matrix_bytes(s) + (two ? 2 : 1) * side_bytes(s); }

size_t CN(whiten_covariance_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool two,
                                       bool last)
{
    whiten_shape s = {batch, channels,        spatial, groups / joined_groups(groups, channels / groups),
                      last,  COVARIANCE_BLOCK};
    return s.groups * piece_count(&s) * piece_bytes(&s, two);
}

static side make_side(const covariance_job *job, const real *x, char *memory)
{
    size_t width = padded_channels(&job->shape);
    acc *words = (acc *)memory;
    real *block = (real *)(words + 5 * width);
    return (side){
        x, block + width, block, words, words + width, words + 2 * width, words + 3 * width, words + 4 * width};
}

static piece make_piece(const covariance_job *job, size_t task)
{
    const whiten_shape *s = &job->shape;
    char *memory = job->workspace + task * piece_bytes(s, job->other != NULL);
    piece p = {.m2 = (acc *)memory, .m2_lost = (acc *)memory};
    if (sizeof(real) == sizeof(acc))
        p.m2_lost += padded_channels(s) * padded_channels(s);
    memory += matrix_bytes(s);
    p.a = make_side(job, job->x, memory);
    p.b = job->other ? make_side(job, job->other, memory + side_bytes(s)) : p.a;
    return p;
}

/* Channels first: squares are turned so that the channels of a column lie side by side. */
CN_INLINE void turn(real *panel, const real *x, size_t channel, size_t rows, size_t cols)
{
    for (size_t j = 0; j < cols; j++)
        for (size_t i = 0; i < rows; i++)
            panel[j * PANEL + i] = x[i * channel + j];
}

/* Columns of at most PANEL channels; the others are 0. */
static void pack_first(real *panel, const real *x, size_t channel, size_t channels, size_t columns)
{
    size_t k = 0;
    if (channels < PANEL)
        memset(panel, 0, columns * PANEL * sizeof(real));
    else
        for (; k + PANEL <= columns; k += PANEL)
            turn(panel + k * PANEL, x + k, channel, PANEL, PANEL);
    turn(panel + k * PANEL, x + k, channel, channels, columns - k);
}

static void pack_last(real *panel, const real *x, size_t column, size_t channels, size_t columns)
{
    if (channels == PANEL) {
        for (size_t k = 0; k < columns; k++)
            memcpy(panel + k * PANEL, x + k * column, PANEL * sizeof(real));
        return;
    }
    for (size_t k = 0; k < columns; k++)
        for (size_t c = 0; c < PANEL; c++)
            panel[k * PANEL + c] = c < channels ? x[k * column + c] : 0;
}

/* The panel of a block that begins with channel c of the group: columns of PANEL channels each. */
static void pack_panel(const side *a, const whiten_shape *s, size_t group, size_t c, size_t first, size_t n)
{
    size_t channels = group_channels(s) - c, some = channels < PANEL ? channels : PANEL;
    for (size_t k = 0, m; k < n; k += m) {
        stretch t = next_stretch(s, group, first + k, n - k);
        real *panel = a->block + c * block_columns(s) + k * PANEL;
        m = t.columns;
        if (s->last)
            pack_last(panel, a->x + t.at + c, t.column, some, m);
        else
            pack_first(panel, a->x + t.at + c * t.channel, t.channel, some, m);
    }
}

CN_INLINE void join_magnitude(real *most, real d)
{
    real size = d < 0 ? -d : d;
    *most = size > *most ? size : *most;
}

/* x - shift takes the place of x; its sum and its largest magnitude. A NaN may pass the magnitude by: it is in the sum. */
static void shift_panel(real *panel, const real *shift, acc *sum, real *largest, size_t n)
{
    acc total[PANEL] = {0};
    real most[PANEL] = {0};
    size_t k = 0;
    for (; k + TREE <= n; k += TREE) {
        real *p = panel + k * PANEL;
#pragma omp simd
        for (int c = 0; c < PANEL; c++) {
            real d0 = p[c] - shift[c], d1 = p[c + PANEL] - shift[c];
            real d2 = p[c + 2 * PANEL] - shift[c], d3 = p[c + 3 * PANEL] - shift[c];
            p[c] = d0, p[c + PANEL] = d1, p[c + 2 * PANEL] = d2, p[c + 3 * PANEL] = d3;
            total[c] += (acc)((d0 + d1) + (d2 + d3));
            join_magnitude(&most[c], d0), join_magnitude(&most[c], d1);
            join_magnitude(&most[c], d2), join_magnitude(&most[c], d3);
        }
    }
    for (; k < n; k++)
        for (size_t c = 0; c < PANEL; c++) {
            real d = panel[k * PANEL + c] - shift[c];
            panel[k * PANEL + c] = d;
            total[c] += (acc)d;
            join_magnitude(&most[c], d);
        }
    memcpy(sum, total, sizeof total);
    memcpy(largest, most, sizeof most);
}

/* Centres a panel by `shift`. delta is the distance of its mean from there; `near`, of each channel, whether that is small
 * beside the distances of the elements. Returns whether all are. */
static bool centre_panel(real *panel, const real *shift, acc *delta, acc *peak, bool *near, size_t n)
{
    real largest[PANEL];
    shift_panel(panel, shift, delta, largest, n);
    memset(panel + n * PANEL, 0, (padded(n, TREE) - n) * PANEL * sizeof(real));
    bool all = true;
    for (size_t c = 0; c < PANEL; c++) {
        delta[c] /= (acc)n;
        peak[c] = (acc)largest[c] > peak[c] ? (acc)largest[c] : peak[c];
        near[c] = FAR * fabs(delta[c]) <= (acc)largest[c];
        all &= near[c];
    }
    return all;
}

/* Packs a panel and centres it, each channel by the mean of the columns so far or by its own. */
static void make_panel(const side *a, const whiten_shape *s, size_t group, size_t c, acc count, size_t first, size_t n)
{
    real *panel = a->block + c * block_columns(s), *shift = a->shift + c;
    acc *delta = a->delta + c;
    bool near[PANEL];
    pack_panel(a, s, group, c, first, n);
    for (size_t i = 0; i < PANEL; i++)
        shift[i] = count > 0 ? (real)a->mean[c + i] : panel[i];
    if (centre_panel(panel, shift, delta, a->peak + c, near, n) && count > 0)
        return;
    pack_panel(a, s, group, c, first, n);
    for (size_t i = 0; i < PANEL; i++)
        if (count == 0 || !near[i])
            shift[i] = (real)((acc)shift[i] + delta[i]);
    centre_panel(panel, shift, delta, a->peak + c, near, n);
}

/* Packs and centres a block, and merges its mean. Afterwards step is the mean's distance from that of the columns so far. */
static void make_block(const side *a, const whiten_shape *s, size_t group, acc count, size_t first, size_t n)
{
    size_t width = padded_channels(s);
    for (size_t c = 0; c < width; c += PANEL)
        make_panel(a, s, group, c, count, first, n);
    for (size_t c = 0; c < width; c++) {
        if (count == 0) {
            a->mean[c] = (acc)a->shift[c], a->lost[c] = a->delta[c], a->step[c] = 0;
            continue;
        }
        a->step[c] = ((acc)a->shift[c] - a->mean[c]) + (a->delta[c] - a->lost[c]);
        a->lost[c] += two_sum(&a->mean[c], a->step[c] * ((acc)n / (count + (acc)n)));
        a->peak[c] = fabs(a->step[c]) > a->peak[c] ? fabs(a->step[c]) : a->peak[c];
    }
}

/* m2 += factor * step step^T - n delta delta^T, where it is used: the part below the diagonal is not, of x with itself. */
static void add_means(piece *p, size_t width, bool two, acc factor, acc n)
{
    for (size_t i = 0; i < width; i++) {
        acc *m2 = p->m2 + i * width, *lost = p->m2_lost + i * width;
        acc between = factor * p->a.step[i], within = n * p->a.delta[i];
        if (between == 0 && within == 0)
            continue;
        const acc *step = p->b.step, *delta = p->b.delta;
#pragma omp simd
        for (size_t j = two ? 0 : i; j < width; j++)
            add_to(&m2[j], &lost[j], between * step[j] - within * delta[j]);
    }
}

static void take_block(piece *p, const covariance_job *job, size_t group, size_t first, size_t n)
{
    size_t width = padded_channels(&job->shape), rows = block_columns(&job->shape), tiles;
    bool two = job->other != NULL;
    make_block(&p->a, &job->shape, group, p->count, first, n);
    if (two)
        make_block(&p->b, &job->shape, group, p->count, first, n);
    for (size_t i = 0; i < group_channels(&job->shape); i += TILE_ROWS) {
        operand a = {panel_column(p->a.block, rows, i), PANEL, 1};
        for (size_t j = two ? 0 : i / TILE_COLS * TILE_COLS; j < width; j += tiles * TILE_COLS) {
            operand b = panel_operand(p->b.block, rows, j);
            tiles = j + TILE_COLS < width ? TILES_MOST : 1;
            add_tiles(p->m2 + i * width + j, p->m2_lost + i * width + j, width, a, b, padded(n, TREE), tiles);
        }
    }
    add_means(p, width, two, p->count * (acc)n / (p->count + (acc)n), (acc)n);
    p->count += (acc)n;
}

static void take_piece(void *argument, size_t task)
{
    const covariance_job *job = argument;
    const whiten_shape *s = &job->shape;
    piece p = make_piece(job, task);
    memset(p.m2, 0, piece_bytes(s, job->other != NULL));
    size_t group = task / job->pieces, number = task % job->pieces, blocks = block_count(s);
    size_t from = blocks * number / job->pieces, to = blocks * (number + 1) / job->pieces, n = block_columns(s);
    for (size_t first = from * n; first < to * n && first < column_count(s); first += n)
        take_block(&p, job, group, first, column_count(s) - first < n ? column_count(s) - first : n);
}

static acc columns_of(const covariance_job *job, size_t number)
{
    size_t n = block_columns(&job->shape), blocks = block_count(&job->shape), all = column_count(&job->shape);
    size_t from = blocks * number / job->pieces * n, to = blocks * (number + 1) / job->pieces * n;
    return (acc)((to < all ? to : all) - (from < all ? from : all));
}

/* The mean of the columns of `from` joins that of `to`. */
static void merge_side(side *to, const side *from, size_t width, acc count, acc more)
{
    for (size_t c = 0; c < width; c++) {
        to->step[c] = (from->mean[c] - to->mean[c]) + (from->lost[c] - to->lost[c]);
        to->lost[c] += two_sum(&to->mean[c], to->step[c] * (more / (count + more)));
        acc peak = fabs(to->step[c]) > from->peak[c] ? fabs(to->step[c]) : from->peak[c];
        to->peak[c] = peak > to->peak[c] ? peak : to->peak[c];
    }
}

static void merge_pieces(piece *to, const piece *from, size_t width, bool two, acc more)
{
    merge_side(&to->a, &from->a, width, to->count, more);
    if (two)
        merge_side(&to->b, &from->b, width, to->count, more);
    for (size_t i = 0; i < width * width; i++) {
        add_to(&to->m2[i], &to->m2_lost[i], from->m2[i]);
        if (sizeof(real) == sizeof(acc))
            to->m2_lost[i] += from->m2_lost[i];
    }
    add_means(to, width, two, to->count * more / (to->count + more), 0);
    to->count += more;
}

static void write_side(const covariance_job *job, const side *a, size_t group, size_t which)
{
    size_t channels = job->shape.channels, d = group_channels(&job->shape), c = group * d;
    memcpy(job->mean + 2 * which * channels + c, a->mean, d * sizeof(acc));
    memcpy(job->mean + (2 * which + 1) * channels + c, a->lost, d * sizeof(acc));
    memcpy(job->peak + which * channels + c, a->peak, d * sizeof(acc));
}

static void write_group(const covariance_job *job, const piece *p, size_t group)
{
    size_t d = group_channels(&job->shape) / job->joined, width = padded_channels(&job->shape);
    double *covariance = job->covariance + group * job->joined * d * d;
    for (size_t at = 0; at < job->joined * d; at += d, covariance += d * d)
        for (size_t i = 0; i < d; i++)
            for (size_t j = job->other ? 0 : i; j < d; j++) {
                size_t k = (at + i) * width + at + j;
                covariance[i * d + j] = (sizeof(real) == sizeof(acc) ? p->m2[k] + p->m2_lost[k] : p->m2[k]) / p->count;
                if (!job->other)
                    covariance[j * d + i] = covariance[i * d + j];
            }
    write_side(job, &p->a, group, 0);
    if (job->other)
        write_side(job, &p->b, group, 1);
}

void CN(whiten_covariance)(double *mean, double *peak, double *covariance, const real *x, const real *other,
                           size_t batch, size_t channels, size_t spatial, size_t groups, bool last, cn_work work,
                           void *workspace)
{
    size_t joined = joined_groups(groups, channels / groups);
    whiten_shape shape = {batch, channels, spatial, groups / joined, last, COVARIANCE_BLOCK};
    covariance_job job = {x, other, mean, peak, covariance, shape, joined, piece_count(&shape), workspace};
    size_t width = padded_channels(&job.shape);
    cn_parallel_for(shape.groups * job.pieces, work, take_piece, &job);
    for (size_t g = 0; g < shape.groups; g++) {
        piece total = make_piece(&job, g * job.pieces);
        total.count = columns_of(&job, 0);
        for (size_t i = 1; i < job.pieces; i++) {
            piece part = make_piece(&job, g * job.pieces + i);
            merge_pieces(&total, &part, width, other != NULL, columns_of(&job, i));
        }
        write_group(&job, &total, g);
    }
}
