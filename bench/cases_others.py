"""The cases of the ops that no peer has as one function, and those of all."""

from bench.cases import CASES
from bench.cases_adain import ADA_LAYER_NORM, ADA_LAYER_NORM_BACKWARD, ADAIN, ADAIN_BACKWARD
from bench.cases_backward import BACKWARD_CASES
from bench.cases_spade import BACKWARD_CASES as SPADE_BACKWARD
from bench.cases_spade import CASES as SPADE
from bench.cases_spectral_norm import SPECTRAL_NORM, SPECTRAL_NORM_BACKWARD
from bench.cases_sync_batch_norm import SYNC_BATCH_NORM, SYNC_BATCH_NORM_BACKWARD
from bench.cases_vectors import (
    COSINE_NORM,
    COSINE_NORM_BACKWARD,
    NORMALIZE,
    NORMALIZE_BACKWARD,
    WEIGHT_NORM,
    WEIGHT_NORM_BACKWARD,
)
from bench.cases_whiten import WHITEN, WHITEN_BACKWARD

OTHER_CASES = [
    *(*ADA_LAYER_NORM, *ADA_LAYER_NORM_BACKWARD),
    *(*ADAIN, *ADAIN_BACKWARD),
    *(*COSINE_NORM, *COSINE_NORM_BACKWARD),
    *(*NORMALIZE, *NORMALIZE_BACKWARD),
    *(*SPADE, *SPADE_BACKWARD),
    *(*SPECTRAL_NORM, *SPECTRAL_NORM_BACKWARD),
    *(*SYNC_BATCH_NORM, *SYNC_BATCH_NORM_BACKWARD),
    *(*WEIGHT_NORM, *WEIGHT_NORM_BACKWARD),
    *(*WHITEN, *WHITEN_BACKWARD),
]
ALL_CASES = [*CASES, *BACKWARD_CASES, *OTHER_CASES]
