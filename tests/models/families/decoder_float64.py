"""Decoder-only language models in float64 with numpy, written from the formulas and driven by config.json: Llama,
Mistral, Qwen2, Qwen3 and Qwen3-MoE.

It shares no code with transformers, whose logits make_families.py compares with these. Weights have the names of
published files. Shapes: T tokens, H heads, G key/value heads, D head size.
"""
import json
import math
import pathlib
import struct

import numpy as np

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")
# What a missing key means, where the classes differ or the key is left out of many files.
DEFAULTS = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu",
            "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "norm_topk_prob": False,
            "decoder_sparse_step": 1}


def read_safetensors(path):
    """{name: array}: eight bytes of header length, the header as JSON, the data. bf16 and floats come as float64."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header, tensors = json.loads(data[8:8 + length]), {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        elif entry["dtype"] in ("F32", "F64"):
            values = np.frombuffer(raw, {"F32": "<f4", "F64": "<f8"}[entry["dtype"]]).astype(np.float64)
        else:
            values = np.frombuffer(raw, {"I32": "<i4", "I64": "<i8"}[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


class Config:
    """The text model's keys of a config.json, in either spelling."""

    def __init__(self, keys):
        self.keys = {**keys, **(keys.get("text_config") or {})}
        self.family = self.keys["model_type"]
        assert self.family in FAMILIES, self.family
        assert self["hidden_act"] == "silu", self["hidden_act"]
        self.heads = self["num_attention_heads"]
        self.kv_heads = self["num_key_value_heads"] or self.heads
        self.head_dim = self["head_dim"] or (128 if self.family == "qwen3" else self["hidden_size"] // self.heads)

    @classmethod
    def read(cls, path):
        return cls(json.loads(pathlib.Path(path).read_text()))

    def __getitem__(self, key):
        return self.keys.get(key, DEFAULTS.get(key))

    def rope(self):
        """The flat dictionary of rope_parameters; rope_theta + rope_scaling is the older spelling."""
        rope = dict(self["rope_scaling"] or self["rope_parameters"] or {})
        rope.setdefault("rope_type", rope.get("type", "default"))
        rope.setdefault("rope_theta", self["rope_theta"] or 10000.0)
        rope.setdefault("original_max_position_embeddings", self["max_position_embeddings"])
        return rope

    def window(self, layer):
        """The number of keys that a query sees, its own included; None for all."""
        if self.family == "mistral":
            return self["sliding_window"]
        if self.family == "llama" or not self["use_sliding_window"]:
            return None
        if self.family == "qwen3_moe":
            return self["sliding_window"]
        if self["layer_types"]:
            return self["sliding_window"] if self["layer_types"][layer] == "sliding_attention" else None
        return self["sliding_window"] if layer >= self["max_window_layers"] else None

    def has_experts(self, layer):
        return (self.family == "qwen3_moe" and layer not in (self["mlp_only_layers"] or [])
                and (layer + 1) % self["decoder_sparse_step"] == 0)


def yarn_range(rope, dim):
    """The first and the last pair of the ramp, which turn beta_fast and beta_slow times in the original context."""
    original, theta = rope["original_max_position_embeddings"], rope["rope_theta"]
    pair = lambda turns: dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
    low, high = pair(rope.get("beta_fast") or 32), pair(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return low, high + 0.001 if low == high else high


def attention_factor(rope):
    if rope["rope_type"] != "yarn":
        return 1.0
    if rope.get("attention_factor") is not None:
        return rope["attention_factor"]
    scale = lambda weight: 1.0 if rope["factor"] <= 1 else 0.1 * weight * math.log(rope["factor"]) + 1.0
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return scale(rope["mscale"]) / scale(rope["mscale_all_dim"])
    return scale(1)


def inverse_frequencies(rope, dim):
    """(D/2 radians per position, the factor of cos and sin)."""
    frequencies = np.array([rope["rope_theta"] ** (-2 * i / dim) for i in range(dim // 2)])
    kind, factor = rope["rope_type"], rope.get("factor", 1.0)
    if kind == "linear":
        frequencies = frequencies / factor
    elif kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        smooth = np.clip((turns - low) / (high - low), 0, 1)  # 0: divided by the factor, 1: as they are
        frequencies = frequencies * ((1 - smooth) / factor + smooth)
    elif kind == "yarn":
        low, high = yarn_range(rope, dim)
        ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
        frequencies = frequencies * ((1 - ramp) + ramp / factor)
    else:
        assert kind == "default", kind
    return frequencies, attention_factor(rope)


def rope_tables(config, positions):
    """cos and sin [T, D/2]."""
    frequencies, factor = inverse_frequencies(config.rope(), config.head_dim)
    angles = np.outer(np.asarray(positions, np.float64), frequencies)
    return np.cos(angles) * factor, np.sin(angles) * factor


def rotate(x, tables):
    """x [T, heads, D]: the pair (x[i], x[i + D/2]) turns."""
    cos, sin = (table[:, None, :] for table in tables)
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def linear(weights, name, x):  # weight [out, in]
    y = x @ weights[name + ".weight"].T
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def attention(config, weights, name, x, tables, layer):
    tokens, dim = len(x), config.head_dim
    split = lambda part, heads: linear(weights, f"{name}.{part}_proj", x).reshape(tokens, heads, dim)
    q, k, v = split("q", config.heads), split("k", config.kv_heads), split("v", config.kv_heads)
    if config.family.startswith("qwen3"):
        q = rms_norm(q, weights[name + ".q_norm.weight"], config["rms_norm_eps"])
        k = rms_norm(k, weights[name + ".k_norm.weight"], config["rms_norm_eps"])
    q, k = rotate(q, tables), rotate(k, tables)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    window = config.window(layer)
    visible = (distance >= 0) & (distance < (window if window is not None else tokens))
    mixed = np.empty((tokens, config.heads, dim))
    for head in range(config.heads):
        shared = head // (config.heads // config.kv_heads)
        scores = np.where(visible, q[:, head] @ k[:, shared].T / math.sqrt(dim), -np.inf)
        mixed[:, head] = softmax(scores) @ v[:, shared]
    return linear(weights, name + ".o_proj", mixed.reshape(tokens, -1))


def gated(weights, name, x):
    gate = linear(weights, name + ".gate_proj", x)
    return linear(weights, name + ".down_proj", gate / (1 + np.exp(-gate)) * linear(weights, name + ".up_proj", x))


def experts(config, weights, name, x, margins):
    """The best experts by the softmax over all of them; the smallest distance to the next expert goes to `margins`."""
    shares, active = softmax(linear(weights, name + ".gate", x)), config["num_experts_per_tok"]
    order = np.argsort(-shares, axis=-1, kind="stable")
    ranked = np.take_along_axis(shares, order, axis=-1)
    if active < ranked.shape[-1]:
        margins.append((ranked[:, active - 1] - ranked[:, active]).min())
    y = np.zeros_like(x)
    for token in range(len(x)):
        total = ranked[token, :active].sum() if config["norm_topk_prob"] else 1.0
        for expert, share in zip(order[token, :active], ranked[token, :active]):
            y[token] += share / total * gated(weights, f"{name}.experts.{expert}", x[token])
    return y


def forward(config, weights, tokens, positions=None, tables=None, margins=None):
    """Logits [T, vocabulary] of one row. `tables` replaces the exact cos and sin of the positions."""
    if tables is None:
        tables = rope_tables(config, range(len(tokens)) if positions is None else positions)
    eps, margins = config["rms_norm_eps"], [] if margins is None else margins
    x = weights["model.embed_tokens.weight"][np.asarray(tokens)]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        normed = rms_norm(x, weights[name + ".input_layernorm.weight"], eps)
        x = x + attention(config, weights, name + ".self_attn", normed, tables, layer)
        normed = rms_norm(x, weights[name + ".post_attention_layernorm.weight"], eps)
        if config.has_experts(layer):
            x = x + experts(config, weights, name + ".mlp", normed, margins)
        else:
            x = x + gated(weights, name + ".mlp", normed)
    x = rms_norm(x, weights["model.norm.weight"], eps)
    return x @ weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"].T


def loss(logits, tokens):
    """Mean cross entropy of the next tokens: logits [rows, T, vocabulary], tokens [rows, T]."""
    picked = np.take_along_axis(log_softmax(logits[:, :-1]), np.asarray(tokens)[:, 1:, None], axis=-1)
    return -picked.mean()
