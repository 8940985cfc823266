#!/usr/bin/env python3
"""Writes rope_frequencies.txt beside this file: radians per position of each pair, by transformers and by the formulas.

  write_rope_frequencies.py      (Python 3.11, torch 2.15.0, transformers 5.24.0, numpy 2.4.6)

A case is a line "case NAME JSON" (head_dim, max_position_embeddings and the keys of rope_parameters), a line
"attention_factor F64", and a line "PAIR F32 F64" for each pair. F32 is what transformers computes in float32, F64 the
formula of decoder_float64.py, which the functions of transformers agree with to 1e-13 in float64. Numbers are C hex floats.
"""
import json
import pathlib

import numpy as np
import torch
import transformers

import decoder_float64 as formulas
from make_families import float64_for_float32

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)
DEEPSEEK = dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0)
CASES = [  # name, head_dim, theta, max_position_embeddings, the other keys
    ("default-llama2", 128, 10000.0, 4096, dict(rope_type="default")),
    ("default-smollm2", 64, 100000.0, 8192, dict(rope_type="default")),
    ("default-qwen3", 128, 1000000.0, 40960, dict(rope_type="default")),
    ("linear-4", 128, 10000.0, 16384, dict(rope_type="linear", factor=4.0)),
    ("llama3.1", 128, 500000.0, 131072, LLAMA3 | dict(factor=8.0)),
    ("llama3.2-1b", 64, 500000.0, 131072, LLAMA3 | dict(factor=32.0)),
    ("llama3.2-3b", 128, 500000.0, 131072, LLAMA3 | dict(factor=32.0)),
    ("yarn-qwen2.5", 128, 1000000.0, 32768, YARN),
    ("yarn-no-original", 128, 1000000.0, 32768, dict(rope_type="yarn", factor=4.0)),
    ("yarn-attention-factor", 128, 1000000.0, 131072, YARN | dict(attention_factor=1.5)),
    ("yarn-deepseek-v2-lite", 64, 10000.0, 163840, DEEPSEEK | dict(mscale=0.707, mscale_all_dim=0.707)),
    ("yarn-deepseek-mscale", 64, 10000.0, 163840, DEEPSEEK | dict(mscale=1.0, mscale_all_dim=0.5)),
    ("yarn-only-mscale", 64, 10000.0, 163840, DEEPSEEK | dict(mscale=0.707)),
    ("yarn-gpt-oss", 64, 150000.0, 131072, DEEPSEEK | dict(factor=32.0, truncate=False)),
]


def by_transformers(keys, head_dim, longest):
    config = transformers.LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                                      max_position_embeddings=longest, rope_parameters=dict(keys))
    rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    return rotary.inv_freq.numpy(), float(rotary.attention_scaling)


def main():
    lines = []
    for name, head_dim, theta, longest, keys in CASES:
        keys = {"rope_theta": theta, **keys}
        single, factor = by_transformers(keys, head_dim, longest)
        with float64_for_float32():
            double, _ = by_transformers(keys, head_dim, longest)
        rope = {"original_max_position_embeddings": longest, **keys}
        exact, exact_factor = formulas.inverse_frequencies(rope, head_dim)
        assert single.dtype == np.float32 and double.dtype == np.float64
        assert np.abs(double / exact - 1).max() < 1e-13 and abs(factor - exact_factor) < 1e-15, name
        lines.append(f"case {name} {json.dumps({'head_dim': head_dim, 'max_position_embeddings': longest, **keys})}")
        lines.append(f"attention_factor {exact_factor.hex()}")
        lines += [f"{i} {float(a).hex()} {float(b).hex()}" for i, (a, b) in enumerate(zip(single, exact))]
        apart = np.abs(single.view(np.int32) - exact.astype(np.float32).view(np.int32))
        print(f"{name:22} factor {factor:.6f}, float32 is not the rounded float64 in {np.count_nonzero(apart)} of "
              f"{len(apart)} pairs, by at most {apart.max()} ULP")
    pathlib.Path(__file__).with_name("rope_frequencies.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main()
