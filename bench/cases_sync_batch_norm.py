"""The cases of batch norm over several processes, of which there is one here: ResNet-50's, and small ones.

Useful traffic: the statistics need all of x before any of y is known, and the averages all of x and dy before
any of dx. But where these fit in the last-level cache they move once.
"""

from dataclasses import replace

from bench.cases import Case
from bench.cases_backward import FITTING, NOT_FITTING
from bench.machine import llc_bytes

SYNC_BATCH_NORM = [
    Case("sync_batch_norm", "ResNet-50 stem", (8, 64, 112, 112), training=True),
    Case("sync_batch_norm", "ResNet-50 stage 1", (8, 256, 56, 56), training=True),
    Case("sync_batch_norm", "ResNet-50 stage 2", (8, 512, 28, 28), training=True),
    Case("sync_batch_norm", "ResNet-50 stage 3", (8, 1024, 14, 14), training=True, quick=True),
    Case("sync_batch_norm", "ResNet-50 stage 4", (8, 2048, 7, 7), training=True),
    Case("sync_batch_norm", "stage 1, channels last", (8, 56, 56, 256), training=True, channels_last=True),
    Case("sync_batch_norm", "stage 3, channels last", (8, 14, 14, 1024), training=True, channels_last=True),
    Case("sync_batch_norm", "stage 3, float64", (8, 1024, 14, 14), training=True, dtype="float64"),
    Case("sync_batch_norm", "features (128, 256)", (128, 256), training=True, quick=True),
    Case("sync_batch_norm", "tiny (8, 64)", (8, 64), training=True),
]

SYNC_BATCH_NORM_BACKWARD = [
    replace(case, backward=True, passes=FITTING if 2 * case.nbytes <= llc_bytes() else NOT_FITTING)
    for case in SYNC_BATCH_NORM
]
