"""The cases of vector norms: embeddings, feature maps, weights, and heads of cosines.

Useful traffic, forward: x or the weight is read and the result written (2). Backward: both arrays are read
and the gradient written (3).
"""

from dataclasses import dataclass, replace

from bench.cases import Case


@dataclass(frozen=True)
class VectorCase(Case):
    """An array, and the axis of its vectors or channels; for cosines, the number of the head's outputs."""

    dim: int = -1
    p: float = 2.0
    outputs: int = 0


NORMALIZE = [
    VectorCase("normalize", "one embedding, 1 x 768", (1, 768), quick=True),
    VectorCase("normalize", "tiny, 1 x 64", (1, 64)),
    VectorCase("normalize", "CLIP batch, 256 x 512", (256, 512), quick=True),
    VectorCase("normalize", "embeddings, 4096 x 768", (4096, 768)),
    VectorCase("normalize", "embeddings, 65536 x 384", (65536, 384)),
    VectorCase("normalize", "query and key heads, 16384 x 64", (16384, 64)),
    VectorCase("normalize", "surface normals, 100000 x 3", (100_000, 3)),
    VectorCase("normalize", "conv4_3 of SSD, 4 x 512 x 38 x 38", (4, 512, 38, 38), dim=1, quick=True),
    VectorCase("normalize", "normal maps, 2 x 3 x 256 x 256", (2, 3, 256, 256), dim=1),
    VectorCase("normalize", "columns, 4096 x 768", (4096, 768), dim=0),
    VectorCase("normalize", "p = 1, 4096 x 768", (4096, 768), p=1.0),
    VectorCase("normalize", "p = inf, 4096 x 768", (4096, 768), p=float("inf")),
    VectorCase("normalize", "embeddings, 4096 x 768, float64", (4096, 768), dtype="float64"),
]

WEIGHT_NORM = [
    VectorCase("weight_norm", "output of FCPE, 360 x 512", (360, 512), dim=0, quick=True),
    VectorCase("weight_norm", "tiny, 16 x 8", (16, 8), dim=0),
    VectorCase("weight_norm", "convolution, 512 x 512 x 3", (512, 512, 3), dim=0, quick=True),
    VectorCase("weight_norm", "HiFi-GAN discriminator, 1024 x 512 x 7", (1024, 512, 7), dim=0),
    VectorCase("weight_norm", "HiFi-GAN upsampling, 512 x 256 x 16", (512, 256, 16), dim=0),
    VectorCase("weight_norm", "its output channels, 512 x 256 x 16", (512, 256, 16), dim=1, quick=True),
    VectorCase("weight_norm", "linear by columns, 4096 x 768", (4096, 768), dim=1),
    VectorCase("weight_norm", "convolution, 512 x 512 x 3, float64", (512, 512, 3), dim=0, dtype="float64"),
]

COSINE_NORM = [
    VectorCase("cosine_norm", "few-shot head, 1 x 512, 64 classes", (1, 512), outputs=64, quick=True),
    VectorCase("cosine_norm", "CLIP, 256 x 512, 256 texts", (256, 512), outputs=256, quick=True),
    VectorCase("cosine_norm", "ArcFace, 128 x 512, 10000 classes", (128, 512), outputs=10_000),
]

NORMALIZE_BACKWARD, WEIGHT_NORM_BACKWARD, COSINE_NORM_BACKWARD = (
    [replace(case, backward=True, passes=3) for case in cases]
    for cases in (NORMALIZE, WEIGHT_NORM, COSINE_NORM)
)
