"""Decoder-only language models in float64 with numpy, written from the formulas and driven by config.json: Llama,
Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Gemma 2 and the text model of Gemma 3.

It shares no code with transformers, whose logits make_families.py compares with these. Weights have the names of
published files. Shapes: T tokens, H heads, G key/value heads, D head size.
"""
import json
import math
import pathlib
import struct

import numpy as np

FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text")
# What a missing key means, where the classes differ or the key is left out of many files.
DEFAULTS = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu",
            "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "norm_topk_prob": False,
            "decoder_sparse_step": 1}
GEMMA = {"tie_word_embeddings": True, "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"}
GEMMA2 = GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


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
        self.is_gemma = self.family.startswith("gemma")
        if self.is_gemma:
            assert self["hidden_activation"] == "gelu_pytorch_tanh", self["hidden_activation"]
        else:
            assert self["hidden_act"] == "silu", self["hidden_act"]
        self.heads = self["num_attention_heads"]
        self.kv_heads = self["num_key_value_heads"] or self.heads
        self.head_dim = self["head_dim"] or (128 if self.family == "qwen3" else self["hidden_size"] // self.heads)

    @classmethod
    def read(cls, path):
        return cls(json.loads(pathlib.Path(path).read_text()))

    def __getitem__(self, key):
        of_family = {"gemma2": GEMMA2, "gemma3_text": GEMMA}.get(self.family, {})
        return self.keys.get(key, of_family.get(key, DEFAULTS.get(key)))

    def rope(self, kind=None):
        """The flat dictionary of rope_parameters; rope_theta + rope_scaling is the older spelling. Kinds of layers differ
        in Gemma 3."""
        rope, theta = dict(self["rope_scaling"] or self["rope_parameters"] or {}), self["rope_theta"] or 10000.0
        if self.family == "gemma3_text":
            sliding = kind == "sliding_attention"
            rope = dict((self["rope_parameters"] or {}).get(kind) or (not sliding and self["rope_scaling"]) or {})
            theta = self["rope_local_base_freq"] or 1e4 if sliding else self["rope_theta"] or 1e6
        rope.setdefault("rope_type", rope.get("type", "default"))
        rope.setdefault("rope_theta", theta)
        rope.setdefault("original_max_position_embeddings", self["max_position_embeddings"])
        return rope

    def window(self, layer):
        """The number of keys that a query sees, its own included; None for all."""
        if self.family in ("mistral", "mixtral"):
            return self["sliding_window"] if self.family == "mistral" else self.keys.get("sliding_window")
        if self.is_gemma:
            return self["sliding_window"] if self.kind(layer) == "sliding_attention" else None
        if self.family == "llama" or not self["use_sliding_window"]:
            return None
        if self.family == "qwen3_moe":
            return self["sliding_window"]
        if self["layer_types"]:
            return self["sliding_window"] if self["layer_types"][layer] == "sliding_attention" else None
        return self["sliding_window"] if layer >= self["max_window_layers"] else None

    def kind(self, layer):
        """The kind of a layer of Gemma; other families have one kind of angles."""
        if not self.is_gemma:
            return None
        if self["layer_types"]:
            return self["layer_types"][layer]
        period = 2 if self.family == "gemma2" else self["sliding_window_pattern"] or 6
        return "sliding_attention" if (layer + 1) % period else "full_attention"

    def kinds(self):
        return sorted({self.kind(layer) for layer in range(self["num_hidden_layers"])}, key=str)

    def scale(self):
        return (self["query_pre_attn_scalar"] if self.is_gemma else self.head_dim) ** -0.5

    def has_experts(self, layer):
        return self.family == "mixtral" or (self.family == "qwen3_moe" and layer not in (self["mlp_only_layers"] or [])
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


def rope_tables(config, positions, kind=None):
    """cos and sin [T, D/2]."""
    frequencies, factor = inverse_frequencies(config.rope(kind), config.head_dim)
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


def capped(x, cap):
    return x if cap is None else cap * np.tanh(x / cap)


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def norm(config, weights, name, x):
    return rms_norm(x, weights[name + ".weight"] + (1 if config.is_gemma else 0), config["rms_norm_eps"])


def linear(weights, name, x):  # weight [out, in]
    y = x @ weights[name + ".weight"].T
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def attention(config, weights, name, x, tables, layer):
    tokens, dim = len(x), config.head_dim
    split = lambda part, heads: linear(weights, f"{name}.{part}_proj", x).reshape(tokens, heads, dim)
    q, k, v = split("q", config.heads), split("k", config.kv_heads), split("v", config.kv_heads)
    if name + ".q_norm.weight" in weights:
        q, k = norm(config, weights, name + ".q_norm", q), norm(config, weights, name + ".k_norm", k)
    q, k = rotate(q, tables), rotate(k, tables)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    window = config.window(layer)
    visible = (distance >= 0) & (distance < (window if window is not None else tokens))
    mixed = np.empty((tokens, config.heads, dim))
    for head in range(config.heads):
        shared = head // (config.heads // config.kv_heads)
        scores = capped(q[:, head] @ k[:, shared].T * config.scale(), config["attn_logit_softcapping"])
        scores = np.where(visible, scores, -np.inf)
        mixed[:, head] = softmax(scores) @ v[:, shared]
    return linear(weights, name + ".o_proj", mixed.reshape(tokens, -1))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gated(config, weights, name, x, parts=("gate_proj", "up_proj", "down_proj")):
    gate, up = (linear(weights, f"{name}.{part}", x) for part in parts[:2])
    active = gelu_tanh(gate) if config.is_gemma else gate / (1 + np.exp(-gate))
    return linear(weights, f"{name}.{parts[2]}", active * up)


def experts(config, weights, name, x, margins):
    """The best experts by the softmax over all of them; the smallest distance to the next expert goes to `margins`."""
    shares, active = softmax(linear(weights, name + ".gate", x)), config["num_experts_per_tok"]
    order = np.argsort(-shares, axis=-1, kind="stable")
    ranked = np.take_along_axis(shares, order, axis=-1)
    if active < ranked.shape[-1]:
        margins.append((ranked[:, active - 1] - ranked[:, active]).min())
    y, is_mixtral = np.zeros_like(x), config.family == "mixtral"
    parts = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    for token in range(len(x)):
        total = ranked[token, :active].sum() if is_mixtral or config["norm_topk_prob"] else 1.0
        for expert, share in zip(order[token, :active], ranked[token, :active]):
            y[token] += share / total * gated(config, weights, f"{name}.experts.{expert}", x[token], parts)
    return y


def block(config, weights, name, layer, x, tables, margins):
    after = lambda part, y: norm(config, weights, f"{name}.{part}_layernorm", y)
    mixed = attention(config, weights, name + ".self_attn", after("input", x), tables, layer)
    if config.is_gemma:
        x = x + after("post_attention", mixed)
        return x + after("post_feedforward", gated(config, weights, name + ".mlp", after("pre_feedforward", x)))
    x = x + mixed
    normed = after("post_attention", x)
    if not config.has_experts(layer):
        return x + gated(config, weights, name + ".mlp", normed)
    part = "block_sparse_moe" if config.family == "mixtral" else "mlp"
    return x + experts(config, weights, f"{name}.{part}", normed, margins)


def forward(config, weights, tokens, positions=None, tables=None, margins=None):
    """Logits [T, vocabulary] of one row. `tables`, by kind of layer, replace the exact cos and sin of the positions."""
    if tables is None:
        at = range(len(tokens)) if positions is None else positions
        tables = {kind: rope_tables(config, at, kind) for kind in config.kinds()}
    margins = [] if margins is None else margins
    x = weights["model.embed_tokens.weight"][np.asarray(tokens)]
    if config.is_gemma:
        x = x * math.sqrt(config["hidden_size"])
    for layer in range(config["num_hidden_layers"]):
        x = block(config, weights, f"model.layers.{layer}", layer, x, tables[config.kind(layer)], margins)
    x = norm(config, weights, "model.norm", x)
    head = weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return capped(x @ head.T, config["final_logit_softcapping"])


def loss(logits, tokens):
    """Mean cross entropy of the next tokens: logits [rows, T, vocabulary], tokens [rows, T]."""
    picked = np.take_along_axis(log_softmax(logits[:, :-1]), np.asarray(tokens)[:, 1:, None], axis=-1)
    return -picked.mean()
