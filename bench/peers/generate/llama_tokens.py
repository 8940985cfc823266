"""Tokens per second of llama.cpp through llama-cpp-python: one JSON object.

  llama_tokens.py MODEL.gguf THREADS PROMPT GENERATED

Reads PROMPT tokens into an empty cache in batches of 512, then writes GENERATED tokens one by one, with the keys and values (f16) and the kind of attention that are its defaults. One warm-up.
"""
import json
import sys
import time

import llama_cpp

model, threads, prompt, generated = sys.argv[1], *map(int, sys.argv[2:5])
llama = llama_cpp.Llama(model_path=model, n_ctx=prompt + generated + 16, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
tokens = [(i * 7919 + 13) % (llama.n_vocab() - 20) + 10 for i in range(prompt + generated)]


def seconds(parts):
    llama.reset()
    begin = time.perf_counter()
    for part in parts:
        llama.eval(part)
    return time.perf_counter() - begin


seconds([tokens[:32]])
read = seconds([tokens[:prompt]])
llama.reset()
llama.eval(tokens[:1])
begin = time.perf_counter()
for token in tokens[1:generated + 1]:
    llama.eval([token])
written = time.perf_counter() - begin
print(json.dumps({"pp": prompt / read, "tg": generated / written, "version": llama_cpp.__version__}))
