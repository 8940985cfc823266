#!/usr/bin/env python3
"""Checks what `tutti convert` writes of the folders beside this file: transformers opens it and computes the same.

  check_converted.py PROGRAM LLAMA_CPP     (the built program; as write_gguf.py; run by hand)

For each folder here, the tensors of the written folder and the logits of transformers with them are those of the source,
bit for bit. Where GGUF describes the model, the package gguf reads the written file, which has the keys and tensors that
llama.cpp's converter makes of the written folder, and transformers computes the same with the file.
"""
import pathlib
import subprocess
import sys
import tempfile

sys.path[:0] = [sys.argv[2], sys.argv[2] + "/gguf-py"]  # before that of pip, which is another version

import gguf
import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

import write_gguf
from cases import DECODERS

HERE = pathlib.Path(__file__).resolve().parent
IGNORED = ("GGUF.", "general.", "qwen3moe.feed_forward_length")  # sizes in words, and what no layer has
NOT_READ = {"llama-bias": "biases", "mistral": "models of this name", "llama-llama3": "llama3 scaling", "llama-linear": "linear scaling",
            "gemma2": "scales of scores", "gemma3": "scales of scores", "gemma3-linear": "scales of scores",
            "gemma4": "Gemma 4", "gemma4-keys": "Gemma 4", "gemma4-experts": "Gemma 4",
            "mixtral": "experts of the architecture llama", "qwen3": "head dims", "qwen3-yarn": "yarn",
            "qwen3_moe": "head dims"}  # by transformers from GGUF


def logits(model, source):
    given = load_file(source / "expected.safetensors")
    tokens = given["tokens"].long()
    positions = given["positions"].long() if "positions" in given else torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
    with torch.inference_mode():
        return model.eval()(input_ids=tokens, position_ids=positions, attention_mask=torch.ones_like(tokens),
                            use_cache=False).logits


def load(path, **keywords):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager",
                                                             experts_implementation="eager", **keywords)


def check_folder(source, folder):
    a, b = load_file(source / "model.safetensors"), load_file(folder / "model.safetensors")
    assert sorted(a) == sorted(b) and all(torch.equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a), source.name
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    keys = transformers.AutoConfig.from_pretrained(source), transformers.AutoConfig.from_pretrained(folder)
    assert type(keys[0]) is type(keys[1]) and keys[0].dtype == keys[1].dtype, source.name
    expected, got = logits(load(source), source), logits(load(folder), source)
    assert torch.equal(got, expected), (source.name, (got - expected).abs().max())
    return expected


def check_gguf(source, file, of_converter, expected):
    written, made = gguf.GGUFReader(file), gguf.GGUFReader(of_converter)
    for key, field in made.fields.items():
        if not key.startswith(IGNORED):
            assert key in written.fields, key
            assert written.fields[key].types == field.types and written.fields[key].contents() == field.contents(), key
    a, b = {t.name: t for t in made.tensors}, {t.name: t for t in written.tensors}
    assert set(a) == set(b), set(a) ^ set(b)
    for name, tensor in a.items():
        values = gguf.quants.dequantize(b[name].data, b[name].tensor_type).reshape(tensor.data.shape)
        np.testing.assert_allclose(values, tensor.data, rtol=1e-6 if name == "rope_freqs.weight" else 0, err_msg=name)
    if source.name in NOT_READ:
        return f"as of llama.cpp's converter; transformers does not read {NOT_READ[source.name]} there"
    got = logits(load(file.parent, gguf_file=file.name), source)
    difference = float((got - expected).abs().max() / expected.abs().max())
    assert difference < 1e-5, (source.name, difference)
    return f"as of llama.cpp's converter, logits of transformers with it {difference:.1e} off"


def main():
    program = sys.argv[1]
    from conversion import base, get_model_class
    for name in DECODERS:
        source = HERE / name
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            subprocess.run([program, "convert", source, place / "folder"], check=True, capture_output=True)
            expected = check_folder(source, place / "folder")
            made = subprocess.run([program, "convert", source, place / "model.gguf"], capture_output=True, text=True)
            if made.returncode:
                print(f"{name}: folder the same; no GGUF: {made.stderr.strip().splitlines()[-1].strip()}")
                continue
            write_gguf.convert(base, get_model_class, place / "folder")
            told = check_gguf(source, place / "model.gguf", place / "folder" / "model.gguf", expected)
            print(f"{name}: folder the same; GGUF {told}")


if __name__ == "__main__":
    main()
