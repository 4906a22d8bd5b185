/* Instance norm, backward: group norm's with a group for each channel; derived in docs/backward.md.
 *
 *     hat = (x - mean[n, c]) * rstd[n, c]
 *     dx = rstd * weight[c] * (dy - average(dy) - hat * average(dy * hat)),   averages over s
 *     dweight[c] = sum_{n, s}(dy * hat),   dbias[c] = sum_{n, s}(dy)
 *
 * 3S of traffic where a channel (channels last: a sample) fits in the cache, else 5S.
 */
#include "kernels.h"

size_t CN(instance_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return channels ? CN(group_norm_backward_workspace)(batch, channels, spatial, channels, last) : 0;
}

void CN(instance_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                                const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                                bool last, cn_work work, void *workspace)
{
    if (channels == 0)
        return;
    CN(group_norm_backward)(dx, dweight, dbias, dy, x, mean, rstd, weight, batch, channels, spatial, channels, last,
                            work, workspace);
}
