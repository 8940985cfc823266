"""Kernels of PyTorch, called from Python without gradients. Cases on stdin, answers on stdout, as peer.h has them: torch_kernels.py THREADS."""
import itertools
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(1)


def measure(run, batch_s=0.004, batches=15):
    """bench/measure.h: batches of about 4 ms after two warm-up calls; what takes half a second is timed once."""
    def time_of(calls):
        begin = time.perf_counter()
        for _ in itertools.repeat(None, calls):
            run()
        return (time.perf_counter() - begin) / calls * 1e6
    run()
    once = time_of(1)
    calls = max(1, int(batch_s * 1e6 / max(once, 0.01)))
    samples = [time_of(calls) for _ in range(batches)] if once < 5e5 else [once]
    return min(samples), statistics.median(samples)


def random(*sizes):
    return torch.rand(*sizes) * 2 - 1


def far(got, want, tolerance):
    """The worst distance from what was computed in double precision, as a part of `tolerance`."""
    return float(((got.double() - want).abs() / (tolerance * (1 + want.abs()))).max())


def product(m, n, k, dtype, layout):
    if layout == "packed":
        return None
    if dtype == "i8":
        a, b = torch.randint(-64, 64, (m, k), dtype=torch.int8), torch.randint(-64, 64, (n, k), dtype=torch.int8)
        run = lambda: torch._int_mm(a, weight)
    else:
        kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        a, b = random(m, k).to(kind), random(n, k).to(kind)
        run = lambda: torch.mm(a, weight)
    weight = b.t() if layout == "nk" else b.t().contiguous()
    if layout == "nk" and dtype != "i8":
        run = lambda: F.linear(a, b)
    rows = slice(0, m, max(m // 8, 1))
    want = a[rows].double() @ b.double().t()
    return run, lambda got: far(got[rows], want, 1e-2 if dtype == "bf16" else 1e-5 * math.sqrt(k))


def adamw(n):
    parameter = torch.nn.Parameter(random(n))
    parameter.grad = random(n)
    optimizer = torch.optim.AdamW([parameter], lr=1e-6, fused=True)
    return optimizer.step, lambda _: 0.0 if bool(parameter.isfinite().all()) else math.inf


def attention(batch, heads, length, dim):
    q, k, v = (random(batch, heads, length, dim) for _ in range(3))
    scores = (q[:1, :1].double() @ k[:1, :1].double().transpose(-1, -2)) / math.sqrt(dim)
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    want = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v[:1, :1].double()
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), lambda got: far(got[:1, :1], want, 1e-5)


def make(op, sizes, dtype, layout):
    """The call to time, and the error of its result; None for what PyTorch has not."""
    if op == "gemm":
        return product(*sizes, dtype, layout)
    if op == "attention":
        return attention(*sizes)
    if op == "adamw":
        return adamw(*sizes)
    a, b, c = random(*sizes), random(*sizes), random(*sizes)
    w, u = random(sizes[-1]), random(sizes[-1])
    ops = {
        "softmax": lambda a, b, c, w, u: a.softmax(-1),
        "layer_norm": lambda a, b, c, w, u: F.layer_norm(a, (sizes[-1],), w, u),
        "exp": lambda a, b, c, w, u: a.exp(),
        "add": lambda a, b, c, w, u: torch.add(a, b),
        "chain": lambda a, b, c, w, u: F.gelu(a * b + c, approximate="tanh"),
    }
    if op not in ops:
        return None
    first = slice(0, max(1, sizes[0] // 64))
    check = lambda got: far(got[first], ops[op](a[first].double(), b[first].double(), c[first].double(), w.double(), u.double()), 1e-5)
    if op == "add":  # measured by its call, to which a dictionary and unpacking would add
        return (lambda: torch.add(a, b)), check
    return (lambda: ops[op](a, b, c, w, u)), check


print(json.dumps({"version": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability()}), flush=True)
for line in sys.stdin:
    words = line.split()
    numbers = [int(word) for word in words if word.isdigit()]
    texts = [word for word in words[1:] if not word.isdigit()]
    try:
        made = make(words[0], numbers, texts[0], texts[1] if len(texts) > 1 else "")
        if made is None:
            answer = {"missing": "no such operation"}
        else:
            with torch.no_grad():
                error = made[1](made[0]())
                minimum, median = measure(made[0])
            answer = {"min_us": minimum, "median_us": median, "error": error, "kernel": "torch"}
    except (RuntimeError, AttributeError, TypeError) as e:
        answer = {"missing": str(e).splitlines()[0]}
    print(json.dumps(answer), flush=True)
