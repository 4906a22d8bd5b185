"""What a backend offers: the functions that ops call on checked, contiguous arrays."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]


class Kernels(Protocol):
    """What a backend offers.

    All arrays are C-contiguous, aligned, in native byte order and of one compute dtype, float32 or float64;
    sizes may be 0; `y` may be the memory of `x`; parameters and statistics are 1-D or None. Arguments are
    already checked and results are written in place. ``rstd`` is ``1/sqrt(var + eps)``, or 0 where
    ``var + eps`` is 0. Backward functions take those statistics; `dx` may be the memory of `dy`, and outputs
    that are not wanted are None.
    """

    def layer_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        /,
    ) -> None:
        """Normalise the rows of `x` (rows, cols); weight, bias (cols,); mean, rstd (rows,)."""

    def rms_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        weight_offset: float,
        y: Array,
        rstd: Array | None,
        /,
    ) -> None:
        """``y = x * rstd * (weight_offset + weight) + bias`` by rows; without a weight the factor is 1."""

    def group_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        num_groups: int,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        /,
    ) -> None:
        """`x` (batch, channels, spatial) or (batch, spatial, channels); mean, rstd (batch * num_groups,)."""

    def instance_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        running_mean: Array | None,
        running_var: Array | None,
        momentum: float,
        /,
    ) -> None:
        """Group norm with a group per channel; running statistics take the average over the batch."""

    def batch_norm_training(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        running_mean: Array | None,
        running_var: Array | None,
        momentum: float,
        unbiased: bool,
        /,
    ) -> None:
        """Normalise by the batch's statistics (channels,); running ones take these with weight `momentum`."""

    def batch_norm_inference(
        self,
        x: Array,
        running_mean: Array,
        running_var: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        channels_last: bool,
        y: Array,
        /,
    ) -> None:
        """Normalise by the running statistics."""

    def layer_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `layer_norm` by rows; dweight, dbias (cols,)."""

    def rms_norm_backward(
        self,
        dy: Array,
        x: Array,
        rstd: Array,
        weight: Array | None,
        weight_offset: float,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `rms_norm` by rows; dweight, dbias (cols,)."""

    def group_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        num_groups: int,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `group_norm`; dweight, dbias (channels,)."""

    def instance_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Group norm's gradients with a group per channel."""

    def batch_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        training: bool,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `batch_norm_training` or, without `training`, `batch_norm_inference`."""

    def adain(
        self,
        content: Array,
        style: Array,
        eps: float,
        unbiased: bool,
        content_last: bool,
        style_last: bool,
        y: Array,
        content_mean: Array | None,
        content_rstd: Array | None,
        style_mean: Array | None,
        style_rstd: Array | None,
        /,
    ) -> None:
        """Both arrays (batch, channels, spatial), or channels last; statistics (batch * channels,)."""

    def adain_backward(
        self,
        dy: Array,
        content: Array,
        style: Array,
        content_mean: Array,
        content_rstd: Array,
        style_rstd: Array,
        unbiased: bool,
        content_last: bool,
        style_last: bool,
        dcontent: Array | None,
        dstyle: Array | None,
        /,
    ) -> None:
        """Gradients of `adain`; `dstyle` may be the memory of `style`."""

    def ada_layer_norm(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        eps: float,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        /,
    ) -> None:
        """`x` (batch, rows, cols); scale, shift (batch, cols); mean, rstd (batch * rows,)."""

    def ada_layer_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        scale: Array,
        dx: Array | None,
        dscale: Array | None,
        dshift: Array | None,
        /,
    ) -> None:
        """Gradients of `ada_layer_norm`; dscale, dshift (batch, cols)."""

    def spade(
        self,
        x: Array,
        gamma: Array,
        beta: Array,
        gamma_offset: float,
        num_groups: int,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        running_mean: Array | None,
        running_var: Array | None,
        momentum: float,
        unbiased: bool,
        /,
    ) -> None:
        """``y = xhat * (gamma_offset + gamma) + beta``; gamma, beta 3-D as `x`, of size 1 where broadcast.

        Without groups: as `batch_norm_training`. Else as `group_norm`, and no running statistics.
        """

    def spade_inference(
        self,
        x: Array,
        running_mean: Array,
        running_var: Array,
        gamma: Array,
        beta: Array,
        gamma_offset: float,
        eps: float,
        channels_last: bool,
        y: Array,
        /,
    ) -> None:
        """Normalise by the running statistics, and scale and shift as `spade`."""

    def spade_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        gamma: Array,
        gamma_offset: float,
        num_groups: int,
        training: bool,
        channels_last: bool,
        dx: Array | None,
        dgamma: Array | None,
        dbeta: Array | None,
        /,
    ) -> None:
        """Gradients of `spade`, or without `training` `spade_inference`; dgamma, dbeta as `x`, not summed."""

    def sync_batch_norm_moments(self, x: Array, eps: float, channels_last: bool, moments: Array, /) -> None:
        """Take moments (5, channels), float64: mean and M2 in two words each, of ``x / 2**k``, and k."""

    def sync_batch_norm_merge(
        self,
        counts: Array,
        moments: Array,
        eps: float,
        merged: Array,
        mean: Array,
        rstd: Array,
        running_mean: Array | None,
        running_var: Array | None,
        momentum: float,
        unbiased: bool,
        /,
    ) -> None:
        """Merge moments (ranks, 5, channels) of counts (ranks,), not all 0, into `merged` (5, channels)."""

    def sync_batch_norm_apply(
        self,
        x: Array,
        merged: Array,
        weight: Array | None,
        bias: Array | None,
        channels_last: bool,
        y: Array,
        /,
    ) -> None:
        """Normalise by merged statistics."""

    def sync_batch_norm_backward_sums(
        self, dy: Array, x: Array, mean: Array, rstd: Array, channels_last: bool, sums: Array, /
    ) -> None:
        """Take the sums (8, channels), float64, that `sync_batch_norm_backward_apply` needs of all ranks."""

    def sync_batch_norm_backward_apply(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        own: Array,
        counts: Array,
        sums: Array,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients from this rank's `own` sums and from all (ranks, 8, channels); counts (ranks,)."""

    def whiten_covariance(
        self,
        x: Array,
        other: Array | None,
        channels_last: bool,
        mean: Array,
        peak: Array,
        covariance: Array,
        /,
    ) -> None:
        """Covariance of the channels of each group, in float64: (groups, d, d) with d = channels / groups.

        It is the average of ``(x_i - mean_i) (x_j - mean_j)`` over all positions of `x` (batch, channels,
        spatial) or (batch, spatial, channels), which may not be empty; with `other`, of its channels j.
        ``mean[0] + mean[1]`` is the mean of `x`, ``mean[2] + mean[3]`` that of `other`; ``peak[0]`` and
        ``peak[1]`` are within a factor of 2 the largest distance from it; each (channels,).
        """

    def whiten_apply(
        self,
        x: Array,
        mean: Array,
        matrix: Array,
        other: Array | None,
        other_mean: Array | None,
        other_matrix: Array | None,
        channels_last: bool,
        y: Array,
        /,
    ) -> None:
        """``y = matrix (x - mean) + other_matrix (other - other_mean)`` at every position, by groups.

        Means (2, channels) in two words, matrices (groups, d, d), both in float64.
        """

    def normalize(self, x: Array, p: float, eps: float, y: Array | None, norm: Array | None, /) -> None:
        """``y = x / max(norm, eps)`` along the middle axis of three; norm (outer * inner,)."""

    def cosine_norm(self, y: Array, x_norm: Array, weight_norm: Array, eps: float, /) -> None:
        """``y = y / max(x_norm * weight_norm, eps)``, within [-1, 1], over products (rows, cols)."""

    def normalize_backward(self, dy: Array, x: Array, p: float, eps: float, dx: Array, /) -> None:
        """Gradient of `normalize`."""

    def weight_norm(self, v: Array, g: Array, w: Array, /) -> None:
        """``w = g * v / norm`` by channel of `v` (outer, channels, inner); `g` (channels,)."""

    def weight_norm_backward(self, dw: Array, v: Array, g: Array, dv: Array, dg: Array, /) -> None:
        """Gradients of `weight_norm`; dg (channels,)."""

    def spectral_norm(
        self, weight: Array, u: Array, v: Array, iterations: int, eps: float, w: Array, /
    ) -> float:
        """Write ``w = weight / sigma`` and return sigma; `weight` (outer, rows, inner), `v` (outer * inner,).

        First, `u` and `v` are updated `iterations` times; without any, they are only read.
        """

    def spectral_norm_backward(
        self, dw: Array, weight: Array, u: Array, v: Array, sigma: float, dweight: Array, /
    ) -> None:
        """Gradient with `u` and `v` constant; `dweight` may be the memory of `dw`."""
