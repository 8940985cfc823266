"""Kernels of MLX on its CPU device, called from Python and evaluated at each call. Cases on stdin, answers on stdout, as peer.h has them: mlx_kernels.py.

Threads are those of the BLAS that it calls; its other kernels run in one. What mx.compile may fuse is also timed compiled, and the faster way counts.
"""
import math

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from peer import serve

mx.set_default_device(mx.cpu)
mx.random.seed(1)


def random(*sizes):
    return mx.random.uniform(-1, 1, sizes)


def wide(x):
    return np.array(x).astype(np.float64)


def far(got, want, tolerance):
    """The worst distance from what was computed in double precision, as a part of `tolerance`."""
    return float((np.abs(wide(got) - want) / (tolerance * (1 + np.abs(want)))).max())


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, w, b):
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * w + b


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def product(m, n, k, dtype, layout):
    if layout == "packed" or dtype != "f32":
        return None
    a, b = random(m, k), random(n, k)
    weight = b.T if layout == "nk" else mx.contiguous(b.T)
    rows = slice(0, m, max(m // 8, 1))
    return lambda a, w: a @ w, (a, weight), lambda got: far(got[rows], wide(a[rows]) @ wide(b).T, 1e-5 * math.sqrt(k))


def attention(batch, heads, length, dim):
    q, k, v = (random(batch, heads, length, dim) for _ in range(3))
    hidden = np.triu(np.full((length, length), -np.inf), 1)
    want = lambda: softmax(wide(q[0, 0]) @ wide(k[0, 0]).T / math.sqrt(dim) + hidden) @ wide(v[0, 0])
    return lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=dim**-0.5, mask="causal"), (q, k, v), lambda got: far(got[0, 0], want(), 1e-5)


def adamw(n):
    """Its AdamW written as a function of parameter, gradient and state, which can be compiled; it makes new arrays either way."""
    def step(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * mx.square(g)
        return p * (1 - 1e-6 * 0.01) - 1e-6 * m / (mx.sqrt(v) + 1e-8), m, v
    return step, (random(n), random(n), mx.zeros(n), mx.zeros(n)), lambda got: 0.0 if bool(mx.isfinite(got[0]).all()) else math.inf


def of_rows(op, sizes):
    a, b, c, w, u = random(*sizes), random(*sizes), random(*sizes), random(sizes[-1]), random(sizes[-1])
    ops = {
        "softmax": (lambda a: mx.softmax(a, -1), softmax, (a,)),
        "layer_norm": (lambda a, w, u: mx.fast.layer_norm(a, w, u, 1e-5), layer_norm, (a, w, u)),
        "exp": (mx.exp, np.exp, (a,)),
        "add": (mx.add, np.add, (a, b)),
        "chain": (lambda a, b, c: nn.gelu_approx(a * b + c), lambda a, b, c: gelu(a * b + c), (a, b, c)),
    }
    if op not in ops:
        return None
    function, exact, operands = ops[op]
    first = slice(0, max(1, sizes[0] // 64))
    return function, operands, lambda got: far(got[first], exact(*(wide(x[first] if x.shape == a.shape else x) for x in operands)), 1e-5)


def make(op, sizes, dtype, layout):
    """The call to time, and the error of its result; None for what MLX has not."""
    ops = {"gemm": lambda: product(*sizes, dtype, layout), "attention": lambda: attention(*sizes), "adamw": lambda: adamw(*sizes)}
    made = ops.get(op, lambda: of_rows(op, sizes))()
    if made is None:
        return None
    function, operands, error = made
    mx.eval(*operands)

    def evaluated(function):
        def run():
            result = function(*operands)
            mx.eval(result)
            return result
        return run
    return ({"eager": evaluated(function), "compiled": evaluated(mx.compile(function))} if op in ("chain", "adamw") else evaluated(function)), error


serve(make, version=mx.__version__, isa="its CPU device")
