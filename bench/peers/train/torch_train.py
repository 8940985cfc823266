"""Training steps of Qwen3 in PyTorch, as `tutti bench train` takes them: random tokens, causal rows of one document each, mean cross entropy, the norm of all
gradients, AdamW. torch_train.py THREADS ROWS SEQUENCE_LENGTH eager|compiled f32|autocast|bf16 CONFIG, the config as JSON with the names of its fields in
tutti/models/qwen3.h. "autocast" computes products and attention in bf16 from f32 parameters, as TorchTitan does on one device; "bf16" has parameters, rotary
positions and activations in bf16, f32 logits for the loss, and masters, clipped gradients and AdamW in f32, as TorchTitan's FSDP2 has with param_dtype = bfloat16.
The first answer tells versions, parameters and the memory of the process; then a line "N" on stdin is answered with microseconds and losses of N steps, and "peak"
lets the peak of the process's memory count anew.
"""
import contextlib
import json
import pathlib
import re
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from torch_about import about  # noqa: E402


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def turned(x, cos, sin):
    """Rotary positions: the halves of a head are the parts of its complex numbers."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.heads, self.kv_heads, self.head_dim = c["heads"], c["kv_heads"], c["head_dim"]
        self.q, self.k, self.v = (linear(c["dim"], n * self.head_dim) for n in (self.heads, self.kv_heads, self.kv_heads))
        self.o = linear(self.heads * self.head_dim, c["dim"])
        self.gate, self.up, self.down = linear(c["dim"], c["ffn_dim"]), linear(c["dim"], c["ffn_dim"]), linear(c["ffn_dim"], c["dim"])
        self.q_norm, self.k_norm = Norm(self.head_dim, c["norm_eps"]), Norm(self.head_dim, c["norm_eps"])
        self.before_attention, self.before_mlp = Norm(c["dim"], c["norm_eps"]), Norm(c["dim"], c["norm_eps"])

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape
        n = self.before_attention(x)
        q = turned(self.q_norm(self.q(n).view(rows, length, self.heads, self.head_dim)).transpose(1, 2), cos, sin)
        k = turned(self.k_norm(self.k(n).view(rows, length, self.kv_heads, self.head_dim)).transpose(1, 2), cos, sin)
        v = self.v(n).view(rows, length, self.kv_heads, self.head_dim).transpose(1, 2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(attended.transpose(1, 2).reshape(rows, length, -1))
        n = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Qwen3(nn.Module):
    def __init__(self, c, length):
        super().__init__()
        self.embedding = nn.Embedding(c["vocab"], c["dim"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = Norm(c["dim"], c["norm_eps"])
        self.head = nn.Linear(c["dim"], c["vocab"], bias=False)
        if c["tied_embeddings"]:
            self.head.weight = self.embedding.weight
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=c["init_std"])
        half = c["head_dim"] // 2
        angles = torch.arange(length)[:, None] * c["rope_theta"] ** (-torch.arange(half) / half)[None, :]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, labels, reduction="mean"):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten(), reduction=reduction)


def memory():
    """MiB resident now and at most, as bench/process_memory.cpp reads them."""
    status = pathlib.Path("/proc/self/status").read_text()
    return {f"{name}_mbytes": int(re.search(rf"{key}:\s+(\d+)", status)[1]) / 1024 for name, key in (("rss", "VmRSS"), ("peak_rss", "VmHWM"))}


class Trainer:
    def __init__(self, config, rows, length, mode, dtype):
        torch.manual_seed(1)
        model = Qwen3(config, length)
        self.leaves = list(model.parameters())
        self.masters = self.leaves
        if dtype == "bf16":
            self.masters = [p.detach().clone().requires_grad_() for p in self.leaves]
            model.to(torch.bfloat16)
            self.leaves = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
        self.tokens, self.labels = (torch.randint(config["vocab"], (rows, length)) for _ in range(2))
        self.loss_of = torch.compile(model, fullgraph=True) if mode == "compiled" else model
        self.scope = (lambda: torch.autocast("cpu", dtype=torch.bfloat16)) if dtype == "autocast" else contextlib.nullcontext

    def step(self):
        """Microseconds and the loss."""
        begin = time.perf_counter()
        for p in self.leaves:
            p.grad = None
        with self.scope():
            loss = self.loss_of(self.tokens, self.labels)
        loss.backward()
        if self.masters is not self.leaves:
            for master, p in zip(self.masters, self.leaves):
                master.grad = p.grad.float()
                p.grad = None
        nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.optimizer.step()
        if self.masters is not self.leaves:
            with torch.no_grad():
                torch._foreach_copy_(self.leaves, self.masters)
        return (time.perf_counter() - begin) * 1e6, loss.item()


def main():
    threads, rows, length = (int(word) for word in sys.argv[1:4])
    mode, dtype, config = sys.argv[4], sys.argv[5], json.loads(sys.argv[6])
    torch.set_num_threads(threads)
    before = memory()["rss_mbytes"]
    trainer = Trainer(config, rows, length, mode, dtype)
    print(json.dumps(about(parameters=sum(p.numel() for p in trainer.leaves), rss_mbytes=before)), flush=True)
    for line in sys.stdin:
        try:
            if line.strip() == "peak":
                pathlib.Path("/proc/self/clear_refs").write_text("5")
                print("{}", flush=True)
                continue
            us, losses = zip(*(trainer.step() for _ in range(int(line))))
            print(json.dumps({"us": us, "losses": losses, "peak_rss_mbytes": memory()["peak_rss_mbytes"]}), flush=True)
        except RuntimeError as e:  # compiling needs a C++ compiler
            print(json.dumps({"missing": str(e).strip().splitlines()[0]}), flush=True)


if __name__ == "__main__":
    main()
