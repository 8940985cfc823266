"""Grouped products and a layer of experts in PyTorch, for compare.py in this folder: torch_moe.py THREADS SIZES DTYPE, where SIZES is the JSON of tokens, dim, hidden_dim,
experts and top_k. Prints an object about itself, and answers each line, a JSON list [what, way, rows of each expert, calls], with the times of the calls in microseconds.
"""
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from torch_about import about  # noqa: E402


def grouped(rows, weight, offsets):
    return torch._grouped_mm(rows, weight.transpose(1, 2), offs=offsets)


class Layer:
    """Softmax over all experts, the best of them with weights that add up to 1, rows sorted by expert; or one dense layer of the same active size."""

    def __init__(self, c, dtype, dense):
        draw = lambda *sizes, std: (torch.randn(*sizes) * std).to(dtype).requires_grad_()
        self.c, self.dense = c, dense
        D, H, E, K = c["dim"], c["hidden_dim"], c["experts"], c["top_k"]
        self.x = draw(c["tokens"], D, std=1)
        self.cotangent = torch.randn(c["tokens"], D).to(dtype)
        self.weights = [draw(K * H, D, std=0.02), draw(D, K * H, std=0.02), draw(K * H, D, std=0.02)] if dense else [draw(E, H, D, std=0.02), draw(E, D, H, std=0.02), draw(E, H, D, std=0.02)]
        self.gate = draw(E, D, std=0.1)

    def forward(self, balanced):
        w1, w2, w3 = self.weights
        if self.dense:
            return F.linear(F.silu(F.linear(self.x, w1)) * F.linear(self.x, w3), w2)
        E, K, T = self.c["experts"], self.c["top_k"], self.c["tokens"]
        scores = torch.softmax(F.linear(self.x, self.gate).float(), -1)
        ids = (torch.arange(T * K) % E).view(T, K) if balanced else scores.detach().topk(K, dim=-1).indices
        weights = scores.gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        order = torch.argsort(ids.flatten(), stable=True)
        offsets = torch.bincount(ids.flatten(), minlength=E).cumsum(0).to(torch.int32)
        rows = self.x[order // K]
        out = grouped(F.silu(grouped(rows, w1, offsets)) * grouped(rows, w3, offsets), w2, offsets)
        back = torch.empty_like(out).index_copy(0, order, out)
        return (back.view(T, K, -1).float() * weights.unsqueeze(-1)).sum(1).to(self.x.dtype)

    def step(self, balanced):
        for t in (self.x, self.gate, *self.weights):
            t.grad = None
        self.forward(balanced).backward(self.cotangent)


def main():
    threads, c, dtype = int(sys.argv[1]), json.loads(sys.argv[2]), {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[sys.argv[3]]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    N, D, H, E = c["tokens"] * c["top_k"], c["dim"], c["hidden_dim"], c["experts"]
    x, g, w = torch.randn(N, D, dtype=dtype), torch.randn(N, H, dtype=dtype), torch.randn(E, H, D, dtype=dtype)
    layer, dense = Layer(c, dtype, False), Layer(c, dtype, True)
    print(json.dumps(about()), flush=True)
    for line in sys.stdin:
        what, way, counts, calls = json.loads(line)
        offsets = torch.tensor(counts, dtype=torch.int32).cumsum(0).to(torch.int32) if counts else None
        ways = {
            ("rows", True): lambda: x @ w[0].t(),
            ("rows", False): lambda: grouped(x, w, offsets),
            ("gradient", True): lambda: g.t() @ x,
            ("gradient", False): lambda: torch._grouped_mm(g.t(), x, offs=offsets),
            ("layer", True): lambda: dense.step(False),
            ("layer", False): lambda: layer.step(way == "equal"),
        }
        run = ways[what, way == "dense"]
        us = []
        try:
            for _ in range(calls + 1):  # the first call warms memory
                begin = time.perf_counter()
                run()
                us.append((time.perf_counter() - begin) * 1e6)
            print(json.dumps({"us": us[1:]}), flush=True)
        except (RuntimeError, AttributeError) as e:
            print(json.dumps({"missing": str(e).strip().splitlines()[0]}), flush=True)


if __name__ == "__main__":
    main()
