"""The text model of Gemma 4 in float64 with numpy, written from the formulas and driven by config.json.

It shares no code with transformers, whose logits make_families.py compares with these. forward(..., fault=NAME) makes one
of the mistakes in FAULTS, each of which some program has made or could make: make_families.py keeps their logits, which a
test wants to be far from its own. Shapes: T tokens, D size of a head.
"""
import json
import math
import pathlib

import numpy as np

from decoder_float64 import capped, gelu_tanh, linear, rotate, softmax

FAULTS = {
    "no_layer_scalar": "layers return what they made",
    "scalar_of_branch": "layer_scalar multiplies what a layer adds, not all that it returns",
    "one_plus_weight": "norms multiply by 1 + weight, as in Gemma 1 to 3",
    "scale_by_head_dim": "scores are divided by sqrt(D)",
    "no_value_norm": "values are not normed",
    "value_norm_by_key_weight": "values are normed with the weight of the keys' norm",
    "values_of_normed_keys": "where keys are the values, values are the normed and rotated keys",
    "first_layer_shared": "layers share the keys of the first layer of their kind",
    "rope_of_whole_head": "all pairs of a head turn in layers of proportional angles",
    "rope_of_part": "the part of a head that turns is rotated as if it were the head: pairs (i, i + a)",
    "sliding_base": "layers that see all keys turn by the base of the others",
    "window_one_more": "a window counts the keys before the own",
    "no_double_width": "the wide feed-forward uses its first half",
    "no_root_half": "per-layer inputs are the sum of two parts, not divided by sqrt(2)",
    "no_table_scale": "rows of the table of per-layer inputs are not multiplied by sqrt(P)",
    "no_per_expert_scale": "weights of experts add up to 1",
    "router_reads_experts_input": "the router reads what the experts read",
    "no_router_root": "the router does not divide by sqrt(hidden)",
    "silu": "silu for gelu",
    "no_logit_cap": "logits are not capped",
}
DEFAULTS = {"rms_norm_eps": 1e-6, "sliding_window": 512, "num_kv_shared_layers": 0, "attention_k_eq_v": False,
            "hidden_size_per_layer_input": 256, "global_head_dim": 512, "enable_moe_block": False}
ANGLES = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
          "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}


class Config:
    """The text model's keys of a config.json, with the heads of full layers in either spelling."""

    is_gemma, family = True, "gemma4_text"

    def __init__(self, keys):
        self.keys = {**keys, **(keys.get("text_config") or {})}
        assert self.keys["model_type"] == self.family and self["hidden_activation"] == "gelu_pytorch_tanh"
        self.heads, self.layers = self["num_attention_heads"], self["num_hidden_layers"]
        self.first_shared = self.layers - self["num_kv_shared_layers"]

    @classmethod
    def read(cls, path):
        return cls(json.loads(pathlib.Path(path).read_text()))

    def __getitem__(self, key):
        value = self.keys.get(key)
        return DEFAULTS.get(key) if value is None else value

    def kind(self, layer):
        types = self["layer_types"]
        slides = types[layer] == "sliding_attention" if types else (layer + 1) % 6 != 0
        return "sliding_attention" if slides and layer + 1 < self.layers else "full_attention"

    def kinds(self):
        return sorted({self.kind(layer) for layer in range(self.layers)})

    def of_layer(self, layer):
        """(key/value heads, size of a head)."""
        kv_heads, dim = self["num_key_value_heads"], self["head_dim"]
        if self.keys.get("per_layer_config") is not None:
            differs = self["per_layer_config"].get(str(layer), {})
            return differs.get("num_key_value_heads", kv_heads), differs.get("head_dim", dim)
        if self.kind(layer) == "sliding_attention":
            return kv_heads, dim
        if self["attention_k_eq_v"]:
            kv_heads = self["num_global_key_value_heads"] or kv_heads
        return kv_heads, self["global_head_dim"]

    def dim_of(self, kind):
        return next(self.of_layer(layer)[1] for layer in range(self.layers) if self.kind(layer) == kind)

    def rope(self, kind):
        return dict((self["rope_parameters"] or ANGLES)[kind])

    def source(self, layer, fault):
        """The layer whose keys and values are attended to."""
        if layer < self.first_shared:
            return layer
        unshared = range(self.first_shared)
        alike = [other for other in unshared if self.kind(other) == self.kind(layer)]
        return alike[0] if fault == "first_layer_shared" else alike[-1]


def rope_tables(config, positions, kind, fault=None):
    """cos and sin [T, D/2]."""
    rope, dim = config.rope(kind), config.dim_of(kind)
    if fault == "sliding_base" and "sliding_attention" in config.kinds():
        rope["rope_theta"] = config.rope("sliding_attention")["rope_theta"]
    frequencies = np.array([rope["rope_theta"] ** (-2 * i / dim) for i in range(dim // 2)])
    if rope["rope_type"] == "proportional" and fault != "rope_of_whole_head":
        turning = int(rope["partial_rotary_factor"] * dim // 2)
        if fault == "rope_of_part":
            frequencies = np.array([rope["rope_theta"] ** (-2 * i / (2 * turning)) for i in range(dim // 2)])
        frequencies[turning:] = 0
    angles = np.outer(np.asarray(positions, np.float64), frequencies)
    return np.cos(angles), np.sin(angles)


class Forward:
    def __init__(self, config, weights, tables, margins, fault):
        self.config, self.weights, self.tables, self.margins, self.fault = config, weights, tables, margins, fault
        self.kept = {}  # layer -> (keys, values)

    def rms(self, x):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.config["rms_norm_eps"])

    def norm(self, name, x):
        return self.rms(x) * (self.weights[name + ".weight"] + (1 if self.fault == "one_plus_weight" else 0))

    def gated(self, gate, up):
        return (gate / (1 + np.exp(-gate)) if self.fault == "silu" else gelu_tanh(gate)) * up

    def rotated(self, x, kind):
        rope = self.config.rope(kind)
        if self.fault == "rope_of_part" and rope["rope_type"] == "proportional":
            turning = int(rope["partial_rotary_factor"] * x.shape[-1] // 2)
            cos, sin = (table[:, :turning] for table in self.tables[kind])
            return np.concatenate([rotate(x[..., :2 * turning], (cos, sin)), x[..., 2 * turning:]], axis=-1)
        return rotate(x, self.tables[kind])

    def keys_and_values(self, name, x, layer):
        config, kind = self.config, self.config.kind(layer)
        heads, dim = config.of_layer(layer)
        split = lambda part: linear(self.weights, f"{name}.{part}_proj", x).reshape(len(x), heads, dim)
        projected = split("k")
        is_value = config["attention_k_eq_v"] and kind == "full_attention"
        k = self.rotated(self.norm(name + ".k_norm", projected), kind)
        v = projected if is_value else split("v")
        if self.fault == "values_of_normed_keys" and is_value:
            return k, self.rms(k)
        if self.fault == "value_norm_by_key_weight":
            return k, self.norm(name + ".k_norm", v)
        return k, v if self.fault == "no_value_norm" else self.rms(v)

    def attention(self, name, x, layer):
        config, kind, tokens = self.config, self.config.kind(layer), len(x)
        kv_heads, dim = config.of_layer(layer)
        source = config.source(layer, self.fault)
        q = linear(self.weights, name + ".q_proj", x).reshape(tokens, config.heads, dim)
        q = self.rotated(self.norm(name + ".q_norm", q), kind)
        if source == layer:
            self.kept[layer] = self.keys_and_values(name, x, layer)
        k, v = self.kept[source]
        distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
        window = config["sliding_window"] if kind == "sliding_attention" else tokens
        visible = (distance >= 0) & (distance < window + (self.fault == "window_one_more"))
        scale = dim ** -0.5 if self.fault == "scale_by_head_dim" else 1.0
        mixed = np.empty((tokens, config.heads, dim))
        for head in range(config.heads):
            shared = head // (config.heads // kv_heads)
            scores = np.where(visible, q[:, head] @ k[:, shared].T * scale, -np.inf)
            mixed[:, head] = softmax(scores) @ v[:, shared]
        return linear(self.weights, name + ".o_proj", mixed.reshape(tokens, -1))

    def feed_forward(self, name, x, layer):
        gate, up = (linear(self.weights, f"{name}.{part}_proj", x) for part in ("gate", "up"))
        active = self.gated(gate, up)
        if self.fault == "no_double_width" and layer >= self.config.first_shared:
            active[:, active.shape[1] // 2:] = 0
        return linear(self.weights, name + ".down_proj", active)

    def experts(self, name, x):
        """Reads the residual x; the smallest distance between shares of experts goes to `margins`."""
        config, weights = self.config, self.weights
        inputs = self.norm(name + ".pre_feedforward_layernorm_2", x)
        read = inputs if self.fault == "router_reads_experts_input" else self.rms(x) * weights[name + ".router.scale"]
        if self.fault != "no_router_root":
            read = read / math.sqrt(config["hidden_size"])
        shares, active = softmax(linear(weights, name + ".router.proj", read)), config["top_k_experts"]
        order = np.argsort(-shares, axis=-1, kind="stable")
        ranked = np.take_along_axis(shares, order, axis=-1)
        if active < ranked.shape[-1]:
            self.margins.append((ranked[:, active - 1] - ranked[:, active]).min())
        y = np.zeros_like(x)
        for token in range(len(x)):
            total = ranked[token, :active].sum()
            for expert, share in zip(order[token, :active], ranked[token, :active]):
                gate, up = np.split(weights[name + ".experts.gate_up_proj"][expert] @ inputs[token], 2)
                made = weights[name + ".experts.down_proj"][expert] @ self.gated(gate, up)
                scale = 1 if self.fault == "no_per_expert_scale" else weights[name + ".router.per_expert_scale"][expert]
                y[token] += share / total * scale * made
        return y

    def per_layer_inputs(self, x, tokens):
        """[T, layers, P], or None."""
        config, size = self.config, self.config["hidden_size_per_layer_input"]
        if size == 0:
            return None
        projected = linear(self.weights, "model.per_layer_model_projection", x) / math.sqrt(config["hidden_size"])
        shape = (len(x), config.layers, size)
        normed = self.norm("model.per_layer_projection_norm", projected.reshape(shape))
        rows = self.weights["model.embed_tokens_per_layer.weight"][np.asarray(tokens)].reshape(shape)
        both = normed + rows * (1 if self.fault == "no_table_scale" else math.sqrt(size))
        return both if self.fault == "no_root_half" else both / math.sqrt(2)

    def layer(self, layer, x, inputs):
        name, before = f"model.layers.{layer}", x
        norm = lambda part, y: self.norm(f"{name}.{part}", y)
        mixed = self.attention(name + ".self_attn", norm("input_layernorm", x), layer)
        x = x + norm("post_attention_layernorm", mixed)
        made = self.feed_forward(name + ".mlp", norm("pre_feedforward_layernorm", x), layer)
        if self.config["enable_moe_block"]:
            made = (norm("post_feedforward_layernorm_1", made)
                    + norm("post_feedforward_layernorm_2", self.experts(name, x)))
        x = x + norm("post_feedforward_layernorm", made)
        if inputs is not None:
            gated = self.gated(linear(self.weights, name + ".per_layer_input_gate", x), inputs[:, layer])
            x = x + norm("post_per_layer_input_norm", linear(self.weights, name + ".per_layer_projection", gated))
        scalar = self.weights[name + ".layer_scalar"]
        if self.fault == "scalar_of_branch":
            return before + (x - before) * scalar
        return x if self.fault == "no_layer_scalar" else x * scalar


def forward(config, weights, tokens, positions=None, tables=None, margins=None, fault=None):
    """Logits [T, vocabulary] of one row. `tables`, by kind of layer, replace the exact cos and sin of the positions."""
    if tables is None:
        at = range(len(tokens)) if positions is None else positions
        tables = {kind: rope_tables(config, at, kind, fault) for kind in config.kinds()}
    run = Forward(config, weights, tables, [] if margins is None else margins, fault)
    x = weights["model.embed_tokens.weight"][np.asarray(tokens)] * math.sqrt(config["hidden_size"])
    inputs = run.per_layer_inputs(x, tokens)
    for layer in range(config.layers):
        x = run.layer(layer, x, inputs)
    x = run.norm("model.norm", x)
    cap = None if fault == "no_logit_cap" else config["final_logit_softcapping"]
    return capped(x @ weights["model.embed_tokens.weight"].T, cap)
