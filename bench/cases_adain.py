"""The cases of adaptive norms: features of style transfer, and tokens of diffusion transformers.

Useful traffic, forward: content and style are read and y written once (3), or x read and y written (2).
Backward: dy, content and style are read, and both gradients written (5), or x and dy read and dx written (3).
"""

from dataclasses import replace

from bench.cases import Case

ADAIN = [
    Case("adain", "VGG relu4_1, 512 x 64 x 64", (1, 512, 64, 64), passes=3),
    Case("adain", "VGG relu4_1, 8 x 512 x 32 x 32", (8, 512, 32, 32), passes=3, quick=True),
    Case("adain", "VGG relu1_1, 4 x 64 x 128 x 128", (4, 64, 128, 128), passes=3),
    Case("adain", "512 x 64 x 64, channels last", (1, 64, 64, 512), passes=3, channels_last=True),
    Case("adain", "8 x 512 x 32 x 32, channels last", (8, 32, 32, 512), passes=3, channels_last=True),
    Case("adain", "photograph, 3 x 427 x 640", (1, 3, 427, 640), passes=3),
    Case("adain", "tiny, 16 x 8 x 8", (1, 16, 8, 8), passes=3, quick=True),
    Case("adain", "512 x 64 x 64, float64", (1, 512, 64, 64), passes=3, dtype="float64"),
]

ADA_LAYER_NORM = [
    Case("ada_layer_norm", "DiT-XL/2, 2 x 256 tokens", (2, 256, 1152), quick=True),
    Case("ada_layer_norm", "DiT-XL/2, 8 x 256 tokens", (8, 256, 1152)),
    Case("ada_layer_norm", "DiT-S/2, 32 x 256 tokens", (32, 256, 384)),
    Case("ada_layer_norm", "SD3 medium, 2 x 4096 tokens", (2, 4096, 1536)),
    Case("ada_layer_norm", "SD3 medium, 4096 tokens", (1, 4096, 1536)),
    Case("ada_layer_norm", "SD3 text, 2 x 154 tokens", (2, 154, 1536)),
    Case("ada_layer_norm", "one token (1, 1, 64)", (1, 1, 64), quick=True),
    Case("ada_layer_norm", "DiT-XL/2, float64", (2, 256, 1152), dtype="float64"),
]

ADAIN_BACKWARD = [replace(case, backward=True, passes=5) for case in ADAIN]
ADA_LAYER_NORM_BACKWARD = [replace(case, backward=True, passes=3) for case in ADA_LAYER_NORM]
