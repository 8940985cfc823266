#!/usr/bin/env python3
"""Writes smollm2_llama_cpp.safetensors beside this file: the tokens that llama.cpp takes with what `tutti convert` writes.

  make_llama_cpp_tokens.py PROGRAM SMOLLM2.gguf
      (llama-cpp-python 0.3.36, built from its source: CMAKE_ARGS=-DGGML_OPENMP=OFF pip install --no-binary llama-cpp-python
      llama-cpp-python; numpy, safetensors; run by hand)

PROGRAM is the built program, SMOLLM2.gguf the file of make_weights_oracles.py. It is converted to F32, F16 and Q8_0, and the
latter two to F32 again. llama.cpp continues each line of prompts.txt by 100 tokens of the largest logit, whatever they are,
with keys and values in f32 and without flash attention.

Tensors, for T in f32, f16, q8_0: T.prompt.N, T.greedy.N, T.margin.N: I32, I32 [100], F32 [100]: a prompt, the tokens, and the
distance of the largest logit from the second, with the values of type T in an F32 file.

llama.cpp rounds activations to the type of the weights before it multiplies F16 and Q8_0, so with the files themselves it may
take other tokens than with their values in F32. The script prints where it does, and by how much the logits of the prompts
differ.
"""
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
NEW_TOKENS = 100
F32 = 0  # of ggml's types


class Model:
    def __init__(self, path):
        self.llama = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, n_threads_batch=1, type_k=F32, type_v=F32, flash_attn=False, verbose=False)
        self.vocab = self.llama.n_vocab()

    def logits(self):
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.llama.ctx, -1), (self.vocab,)).copy()

    def start(self, tokens):
        self.llama.reset()
        self.llama.eval(tokens)
        return self.logits()

    def greedy(self, prompt):
        """(tokens, margins, logits after the prompt)"""
        first = logits = self.start(prompt)
        tokens, margins = [], []
        while len(tokens) < NEW_TOKENS:
            tokens.append(int(logits.argmax()))
            best = np.partition(logits, -2)[-2:]
            margins.append(best[1] - best[0])
            if len(tokens) < NEW_TOKENS:
                self.llama.eval(tokens[-1:])
                logits = self.logits()
        return tokens, np.float32(margins), first


def convert(program, source, target, dtype):
    subprocess.run([program, "convert", source, target, "--dtype", dtype], check=True, capture_output=True)
    return target


def compare(name, model, expected):
    same = 0
    for number, (prompt, tokens, margins, first) in enumerate(expected):
        got, _, logits = model.greedy(prompt)
        differs = [i for i in range(NEW_TOKENS) if got[i] != tokens[i]]
        same += not differs
        off = np.abs(logits - first).max() / np.abs(first).max()
        at = f"token {differs[0]}, where the best two are {margins[differs[0]]:.4f} apart" if differs else "nowhere"
        print(f"{name}.gguf itself, prompt {number}: differs at {at}; logits after the prompt by {off:.1e} of the largest")
    print(f"{name}.gguf itself: {same} of {len(expected)} continuations are those of its values in F32")


def main():
    program, source = sys.argv[1:]
    prompts = (HERE / "prompts.txt").read_text().splitlines()
    out = {}
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        for name in ("f32", "f16", "q8_0"):
            file = convert(program, source, place / f"{name}.gguf", name)
            values = file if name == "f32" else convert(program, file, place / f"{name}.f32.gguf", "f32")
            model, expected = Model(values), []
            for number, text in enumerate(prompts):
                prompt = model.llama.tokenize(text.encode(), add_bos=False, special=False)
                tokens, margins, first = model.greedy(prompt)
                expected.append((prompt, tokens, margins, first))
                out[f"{name}.prompt.{number}"], out[f"{name}.greedy.{number}"] = np.int32(prompt), np.int32(tokens)
                out[f"{name}.margin.{number}"] = margins
            print(f"{name}: {len(prompts)} prompts, least margin {min(m.min() for _, _, m, _ in expected):.5f}")
            if name != "f32":
                compare(name, Model(file), expected)
    save_file(out, HERE / "smollm2_llama_cpp.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
