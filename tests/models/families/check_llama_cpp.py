#!/usr/bin/env python3
"""Checks that llama.cpp computes with what `tutti convert` writes of the folders beside this file what transformers does.

  check_llama_cpp.py PROGRAM
      (the built program; llama-cpp-python 0.3.36, built from its source as for tests/weights/expected/make_llama_cpp_tokens.py;
      numpy, safetensors; run by hand)

The logits of each row of expected.safetensors are within 1e-3 of those of float64, relative to the largest, with matrices,
keys and values in f32, and within 5e-3 for Gemma, whose gelu llama.cpp looks up in a table of f16. llama.cpp takes positions without gaps only, so the rows with gaps are left out.
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
F32 = 0  # of ggml's types
BAR, BAR_OF_GELU = 1e-3, 5e-3
NOT_READ = {"gemma4-keys": "biases of Gemma 4"}  # by llama.cpp

logged = []
quiet = llama_cpp.llama_log_callback(lambda level, text, data: logged.append(text.decode(errors="replace")))


def rows_of(expected):
    for row, tokens in enumerate(expected["tokens"]):
        positions = expected["positions"][row] if "positions" in expected else np.arange(len(tokens))
        if (np.diff(positions) == 1).all():
            yield row, tokens, positions


def logits_of(model, tokens, positions):
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = 64, 64, 64
    settings.type_k = settings.type_v = F32
    settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, settings)
    assert context, "".join(logged)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, (token, position) in enumerate(zip(tokens, positions)):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, position, 1, 0, 1
    assert llama_cpp.llama_decode(context, batch) == 0, "".join(logged)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    values = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocab,)).copy() for i in range(len(tokens))]
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return np.stack(values)


def main():
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    for source in sorted(path.parent for path in HERE.glob("*/model.safetensors") if path.parent.name != "bert"):
        if source.name in NOT_READ:
            print(f"{source.name}: llama.cpp does not read {NOT_READ[source.name]}")
            continue
        with tempfile.TemporaryDirectory() as place:
            file = pathlib.Path(place) / "model.gguf"
            made = subprocess.run([sys.argv[1], "convert", source, file, "--dtype", "f32"], capture_output=True, text=True)
            if made.returncode:
                print(f"{source.name}: no GGUF: {made.stderr.strip().splitlines()[-1].strip()}")
                continue
            logged.clear()
            model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
            assert model, (source.name, "".join(logged))
            expected = load_file(source / "expected.safetensors")
            exact = expected["logits_float64"]
            told = []
            for row, tokens, positions in rows_of(expected):
                got = logits_of(model, tokens, positions)
                off = np.abs(got - exact[row]).max() / np.abs(exact[row]).max()
                assert off < (BAR_OF_GELU if source.name.startswith("gemma") else BAR), (source.name, row, off)
                told.append(f"row {row} (positions {positions[0]} to {positions[-1]}) {off:.1e}")
            llama_cpp.llama_model_free(model)
            print(f"{source.name}: {', '.join(told)}")


if __name__ == "__main__":
    main()
