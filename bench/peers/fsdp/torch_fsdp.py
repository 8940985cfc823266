#!/usr/bin/env python3
"""FSDP2 and DCP of PyTorch on Gloo, as `tutti bench fsdp` measures them: torch_fsdp.py [--ranks 2] [--group-bytes N] [--saved-bytes N] [--model quickstart] [--json FILE].

Every rank is a process of one thread. Rows: unshard of a group of eight f32 parameters, its gradients reduced to the ranks that store them, a checkpoint
saved, loaded and begun asynchronously (until async_save returns), and a training step of the model under FSDP2 and under DistributedDataParallel, beside one
process of as many threads as there are ranks. Minimum and median in microseconds.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

here = pathlib.Path(__file__).resolve().parent
sys.path += [str(here.parent), str(here.parent / "train")]
from models import MODELS  # noqa: E402
from programs import headline, start_again_with_mkl_truth  # noqa: E402
from torch_about import about  # noqa: E402
from torch_train import Qwen3  # noqa: E402

ROWS, LENGTH = 16, 256  # a step of configs/quickstart.toml


class Group(nn.Module):
    def __init__(self, nbytes):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(nbytes // 8 // 1024 // 4, 1024)) for _ in range(8))

    def forward(self, x):
        return sum((w * x).sum() for w in self.weights)


def timed(times, call, before=lambda: None):
    samples = []
    for _ in range(times):
        before()
        if dist.is_initialized():
            dist.barrier()
        begin = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begin) * 1e6)
    return min(samples), statistics.median(samples)


def steps(model, parameters, rows, times=5):
    """Steps on one microbatch of `rows`."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens, labels = (torch.randint(250, (rows, LENGTH)) for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(tokens, labels).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    step()
    return timed(times, step)


def rank_main(rank, args, port, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    mesh = init_device_mesh("cpu", (args.ranks,))
    rows = {}

    group = Group(args.group_bytes)
    fully_shard(group, mesh=mesh)
    group(torch.ones(1024)).backward()
    rows["unshard in f32"] = args.group_bytes, *timed(20, group.unshard, group.reshard)

    def reduce():
        group(torch.ones(1024)).backward()
    group.set_reshard_after_forward(False)
    rows["forward and backward of the group, gradients reduced"] = args.group_bytes, *timed(20, reduce)

    saved = Group(args.saved_bytes)
    fully_shard(saved, mesh=mesh)
    state = saved.state_dict()
    folder = pathlib.Path(args.folder)
    rows["save"] = args.saved_bytes, *timed(7, lambda: dcp.save(state, checkpoint_id=folder / "sync"))
    rows["load"] = args.saved_bytes, *timed(7, lambda: dcp.load(state, checkpoint_id=folder / "sync"))
    pending = []

    def finish():
        while pending:
            pending.pop().result()
    rows["async save, until it returns"] = args.saved_bytes, *timed(7, lambda: pending.append(dcp.async_save(state, checkpoint_id=folder / "async")), finish)
    finish()

    config = MODELS[args.model]
    torch.manual_seed(1)
    model = Qwen3(config, LENGTH)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    rows[f"step of {args.model}, FSDP2"] = 0, *steps(model, list(model.parameters()), ROWS // args.ranks)
    model = DistributedDataParallel(Qwen3(config, LENGTH))
    rows[f"step of {args.model}, DDP"] = 0, *steps(model, list(model.parameters()), ROWS // args.ranks)
    dist.destroy_process_group()
    if rank == 0:
        answers.put(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--group-bytes", type=int, default=16 << 20)
    parser.add_argument("--saved-bytes", type=int, default=64 << 20)
    parser.add_argument("--model", default="quickstart", choices=sorted(MODELS))
    parser.add_argument("--folder", help="where checkpoints are written; default: a temporary folder")
    parser.add_argument("--json", help="a file for the rows")
    args = parser.parse_args()
    start_again_with_mkl_truth()
    with tempfile.TemporaryDirectory() as temporary:
        args.folder = args.folder or temporary
        context = mp.get_context("spawn")
        answers = context.Queue()
        port = 20000 + os.getpid() % 20000
        ranks = [context.Process(target=rank_main, args=(r, args, port, answers)) for r in range(args.ranks)]
        for rank in ranks:
            rank.start()
        rows = answers.get(timeout=900)
        for rank in ranks:
            rank.join()
    torch.set_num_threads(args.ranks)
    torch.manual_seed(1)
    model = Qwen3(MODELS[args.model], LENGTH)
    rows[f"step of {args.model}, one process of {args.ranks} threads"] = 0, *steps(model, list(model.parameters()), ROWS)
    lines = [{"program": "PyTorch", "what": what, "ranks": args.ranks, "transport": "gloo", "bytes": nbytes, "min_us": least, "median_us": median, **about()}
             for what, (nbytes, least, median) in rows.items()]
    print(f"{headline(about())}; Gloo over TCP on loopback, the only transport that PyTorch has between processes without a GPU")
    for line in lines:
        print(f"{line['what']:56} {line['bytes'] / (1 << 20):8.1f} MiB {line['min_us']:12.1f} us, median {line['median_us']:12.1f}")
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
