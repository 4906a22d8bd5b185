# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=False, binding=False, freethreading_compatible=True
"""The native backend: NumPy arrays in, C kernels called without the GIL.

Three doors for each op, one file an op:

- ``<op>(x, ..., y, ...)``: the backend protocol of cnorm._backend, on arrays that are checked and contiguous;
- ``fast_<op>(...)``: recognises a plainly valid call of the public function and does it at once, or returns None;
- functions on typed memoryviews for other Cython code, which cimports them: see _cnorm.pxd.
"""

cimport numpy as cnp
from cython cimport floating
from cpython.pythread cimport PyThread_acquire_lock, PyThread_allocate_lock, PyThread_release_lock, PyThread_type_lock
from libc.float cimport DBL_EPSILON, FLT_EPSILON
from libc.math cimport isfinite
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cnorm.native.cnorm_h cimport *

import os

import numpy as np

cnp.import_array()

include "machine.pxi"
include "outputs.pxi"
include "recognise.pxi"
include "layer_norm.pxi"
include "rms_norm.pxi"
include "group_norm.pxi"
include "instance_norm.pxi"
include "batch_norm.pxi"
include "gradients.pxi"
include "layer_norm_backward.pxi"
include "rms_norm_backward.pxi"
include "group_norm_backward.pxi"
include "instance_norm_backward.pxi"
include "batch_norm_backward.pxi"
include "adain.pxi"
include "adain_backward.pxi"
include "ada_layer_norm.pxi"
include "ada_layer_norm_backward.pxi"
include "spade.pxi"
include "spade_backward.pxi"
include "sync_batch_norm.pxi"
include "sync_batch_norm_backward.pxi"
include "whiten.pxi"
include "normalize.pxi"
include "cosine_norm.pxi"
include "normalize_backward.pxi"
include "weight_norm.pxi"
include "weight_norm_backward.pxi"
include "spectral_norm.pxi"
include "spectral_norm_backward.pxi"
