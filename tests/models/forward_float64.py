#!/usr/bin/env python3
"""The forward pass of Qwen3 in float64, written from the formulas with nothing but Python's standard library: an
independent check of the models and kernels.

  forward_float64.py FOLDER            compares FOLDER/logits.txt with what the formulas give for FOLDER/model.safetensors
  forward_float64.py FOLDER --write    writes FOLDER/logits.txt

A line of logits.txt is one token: row, token id, position in its document, first token of its document in the row, and
then the logits.
"""
import json
import math
import struct
import sys

# Row 0 is one document; row 1 holds two, which must not see each other.
ROWS = [[[5, 22, 2, 19, 36, 16, 33, 13, 30, 10]], [[7, 7, 1, 0], [36, 4, 28, 4, 11, 7]]]


def read_safetensors(path):
    """Eight bytes of header length, the header as JSON, the data. Returns (metadata, {name: rows of floats})."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    metadata, tensors = header.pop("__metadata__"), {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        values = struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + length + begin)
        shape = entry["shape"]
        tensors[name] = list(values) if len(shape) == 1 else [list(values[i * shape[1]:(i + 1) * shape[1]]) for i in range(shape[0])]
    return metadata, tensors


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def linear(x, weight):  # weight [out, in]
    return [dot(row, x) for row in weight]


def rms_norm(x, weight, eps):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight, strict=True)]


def rope(x, position, theta):  # the pair (x[i], x[i + half]) turns by position * theta^(-2i / dim)
    half = len(x) // 2
    angles = [position * theta ** (-2 * i / len(x)) for i in range(half)]
    low = [x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)]
    high = [x[i + half] * math.cos(a) + x[i] * math.sin(a) for i, a in enumerate(angles)]
    return low + high


def add(a, b):
    return [x + y for x, y in zip(a, b, strict=True)]


def attend(query, keys, values):
    scores = [dot(query, k) / math.sqrt(len(query)) for k in keys]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [math.fsum(w * v[i] for w, v in zip(weights, values)) / total for i in range(len(values[0]))]


def gated(w, name, x):
    gate, up = linear(x, w(f"{name}.gate_proj")), linear(x, w(f"{name}.up_proj"))
    return linear([g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)], w(f"{name}.down_proj"))


def experts(config, w, x):
    """The best experts by the softmax of the gate, weighted by their shares of the sum of the best."""
    logits = linear(x, w("mlp.gate"))
    exponentials = [math.exp(v - max(logits)) for v in logits]
    best = sorted(range(config["experts"]), key=lambda e: (-exponentials[e], e))[:config["active_experts"]]
    total = math.fsum(exponentials[e] for e in best)
    outputs = [[exponentials[e] / total * v for v in gated(w, f"mlp.experts.{e}", x)] for e in best]
    return [math.fsum(column) for column in zip(*outputs)]


def block(config, weights, prefix, document):
    """x [tokens][dim] of one document, causal."""
    heads, kv_heads, dim = config["heads"], config["kv_heads"], config["head_dim"]
    eps, theta = config["norm_eps"], config["rope_theta"]
    w = lambda name: weights[f"{prefix}.{name}.weight"]
    split = lambda x, count: [x[h * dim:(h + 1) * dim] for h in range(count)]
    queries, keys, values = [], [], []
    for position, x in enumerate(document):
        n = rms_norm(x, w("input_layernorm"), eps)
        q, k = split(linear(n, w("self_attn.q_proj")), heads), split(linear(n, w("self_attn.k_proj")), kv_heads)
        queries.append([rope(rms_norm(h, w("self_attn.q_norm"), eps), position, theta) for h in q])
        keys.append([rope(rms_norm(h, w("self_attn.k_norm"), eps), position, theta) for h in k])
        values.append(split(linear(n, w("self_attn.v_proj")), kv_heads))
    out = []
    for t, x in enumerate(document):
        mixed = []
        for h in range(heads):
            shared = h // (heads // kv_heads)
            mixed += attend(queries[t][h], [k[shared] for k in keys[:t + 1]], [v[shared] for v in values[:t + 1]])
        h = add(x, linear(mixed, w("self_attn.o_proj")))
        n = rms_norm(h, w("post_attention_layernorm"), eps)
        out.append(add(h, experts(config, w, n) if "experts" in config else gated(w, "mlp", n)))
    return out


def logits_of(metadata, weights, document):
    config = {key: float(value) if key in ("rope_theta", "norm_eps") else int(value) for key, value in metadata.items()}
    embedding = weights["model.embed_tokens.weight"]
    x = [embedding[token] for token in document]
    for layer in range(config["layers"]):
        x = block(config, weights, f"model.layers.{layer}", x)
    head = weights.get("lm_head.weight", embedding)  # tied when absent
    return [linear(rms_norm(v, weights["model.norm.weight"], config["norm_eps"]), head) for v in x]


def table(folder):
    metadata, weights = read_safetensors(folder + "/model.safetensors")
    lines = []
    for row, documents in enumerate(ROWS):
        first = 0
        for document in documents:
            for position, values in enumerate(logits_of(metadata, weights, document)):
                lines.append(([row, document[position], position, first], values))
            first += len(document)
    return lines


def main():
    folder, fresh = sys.argv[1], table(sys.argv[1])
    if "--write" in sys.argv:
        with open(folder + "/logits.txt", "w") as file:
            for place, values in fresh:
                print(*place, *(repr(v) for v in values), file=file)
        return
    with open(folder + "/logits.txt") as file:
        stored = [line.split() for line in file]
    assert len(stored) == len(fresh), f"{len(stored)} tokens are stored, {len(fresh)} computed"
    worst = 0.0
    for words, (place, values) in zip(stored, fresh):
        assert [int(w) for w in words[:4]] == place, f"stored {words[:4]}, expected {place}"
        largest = max(abs(v) for v in values)
        worst = max([worst] + [abs(float(w) - v) / largest for w, v in zip(words[4:], values, strict=True)])
    print(f"{len(fresh)} tokens, largest difference {worst:.1e} of the largest logit")
    assert worst < 1e-12, "logits.txt is not what the formulas give for model.safetensors"


main()
