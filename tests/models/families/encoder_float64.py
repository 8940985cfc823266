"""BERT encoders in float64 with numpy, written from the formulas: post-norm blocks with biases, gelu by the error
function, attention without a causal mask; sentence embeddings are means over the mask, scaled to length 1.
"""
import math

import numpy as np

from decoder_float64 import linear, softmax

ERF = np.vectorize(math.erf, otypes=[np.float64])


def layer_norm(weights, name, x, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)
    return scaled * weights[name + ".weight"] + weights[name + ".bias"]


def hidden_states(keys, weights, tokens, types, mask):
    """[T, hidden] of one row; keys with mask 0 are not seen. `keys` is the dictionary of config.json."""
    heads, eps = keys["num_attention_heads"], keys["layer_norm_eps"]
    dim = keys["hidden_size"] // heads
    table = lambda kind: weights[f"embeddings.{kind}_embeddings.weight"]
    x = table("word")[tokens] + table("token_type")[types] + table("position")[:len(tokens)]
    x = layer_norm(weights, "embeddings.LayerNorm", x, eps)
    for layer in range(keys["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        q, k, v = (linear(weights, f"{name}.attention.self.{part}", x) for part in ("query", "key", "value"))
        mixed = np.empty_like(x)
        for head in range(heads):
            part = slice(head * dim, (head + 1) * dim)
            scores = np.where(np.asarray(mask, bool), q[:, part] @ k[:, part].T / math.sqrt(dim), -np.inf)
            mixed[:, part] = softmax(scores) @ v[:, part]
        y = linear(weights, f"{name}.attention.output.dense", mixed)
        x = layer_norm(weights, f"{name}.attention.output.LayerNorm", x + y, eps)
        y = linear(weights, f"{name}.intermediate.dense", x)
        y = linear(weights, f"{name}.output.dense", y * 0.5 * (1 + ERF(y / math.sqrt(2))))
        x = layer_norm(weights, f"{name}.output.LayerNorm", x + y, eps)
    return x


def embedding(hidden, mask):
    mean = hidden[np.asarray(mask, bool)].mean(axis=0)
    return mean / np.sqrt((mean * mean).sum())
