"""Cases of whitening: shapes, groups and methods of the papers' networks, and of features and patches."""

from dataclasses import dataclass, replace

from bench.cases import Case


@dataclass(frozen=True)
class WhitenCase(Case):
    """A call of whiten or its backward; `num_groups` are its groups."""

    method: str = "zca"

    @property
    def width(self) -> int:
        """Channels of a group."""
        return self.channels // self.num_groups


WHITEN = [
    WhitenCase("whiten", "DBN, 64 x 8 x 8", (256, 64, 8, 8), num_groups=1),
    WhitenCase("whiten", "DBN, groups of 4", (256, 64, 8, 8), num_groups=16, quick=True),
    WhitenCase("whiten", "IterNorm, 64 x 8 x 8", (256, 64, 8, 8), num_groups=1, method="newton"),
    WhitenCase("whiten", "stage 3, 256 x 14 x 14", (64, 256, 14, 14), num_groups=1),
    WhitenCase("whiten", "stage 3, groups of 64", (64, 256, 14, 14), num_groups=4),
    WhitenCase("whiten", "stage 3, groups of 16", (64, 256, 14, 14), num_groups=16),
    WhitenCase("whiten", "IterNorm, groups of 64", (64, 256, 14, 14), num_groups=4, method="newton"),
    WhitenCase("whiten", "groups of 64, channels last", (64, 14, 14, 256), num_groups=4, channels_last=True),
    WhitenCase("whiten", "features (10000, 64)", (10000, 64), num_groups=1, quick=True),
    WhitenCase("whiten", "features, Cholesky", (10000, 64), num_groups=1, method="cholesky"),
    WhitenCase("whiten", "features, PCA, float64", (10000, 64), "float64", num_groups=1, method="pca"),
    WhitenCase("whiten", "patches (60000, 108)", (60000, 108), num_groups=1),
    WhitenCase("whiten", "small (64, 16)", (64, 16), num_groups=1),
]

WHITEN_BACKWARD = [replace(case, backward=True, passes=5) for case in WHITEN]
