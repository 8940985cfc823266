"""Kernels of PyTorch, called from Python, without gradients unless they are the case. Cases on stdin, answers on stdout, as peer.h has them: torch_kernels.py THREADS."""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

from peer import serve

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from torch_about import about  # noqa: E402

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(1)


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


def bags(rows, columns, count, length, unique):
    """Sums of bags and the gradient of the table in sparse form: as autograd leaves it, one row per lookup, or with each row of the table once."""
    table = random(rows, columns).requires_grad_()
    indices, offsets, grad = torch.randint(rows, (count * length,)), torch.arange(0, count * length, length), random(count, columns)

    @torch.enable_grad()
    def run():
        table.grad = None
        pooled = F.embedding_bag(indices, table, offsets, mode="sum", sparse=True)
        pooled.backward(grad)
        return pooled.detach(), table.grad.coalesce() if unique else table.grad

    def error(got):
        pooled, gradient = got
        want = torch.zeros(rows, columns, dtype=torch.float64).index_add(0, indices, grad.double().repeat_interleave(length, 0))
        return max(far(pooled, table.detach()[indices].double().view(count, length, columns).sum(1), 1e-5), far(gradient.to_dense(), want, 1e-5))
    return run, error


def scatter_add(sizes):
    x, source, index = random(*sizes), random(*sizes), torch.randint(sizes[0], sizes)
    return lambda: x.scatter_add(0, index, source), lambda got: far(got, x.double().scatter_add(0, index, source.double()), 1e-5)


def embedding_gradient(tokens, columns, rows):
    grad, indices = random(tokens, columns), torch.randint(rows, (tokens,))
    want = torch.zeros(rows, columns, dtype=torch.float64).index_add(0, indices, grad.double())
    return lambda: torch.ops.aten.embedding_dense_backward(grad, indices, rows, -1, False), lambda got: far(got, want, 1e-5)


def softmax_of_columns(rows, columns):
    x = random(rows, columns)
    return lambda: x.softmax(0), lambda got: far(got[:, :8] * rows, x[:, :8].double().softmax(0) * rows, 1e-5)


def make(op, sizes, dtype, layout):
    """The call to time, and the error of its result; None for what PyTorch has not."""
    made = {
        "gemm": lambda: product(*sizes, dtype, layout),
        "attention": lambda: attention(*sizes),
        "adamw": lambda: adamw(*sizes),
        "embedding_bag": lambda: bags(*sizes, unique=False),
        "embedding_bag_unique": lambda: bags(*sizes, unique=True),
        "embedding_gradient": lambda: embedding_gradient(*sizes),
        "scatter_add": lambda: scatter_add(sizes),
        "softmax_columns": lambda: softmax_of_columns(*sizes),
    }.get(op)
    if made:
        return made()
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


with torch.no_grad():
    serve(make, **about())
