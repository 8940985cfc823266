#!/usr/bin/env python3
"""Writes gemma4_31b_layers.json beside this file: two layers of Gemma 4 31B in GGUF files of `tutti convert`, in two programs.

  gemma4_31b_layers.py PROGRAM FOLDER
      (the built program; an empty folder for 12 GB of files; llama-cpp-python 0.3.36, built from its source as for
      make_llama_cpp_tokens.py; numpy; run by hand, 8 GiB of memory)

The layers have the sizes of the published model, one of each kind: 5376 features, 21504 hidden ones, 32 heads, of which the
first layer has 16 keys of 256 features in a window of 1024 and the second 4 keys of 512, which are values, too; 262144 tokens.
Weights are random, in bf16; what layers add is so large beside the embeddings that the next token is not the last one again.

The model is converted to Q6_K and Q4_K_M, and gets a vocabulary of bytes and numbers, by which its tokens can be told. Both
programs continue 8 tokens by 16 of the largest logit with the file as it is: `tutti generate --quantized` and llama.cpp, with
keys and values in f32. Both round activations to the same blocks of 8 bits, but add in other orders, so that a code may come
out one larger or smaller, and llama.cpp looks gelu up in a table of f16. Where tokens differ, the distance of the best two logits (margins) is printed.
"""
import json
import pathlib
import re
import struct
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
DIM, HIDDEN, VOCAB, HEADS = 5376, 21504, 262144, 32
DEVIATION = 0.02
PROMPT, NEW_TOKENS, FIRST_NUMBER = "the sea!", 16, 257
F32 = 0  # of ggml's types

CONFIG = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "dtype": "bfloat16", "attention_bias": False,
    "attention_k_eq_v": True, "enable_moe_block": False, "final_logit_softcapping": 30.0, "head_dim": 256, "global_head_dim": 512,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": DIM, "hidden_size_per_layer_input": 0, "intermediate_size": HIDDEN,
    "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 262144, "num_attention_heads": HEADS,
    "num_global_key_value_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 16, "num_kv_shared_layers": 0,
    "rms_norm_eps": 1e-6, "sliding_window": 1024, "tie_word_embeddings": True, "use_double_wide_mlp": False, "vocab_size": VOCAB,
    "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
                        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}},
    "bos_token_id": 2, "eos_token_id": VOCAB - 1,
}


def tensors():
    """(name, sizes, mean of a vector)"""
    yield "model.embed_tokens.weight", (VOCAB, DIM), 0
    for layer, (keys, features) in enumerate([(16, 256), (4, 512)]):
        prefix = f"model.layers.{layer}."
        for norm, mean in [("input_layernorm", 1), ("post_attention_layernorm", 25), ("pre_feedforward_layernorm", 1),
                           ("post_feedforward_layernorm", 25)]:
            yield f"{prefix}{norm}.weight", (DIM,), mean
        yield f"{prefix}layer_scalar", (1,), 1
        yield f"{prefix}self_attn.q_proj.weight", (HEADS * features, DIM), 0
        yield f"{prefix}self_attn.k_proj.weight", (keys * features, DIM), 0
        if layer == 0:
            yield f"{prefix}self_attn.v_proj.weight", (keys * features, DIM), 0
        yield f"{prefix}self_attn.o_proj.weight", (DIM, HEADS * features), 0
        yield f"{prefix}self_attn.q_norm.weight", (features,), 1
        yield f"{prefix}self_attn.k_norm.weight", (features,), 1
        for name, sizes in [("gate", (HIDDEN, DIM)), ("up", (HIDDEN, DIM)), ("down", (DIM, HIDDEN))]:
            yield f"{prefix}mlp.{name}_proj.weight", sizes, 0
    yield "model.norm.weight", (DIM,), 1


def write_source(folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header, end = {}, 0
    for name, sizes, _ in tensors():
        begin, end = end, end + 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(31)
    bf16 = lambda values: (values.view(np.uint32) >> 16).astype(np.uint16)
    # Matrices take pieces of one pool, from places that never put its elements at one column of a row twice.
    most, step, pieces = 1 << 24, 6151, 0
    pool = bf16(random.standard_normal(most + 200 * step, dtype=np.float32) * np.float32(DEVIATION))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, sizes, mean in tensors():
            left = int(np.prod(sizes))
            if len(sizes) == 1:
                values = np.float32(mean) + np.float32(0.1 if left > 1 else 0) * random.standard_normal(left, dtype=np.float32)
                file.write(bf16(values).tobytes())
                continue
            while left > 0:
                count = min(left, most)
                file.write(pool[pieces * step : pieces * step + count].tobytes())
                left, pieces = left - count, pieces + 1


# ---- GGUF: a key is its name, a type and a value

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, I32, BOOL, TEXT, LIST = 4, 5, 7, 8, 9


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def end_of_value(data, at, kind):
    if kind == TEXT:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != LIST:
        return at + SIZES[kind]
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = end_of_value(data, at, kind)
    return at


def vocabulary():
    """The 256 bytes in the alphabet of GPT-2, one merge, as files have some, then numbers."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    tokens = [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
    tokens += ["zq"] + [f"<{token}>" for token in range(FIRST_NUMBER, VOCAB)]
    keys = [text("tokenizer.ggml.model") + struct.pack("<I", TEXT) + text("gpt2"),
            text("tokenizer.ggml.pre") + struct.pack("<I", TEXT) + text("gpt-2"),
            text("tokenizer.ggml.tokens") + struct.pack("<IIQ", LIST, TEXT, VOCAB) + b"".join(map(text, tokens)),
            text("tokenizer.ggml.token_type") + struct.pack("<IIQ", LIST, I32, VOCAB) + struct.pack("<i", 1) * (VOCAB - 1) + struct.pack("<i", 3),
            text("tokenizer.ggml.merges") + struct.pack("<IIQ", LIST, TEXT, 1) + text("z q"),
            text("tokenizer.ggml.eos_token_id") + struct.pack("<II", U32, VOCAB - 1),
            text("tokenizer.ggml.add_bos_token") + struct.pack("<I", BOOL) + b"\0"]
    return len(keys), b"".join(keys)


def add_vocabulary(source, target):
    """The file without its own keys of a vocabulary, of which one may be its eos, and with this one."""
    data = np.memmap(source, np.uint8, "r")
    head = bytes(data[: 1 << 22])
    version, count, keys = struct.unpack_from("<IQQ", head, 4)
    at, kept = 24, []
    for _ in range(keys):
        begin = at
        name = head[at + 8 : at + 8 + struct.unpack_from("<Q", head, at)[0]]
        at += 8 + len(name)
        at = end_of_value(head, at + 4, struct.unpack_from("<I", head, at)[0])
        if not name.startswith(b"tokenizer."):
            kept.append(head[begin:at])
    infos = at
    for _ in range(count):
        at += 8 + struct.unpack_from("<Q", head, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", head, at)[0] + 12
    more, added = vocabulary()
    out = b"GGUF" + struct.pack("<IQQ", version, count, len(kept) + more) + b"".join(kept) + added + head[infos:at]
    with open(target, "wb") as file:
        file.write(out + b"\0" * (-len(out) % 32))
        begin = at + -at % 32
        for place in range(begin, len(data), 1 << 26):
            file.write(data[place : place + (1 << 26)].tobytes())


def tokens_of_tutti(program, file):
    said = subprocess.run([program, "generate", file, PROMPT, "--temperature", "0", "--max-tokens", str(NEW_TOKENS), "--context", "64",
                           "--quantized"], check=True, capture_output=True).stdout
    assert said.startswith(PROMPT.encode()) and said.endswith(b"\n"), said
    tokens = []
    for number, byte in re.findall(rb"<(\d+)>|(.)", said[len(PROMPT) : -1], re.DOTALL):
        tokens.append(int(number) if number else byte[0])
    return tokens


def tokens_of_llama(file):
    import llama_cpp

    llama = llama_cpp.Llama(str(file), n_ctx=64, n_threads=2, n_threads_batch=2, type_k=F32, type_v=F32, flash_attn=False, verbose=False)
    llama.eval(list(PROMPT.encode()))
    tokens, margins = [], []
    while True:
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llama.ctx, -1), (VOCAB,))
        best = np.partition(logits, -2)[-2:]
        tokens.append(int(logits.argmax())), margins.append(round(float(best[1] - best[0]), 5))
        if len(tokens) == NEW_TOKENS:
            return tokens, margins
        llama.eval(tokens[-1:])


def main():
    program, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    write_source(work / "source")
    results = {"prompt": list(PROMPT.encode()), "files": []}
    for name in ("q6_k", "q4_k_m"):
        plain, file = work / f"{name}.plain.gguf", work / f"{name}.gguf"
        said = json.loads(subprocess.run([program, "convert", work / "source", plain, "--dtype", name, "--json"], check=True, capture_output=True).stdout)
        add_vocabulary(plain, file)
        plain.unlink()
        ours, (theirs, margins) = tokens_of_tutti(program, file), tokens_of_llama(file)
        same = next((i for i in range(NEW_TOKENS) if ours[i] != theirs[i]), NEW_TOKENS)
        print(f"{name}: {said['target_nbytes'] / 1e9:.3f} GB of tensors, {same} of {NEW_TOKENS} tokens are the same"
              + ("" if same == NEW_TOKENS else f"; the best two of the next are {margins[same]} apart"))
        results["files"].append({"type": name, "parameters": said["parameters"], "source_nbytes": said["source_nbytes"],
                                 "target_nbytes": said["target_nbytes"], "tutti": ours, "llama_cpp": theirs, "margins": margins, "same": same})
        (HERE / "gemma4_31b_layers.json").write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
