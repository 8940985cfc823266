#!/usr/bin/env python3
"""Writes a Hugging Face folder of random weights of Llama's architecture, for measuring how models load and run.

  make_folder.py FOLDER TOKENIZER.json [--sizes 1b|0.6b] [--dtype f32|bf16] [--layers N] [--shard-mb N]     (numpy)

1b has the sizes of Llama 3.2 1B: 1,235,814,400 parameters, 4.9 GB in f32, 2.5 GB in bf16. 0.6b has those of Qwen3 0.6B but for the tokens, whose number is that of
Llama 3: 571,794,432 parameters. FOLDER must not exist.
"""
import argparse
import json
import pathlib
import shutil
import struct

import numpy as np

VOCAB = 128256
# Dim, hidden, heads, key/value heads, elements of a head, layers.
SIZES = {"1b": (2048, 8192, 32, 8, 64, 16), "0.6b": (1024, 3072, 16, 8, 128, 28)}
STD = 0.02


def weights(sizes, layers):
    """(name, sizes) in the order of the files."""
    dim, hidden, heads, kv_heads, head_dim, _ = sizes
    yield "model.embed_tokens.weight", (VOCAB, dim)
    for layer in range(layers):
        parts = {"self_attn.q_proj": (heads * head_dim, dim), "self_attn.k_proj": (kv_heads * head_dim, dim), "self_attn.v_proj": (kv_heads * head_dim, dim),
                 "self_attn.o_proj": (dim, heads * head_dim), "mlp.gate_proj": (hidden, dim), "mlp.up_proj": (hidden, dim), "mlp.down_proj": (dim, hidden),
                 "input_layernorm": (dim,), "post_attention_layernorm": (dim,)}
        for part, sizes in parts.items():
            yield f"model.layers.{layer}.{part}.weight", sizes
    yield "model.norm.weight", (dim,)


def values(random, sizes, dtype):
    numbers = random.standard_normal(sizes, dtype=np.float32) * np.float32(STD) if len(sizes) > 1 else np.ones(sizes, np.float32)
    return numbers if dtype == "f32" else (numbers.view(np.uint32) >> 16).astype(np.uint16)


def write_shard(path, tensors, random, dtype):
    itemsize, header, end = (4 if dtype == "f32" else 2), {"__metadata__": {"format": "pt"}}, 0
    for name, sizes in tensors:
        begin, end = end, end + int(np.prod(sizes)) * itemsize
        header[name] = {"dtype": dtype.upper(), "shape": list(sizes), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, sizes in tensors:
            values(random, sizes, dtype).tofile(file)
    return end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--sizes", choices=sorted(SIZES), default="1b")
    parser.add_argument("--layers", type=int, help="all of them by default")
    parser.add_argument("--shard-mb", type=int, default=1200)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True)
    sizes = SIZES[flags.sizes]
    dim, hidden, heads, kv_heads, head_dim, all_layers = sizes
    layers = flags.layers or all_layers
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim, "intermediate_size": hidden, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": VOCAB, "max_position_embeddings": 131072,
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": {"f32": "float32", "bf16": "bfloat16"}[flags.dtype]}
    (flags.folder / "config.json").write_text(json.dumps(config, indent=2))
    shutil.copy(flags.tokenizer, flags.folder / "tokenizer.json")
    shards, room = [[]], flags.shard_mb * 10**6
    for name, extents in weights(sizes, layers):
        nbytes = int(np.prod(extents)) * (4 if flags.dtype == "f32" else 2)
        if shards[-1] and nbytes > room:
            shards.append([])
            room = flags.shard_mb * 10**6
        shards[-1].append((name, extents))
        room -= nbytes
    random, total, places = np.random.default_rng(1), 0, {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        total += write_shard(flags.folder / file, shard, random, flags.dtype)
        places.update((name, file) for name, _ in shard)
    (flags.folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}))
    print(f"{flags.folder}: {total} bytes of weights in {len(shards)} files")


if __name__ == "__main__":
    main()
