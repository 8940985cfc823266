"""Perplexity of a text by llama.cpp through llama-cpp-python, as `tutti eval` defines it: one JSON object.

  llama_perplexity.py MODEL.gguf TEXT [--window 1024] [--threads 2]

TEXT is one document. Each token after the first is predicted from at most --window tokens before it: the text is cut into windows of so many tokens, which share one token. Keys and values are f32, attention is
not flash attention; activations of quantized weights are rounded as llama.cpp does it.
"""
import argparse
import json
import math
import pathlib

import llama_cpp
import numpy

flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
flags.add_argument("model")
flags.add_argument("text", type=pathlib.Path)
flags.add_argument("--window", type=int, default=1024)
flags.add_argument("--threads", type=int, default=2)
args = flags.parse_args()

llama = llama_cpp.Llama(model_path=args.model, n_ctx=args.window, n_batch=args.window, n_threads=args.threads, n_threads_batch=args.threads, logits_all=True, flash_attn=False,
                        type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, verbose=False)
tokens = llama.tokenize(args.text.read_bytes(), add_bos=True, special=False)
if len(tokens) < 2:
    raise SystemExit(f"llama_perplexity.py: {args.text} has {len(tokens)} tokens; a perplexity needs two or more")
sums = []
for begin in range(0, len(tokens) - 1, args.window):
    inputs, labels = tokens[begin:begin + args.window], tokens[begin + 1:begin + args.window + 1]
    inputs = inputs[:len(labels)]
    llama.reset()
    llama.eval(inputs)
    logits = llama.scores[:len(inputs)].astype(numpy.float64)
    most = logits.max(axis=1)
    sums.extend(logits[range(len(labels)), labels] - most - numpy.log(numpy.exp(logits - most[:, None]).sum(axis=1)))
print(json.dumps({"tokens": len(sums), "perplexity": math.exp(-math.fsum(sums) / len(sums)), "version": llama_cpp.__version__}))
