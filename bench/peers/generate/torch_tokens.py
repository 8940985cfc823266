"""Tokens per second of transformers on PyTorch: one JSON object.

  torch_tokens.py MODEL THREADS PROMPT GENERATED DTYPE     (a Hugging Face folder)

Reads PROMPT tokens into an empty cache, then writes GENERATED tokens one by one, with its scaled_dot_product_attention. One warm-up.
"""
import json
import sys
import time

import torch
import transformers

path, threads, prompt, generated, dtype = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(threads)
model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32 if dtype == "f32" else torch.bfloat16).eval()
tokens = torch.tensor([[(i * 7919 + 13) % (model.config.vocab_size - 20) + 10 for i in range(prompt + generated)]])


def step(part, cache):
    return model(part, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values


with torch.inference_mode():
    step(tokens[:, :32], None)
    begin = time.perf_counter()
    step(tokens[:, :prompt], None)
    read = time.perf_counter() - begin
    cache = step(tokens[:, :1], None)
    begin = time.perf_counter()
    for i in range(1, generated + 1):
        cache = step(tokens[:, i:i + 1], cache)
    written = time.perf_counter() - begin
print(json.dumps({"pp": prompt / read, "tg": generated / written, "version": f"{transformers.__version__} on PyTorch {torch.__version__.split('+')[0]}"}))
