#!/usr/bin/env python3
"""Training steps of Qwen3 in PyTorch on Gloo, its products or its experts divided over ranks: torch_parallel.py LAYOUT --ranks N [--compiled] --model MODEL --rows N --sequence-length N --steps N.

LAYOUT is one (one process of N threads, whose model --compiled compiles), ddp, fsdp, tp (tensor and sequence parallelism with a divided loss, by parallelize_module) or ep (experts divided over the ranks, each
with rows of its own, tokens exchanged by counts and then all_to_all_single; the rest of the model under DistributedDataParallel). Elsewhere every rank has one thread.
Prints an object: what torch_about.py says, microseconds and losses of the steps.
"""
import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

here = pathlib.Path(__file__).resolve().parent
sys.path += [str(here.parent), str(here.parent / "train")]
from models import MODELS  # noqa: E402
from torch_about import about  # noqa: E402
from torch_train import Block, Qwen3, turned  # noqa: E402


class Experts(nn.Module):
    """The experts of a layer, or this rank's part of them."""

    def __init__(self, c, ranks):
        super().__init__()
        self.ranks, self.k, self.own = ranks, c["active_experts"], c["experts"] // ranks
        self.gate = nn.Linear(c["dim"], c["experts"], bias=False)
        draw = lambda *sizes: nn.Parameter(torch.randn(*sizes) * c["init_std"])
        self.w1, self.w3, self.w2 = draw(self.own, c["ffn_dim"], c["dim"]), draw(self.own, c["ffn_dim"], c["dim"]), draw(self.own, c["dim"], c["ffn_dim"])

    def compute(self, rows, counts):
        offsets = counts.cumsum(0).to(torch.int32)
        grouped = lambda x, w: torch._grouped_mm(x, w.transpose(1, 2), offs=offsets)
        return grouped(F.silu(grouped(rows, self.w1)) * grouped(rows, self.w3), self.w2)

    def forward(self, x):
        tokens = x.flatten(0, -2)
        scores = torch.softmax(self.gate(tokens).float(), -1)
        ids = scores.detach().topk(self.k, dim=-1).indices
        weights = scores.gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        order = torch.argsort(ids.flatten(), stable=True)
        counts = torch.bincount(ids.flatten(), minlength=self.own * self.ranks)
        rows = tokens[order // self.k]
        if self.ranks == 1:
            out = self.compute(rows, counts)
        else:
            given = torch.empty_like(counts)
            dist.all_to_all_single(given, counts)
            sent, got = (n.view(self.ranks, self.own).sum(1).tolist() for n in (counts, given))
            arrived = all_to_all_single_autograd(rows, got, sent, dist.group.WORLD)
            expert = torch.arange(self.own).repeat(self.ranks).repeat_interleave(given)
            by_expert = torch.argsort(expert, stable=True)
            computed = self.compute(arrived[by_expert], given.view(self.ranks, self.own).sum(0))
            as_arrived = torch.empty_like(computed).index_copy(0, by_expert, computed)
            out = all_to_all_single_autograd(as_arrived, sent, got, dist.group.WORLD)
        back = torch.empty_like(out).index_copy(0, order, out)
        return (back.view(-1, self.k, out.shape[-1]).float() * weights.unsqueeze(-1)).sum(1).to(x.dtype).view_as(x)


def attended(block, n, cos, sin):
    """The attention of a block, as torch_train.py computes it, of rows whose heads this rank has."""
    rows, length, _ = n.shape
    q = turned(block.q_norm(block.q(n).view(rows, length, block.heads, block.head_dim)).transpose(1, 2), cos, sin)
    k = turned(block.k_norm(block.k(n).view(rows, length, block.kv_heads, block.head_dim)).transpose(1, 2), cos, sin)
    v = block.v(n).view(rows, length, block.kv_heads, block.head_dim).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return block.o(out.transpose(1, 2).reshape(rows, length, -1))


class ExpertBlock(Block):
    def __init__(self, c, ranks):
        super().__init__(c)
        del self.gate, self.up, self.down
        self.experts = Experts(c, ranks)

    def forward(self, x, cos, sin):
        x = x + attended(self, self.before_attention(x), cos, sin)
        return x + self.experts(self.before_mlp(x))


class DividedBlock(Block):
    """One gather in front of the products of a layer, as TorchTitan's plan has it."""

    def forward(self, x, cos, sin):
        whole = lambda t: t.redistribute(placements=[Replicate()])
        x = x + attended(self, whole(self.before_attention(x)), cos, sin)
        n = whole(self.before_mlp(x))
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def make_model(args, layout):
    config = MODELS[args.model]
    torch.manual_seed(1)
    model = Qwen3(config, args.sequence_length) if "experts" not in config else Qwen3(dict(config, layers=0), args.sequence_length)
    if "experts" in config:
        model.blocks = nn.ModuleList(ExpertBlock(config, args.ranks if layout == "ep" else 1) for _ in range(config["layers"]))
    return model


def divide(model, args):
    mesh = init_device_mesh("cpu", (args.ranks,))
    for block in model.blocks:
        block.__class__ = DividedBlock
        block.heads //= args.ranks
        block.kv_heads //= args.ranks
        whole = {name: ColwiseParallel(input_layouts=Replicate()) for name in ("q", "k", "v", "gate", "up")}
        parts = {name: RowwiseParallel(output_layouts=Shard(1), use_local_output=False) for name in ("o", "down")}
        norms = {name: SequenceParallel() for name in ("before_attention", "before_mlp")}
        heads = {name: SequenceParallel(sequence_dim=2, use_local_output=True) for name in ("q_norm", "k_norm")}
        parallelize_module(block, mesh, {**whole, **parts, **norms, **heads})
    parallelize_module(model, mesh, {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False), "norm": SequenceParallel(),
                                     "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
    model.head.weight = model.embedding.weight
    return model


def measure(args, rank):
    layout = args.layout
    model = make_model(args, layout)
    rows = args.rows if layout in ("one", "tp") else args.rows // args.ranks
    if layout == "tp":
        divide(model, args)
    elif layout == "fsdp":
        mesh = init_device_mesh("cpu", (args.ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    own = [p for name, p in model.named_parameters() if layout == "ep" and ".experts.w" in name]
    parameters = list(model.parameters())
    if layout == "ep":
        model._ddp_params_and_buffers_to_ignore = [name for name, _ in model.named_parameters() if ".experts.w" in name]
    compute = DistributedDataParallel(model) if layout in ("ddp", "ep") else torch.compile(model) if args.compiled else model
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=layout != "tp", foreach=True if layout == "tp" else None)
    torch.manual_seed(2 if layout in ("one", "tp") else 2 + rank)
    tokens, labels = (torch.randint(250, (rows, args.sequence_length)) for _ in range(2))

    def norm():
        if layout != "ep":
            return nn.utils.clip_grad_norm_(parameters, 1.0)
        mine = {id(p) for p in own}
        experts = sum((p.grad / args.ranks).square().sum() for p in own)
        dist.all_reduce(experts)
        total = (experts + sum(p.grad.square().sum() for p in parameters if id(p) not in mine)).sqrt()
        for p in own:
            p.grad /= args.ranks  # the sum over the rows of all ranks, of losses that are means over those of one
        torch._foreach_mul_([p.grad for p in parameters], min(1.0, 1.0 / (total.item() + 1e-6)))

    times, losses = [], []
    for _ in range(args.steps + 1):
        if layout != "one":
            dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        if layout == "tp":
            with loss_parallel():
                loss = compute(tokens, labels)
                loss.backward()
        else:
            loss = compute(tokens, labels)
            loss.backward()
        norm()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e6)
        losses.append((loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item())
    return {"about": about(), "us": times[1:], "losses": losses[1:]}


def rank_main(rank, args, port, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    answer = measure(args, rank)
    dist.destroy_process_group()
    if rank == 0:
        answers.put(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", choices=["one", "ddp", "fsdp", "tp", "ep"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="quickstart-tp4", choices=sorted(MODELS))
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--compiled", action="store_true")
    args = parser.parse_args()
    if args.compiled and args.layout != "one":
        parser.error("--compiled is for the layout one")
    if args.layout == "one":
        torch.set_num_threads(args.ranks)
        print(json.dumps(measure(args, 0)))
        return
    context = mp.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=rank_main, args=(r, args, 20000 + os.getpid() % 20000, answers)) for r in range(args.ranks)]
    for rank in ranks:
        rank.start()
    answer = answers.get(timeout=900)
    for rank in ranks:
        rank.join()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
