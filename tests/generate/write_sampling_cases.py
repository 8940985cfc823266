"""Writes sampling_cases.txt: rows of logits, settings, and the tokens that are left with their probabilities.

Run by hand with transformers and torch from pip: python3 tests/generate/write_sampling_cases.py > tests/generate/sampling_cases.txt
Rows of the order "transformers" are the logits processors of that library, in the order in which its generate() calls them; presence and
frequency penalties, which it lacks, are left out. Rows of the order "llama_cpp" are the formulas of its samplers in float64: penalties over
the last 64 tokens, top-k, top-p, min-p, temperature.
"""
import math
import random

import torch
from transformers import LogitsProcessorList
from transformers.generation.logits_process import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
                                                    TopKLogitsWarper, TopPLogitsWarper)

random.seed(5)


def by_transformers(logits, tokens, o):
    steps = LogitsProcessorList()
    if o["repetition"] != 1:
        steps.append(RepetitionPenaltyLogitsProcessor(o["repetition"]))
    if o["temperature"] != 1:
        steps.append(TemperatureLogitsWarper(o["temperature"]))
    if o["top_k"]:
        steps.append(TopKLogitsWarper(o["top_k"]))
    if o["top_p"] < 1:
        steps.append(TopPLogitsWarper(o["top_p"]))
    if o["min_p"]:
        steps.append(MinPLogitsWarper(o["min_p"]))
    scores = steps(torch.tensor([tokens]), torch.tensor([logits], dtype=torch.float64))[0]
    return torch.softmax(scores, -1).tolist()


def by_llama_cpp(logits, tokens, o):
    x = list(logits)
    counts = {}
    for t in tokens[-64:]:
        counts[t] = counts.get(t, 0) + 1
    for t, count in counts.items():
        x[t] = x[t] * o["repetition"] if x[t] <= 0 else x[t] / o["repetition"]
        x[t] -= count * o["frequency"] + o["presence"]
    left = sorted(range(len(x)), key=lambda t: (-x[t], t))
    if o["top_k"]:
        left = left[:o["top_k"]]
    if o["top_p"] < 1:
        weights = [math.exp(x[t] - x[left[0]]) for t in left]
        total, kept = 0, 0
        for w in weights:
            total += w / sum(weights)
            kept += 1
            if total >= o["top_p"]:
                break
        left = left[:kept]
    if o["min_p"]:
        left = [t for t in left if math.exp(x[t] - x[left[0]]) >= o["min_p"]]
    weights = {t: math.exp((x[t] - x[left[0]]) / o["temperature"]) for t in left}
    return [weights.get(t, 0) / sum(weights.values()) for t in range(len(x))]


for number in range(240):
    size = random.choice([2, 7, 40])
    logits = [torch.tensor(random.gauss(0, random.choice([0.5, 3])), dtype=torch.float32).item() for _ in range(size)]
    tokens = [random.randrange(size) for _ in range(random.choice([1, 5, 90]))]
    order = random.choice(["transformers", "llama_cpp"])
    o = {"temperature": random.choice([0.3, 1, 1, 1.7]), "top_k": random.choice([0, 0, 1, 3, 20, 100]),
         "top_p": random.choice([1, 1, 0.5, 0.9, 0.999]), "min_p": random.choice([0, 0, 0.05, 0.4, 1]),
         "repetition": random.choice([1, 1, 1.3, 0.8]), "presence": 0, "frequency": 0}
    if order == "llama_cpp":
        o["presence"], o["frequency"] = random.choice([0, 0.5, -0.2]), random.choice([0, 0.1])
    chances = (by_transformers if order == "transformers" else by_llama_cpp)(logits, tokens, o)
    print(order, *(o[k] for k in ("temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency")))
    print(*(x.hex() for x in logits))
    print(*tokens)
    print(*(f"{p:.12g}" for p in chances))
