#!/usr/bin/env python3
"""Writes a Hugging Face folder of random weights with the sizes of Llama 3.2 1B, or fewer layers, for measuring how models load.

  make_folder.py FOLDER TOKENIZER.json [--dtype f32|bf16] [--layers N] [--shard-mb N]     (numpy)

With 16 layers it has 1,235,814,400 parameters: 4.9 GB in f32, 2.5 GB in bf16. FOLDER must not exist.
"""
import argparse
import json
import pathlib
import shutil
import struct

import numpy as np

DIM, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2048, 8192, 32, 8, 64, 128256
STD = 0.02


def weights(layers):
    """(name, sizes) in the order of the files."""
    yield "model.embed_tokens.weight", (VOCAB, DIM)
    for layer in range(layers):
        parts = {"self_attn.q_proj": (HEADS * HEAD_DIM, DIM), "self_attn.k_proj": (KV_HEADS * HEAD_DIM, DIM), "self_attn.v_proj": (KV_HEADS * HEAD_DIM, DIM),
                 "self_attn.o_proj": (DIM, HEADS * HEAD_DIM), "mlp.gate_proj": (HIDDEN, DIM), "mlp.up_proj": (HIDDEN, DIM), "mlp.down_proj": (DIM, HIDDEN),
                 "input_layernorm": (DIM,), "post_attention_layernorm": (DIM,)}
        for part, sizes in parts.items():
            yield f"model.layers.{layer}.{part}.weight", sizes
    yield "model.norm.weight", (DIM,)


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
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--shard-mb", type=int, default=1200)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": DIM, "intermediate_size": HIDDEN, "num_hidden_layers": flags.layers,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "max_position_embeddings": 131072,
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": {"f32": "float32", "bf16": "bfloat16"}[flags.dtype]}
    (flags.folder / "config.json").write_text(json.dumps(config, indent=2))
    shutil.copy(flags.tokenizer, flags.folder / "tokenizer.json")
    shards, room = [[]], flags.shard_mb * 10**6
    for name, sizes in weights(flags.layers):
        nbytes = int(np.prod(sizes)) * (4 if flags.dtype == "f32" else 2)
        if shards[-1] and nbytes > room:
            shards.append([])
            room = flags.shard_mb * 10**6
        shards[-1].append((name, sizes))
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
