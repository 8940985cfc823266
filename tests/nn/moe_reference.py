"""Results and gradients of a mixture of experts in PyTorch for tests/nn/moe_test.cpp: `moe_reference.py tests/golden/pytorch_moe.txt`.

A case is a line `case NAME SCORES TOP_K NORM SCALE GROUPS LIMIT SHARED BIASED`, and then tensors, each a line `NAME DTYPE NDIM SIZE... VALUE...`: x, the
parameters, expert_bias, the expert ids and weights of each token, y, and the gradients of the sum of y times 1, 2, ..., 7, 1, 2, ... All is in f64.
"""
import sys

import torch
import torch.nn.functional as F

T, D, FF, E = 11, 6, 5, 8
lines = []


def tensor(name, t):
    dtype = "i64" if t.dtype == torch.int64 else "f64"
    lines.append(" ".join([name, dtype, str(t.ndim), *map(str, t.shape), *[repr(v) for v in t.detach().reshape(-1).tolist()]]))


def route(x, gate, bias, scores, k, norm, scale, groups, limit):
    s = x @ gate.T
    s = torch.softmax(s, -1) if scores == "softmax" else torch.sigmoid(s)
    choice = s.detach() + bias
    if groups:
        grouped = choice.view(-1, groups, E // groups)
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(limit, dim=-1).indices
        out = torch.ones(len(x), groups, dtype=torch.bool).scatter_(1, best, False)
        choice = grouped.masked_fill(out.unsqueeze(-1), float("-inf")).view(-1, E)
    ids = choice.topk(k, dim=-1).indices
    order = s.detach().gather(1, ids).argsort(dim=-1, descending=True)  # columns by score
    ids = ids.gather(1, order)
    w = s.gather(1, ids)
    if norm:
        w = w / (w.sum(-1, keepdim=True) + 1e-20)
    return ids, w * scale


def case(name, scores, k, norm=False, scale=1.0, groups=0, limit=0, shared=0, biased=False, unused=()):
    lines.append(f"case {name} {scores} {k} {int(norm)} {scale!r} {groups} {limit} {shared} {int(biased)}")
    draw = lambda *sizes: (torch.randn(*sizes, dtype=torch.float64) * 0.7).requires_grad_()
    p = {"x": draw(T, D), "gate": draw(E, D), "w1": draw(E, FF, D), "w2": draw(E, D, FF), "w3": draw(E, FF, D)}
    if shared:
        p |= {"shared_gate": draw(shared, D), "shared_up": draw(shared, D), "shared_down": draw(D, shared)}
    bias = torch.randn(E, dtype=torch.float64) * 0.2 if biased else torch.zeros(E, dtype=torch.float64)
    for e in unused:
        bias[e] = -100.0
    ids, w = route(p["x"], p["gate"], bias, scores, k, norm, scale, groups, limit)
    y = torch.zeros(T, D, dtype=torch.float64)
    for t in range(T):
        for c in range(k):
            e = int(ids[t, c])
            h = F.silu(p["w1"][e] @ p["x"][t]) * (p["w3"][e] @ p["x"][t])
            y[t] = y[t] + w[t, c] * (p["w2"][e] @ h)
    if shared:
        y = y + (F.silu(p["x"] @ p["shared_gate"].T) * (p["x"] @ p["shared_up"].T)) @ p["shared_down"].T
    for n, t in p.items():
        tensor(n, t)
    tensor("expert_bias", bias)
    tensor("ids", ids)
    tensor("weights", w)
    tensor("y", y)
    times = (torch.arange(y.numel(), dtype=torch.float64) % 7 + 1).reshape(y.shape)
    for n, g in zip(p, torch.autograd.grad((y * times).sum(), list(p.values()), allow_unused=True)):
        tensor("grad_" + n, g)


torch.manual_seed(1)
case("qwen3", "softmax", 2, norm=True)
case("deepseek", "sigmoid", 3, norm=True, scale=2.5, groups=4, limit=2, shared=4, biased=True)
case("defaults", "sigmoid", 1)
case("all_experts", "softmax", E, norm=True)
case("empty_experts", "softmax", 2, norm=True, unused=(0, 3, 7))
case("groups_without_bias", "sigmoid", 2, groups=2, limit=1, scale=0.5)
with open(sys.argv[1], "w") as file:
    file.write(f"# PyTorch {torch.__version__.split('+')[0]}, made by tests/nn/moe_reference.py\n" + "\n".join(lines) + "\n")
