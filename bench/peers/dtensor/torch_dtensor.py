#!/usr/bin/env python3
"""What `tutti bench dtensor` measures, in PyTorch: microseconds of ops on DTensors and on the part of a rank, on 2 Gloo ranks of one thread. Ops on the part that C++ programs
can call are also measured in C++ (libtorch_kernels.cpp), afterwards and on one core: what DTensor adds is then not confused with what Python costs.

torch_dtensor.py [--small]: one JSON object per line, from rank 0; on stderr what PyTorch runs as. Needs the pip package torch.
"""
import argparse
import json
import os
import pathlib
import socket
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from programs import Peer, build_libtorch, headline, start_again_with_mkl_truth  # noqa: E402
from torch_about import about  # noqa: E402


def time_calls(call, calls, batches):
    samples = []
    for _ in range(min(calls, 20)):
        call()
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - begin) / calls * 1e6)
    samples.sort()
    return samples[0], samples[len(samples) // 2]


def rank_main(rank, ranks, small, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))

    def row(op, layout, calls, plain, dtensor):
        calls, batches = (2, 2) if small else (calls, 15)
        of_plain = time_calls(plain, calls, batches) if plain else (0.0, 0.0)
        dist.barrier()
        of_dtensor = time_calls(dtensor, calls, batches)
        dist.barrier()
        if rank == 0:
            print(json.dumps({"op": op, "layout": layout, "ranks": ranks, "plain_us": of_plain[0], "plain_median_us": of_plain[1], "dtensor_us": of_dtensor[0],
                              "dtensor_median_us": of_dtensor[1], "torch": torch.__version__}), flush=True)

    def placed(sizes, placement):
        torch.manual_seed(1)
        return distribute_tensor(torch.randn(sizes), mesh, [placement])

    with torch.no_grad():
        a = placed((16 * ranks,), Shard(0))
        part = a.to_local().clone()
        row("add", "[32] S(0), S(0)", 500, lambda: part + part, lambda: a + a)
        row("mul by a number", "[32] S(0)", 500, lambda: part * 0.5, lambda: a * 0.5)
        x, w = placed((64, 64), Replicate()), placed((64, 64), Shard(1))
        x_part, w_part = x.to_local().clone(), w.to_local().clone()
        row("matmul", "[64, 64] R, S(1)", 300, lambda: x_part @ w_part, lambda: x @ w)
        row("sum of rows", "[64, 64] S(1)", 300, lambda: w_part.sum(0), lambda: w.sum(0))
        whole, cut = placed((128, 128), Replicate()), placed((128, 128), Shard(0))
        row("redistribute", "64 KiB, R to S(0)", 100, None, lambda: whole.redistribute(placements=[Shard(0)]))
        row("redistribute", "64 KiB, S(0) to R", 50, None, lambda: cut.redistribute(placements=[Replicate()]).to_local().sum())
        row("redistribute", "64 KiB, S(0) to S(1)", 50, None, lambda: cut.redistribute(placements=[Shard(1)]).to_local().sum())
        pending = torch.distributed.tensor.DTensor.from_local(whole.to_local(), mesh, [Partial()])
        row("redistribute", "64 KiB, P to R", 50, None, lambda: pending.redistribute(placements=[Replicate()]).to_local().sum())

    def parameters(place):
        result = []
        for _ in range(300):
            t = place()
            t.requires_grad_(True)
            t.grad = (t.detach() * 0.5)
            result.append(t)
        return result

    weights = parameters(lambda: placed((64, 32), Shard(0)))
    parts = parameters(lambda: torch.randn(64 // ranks, 32))
    of_parts, of_all = (torch.optim.AdamW(p, lr=1e-3, fused=True) for p in (parts, weights))
    row("AdamW, 300 parameters", "[64, 32] S(0)", 2, of_parts.step, of_all.step)
    clip = torch.nn.utils.clip_grad_norm_
    row("norm and scale, 300 gradients", "[64, 32] S(0)", 2, lambda: clip(parts, 1e9), lambda: clip(weights, 1e9))
    dist.destroy_process_group()


# What a C++ program calls for an op on a rank's part of two.
PARTS = {"add": "add 16 f32", "mul by a number": "scale 16 f32", "matmul": "gemm 64 32 64 f32 kn", "sum of rows": "sum_rows 64 32 f32"}


def print_parts_in_cpp():
    with tempfile.TemporaryDirectory() as folder:
        binary, why = build_libtorch(folder, sys.executable)
        if binary is None:
            print(f"libtorch is missing: {why}", file=sys.stderr)
            return
        peer = Peer("libtorch", [binary, "1"], 1)
        for op, line in PARTS.items():
            answer = peer.ask(line)
            print(json.dumps({"op": op, "in": "C++", "plain_us": answer["min_us"], "plain_median_us": answer["median_us"], "torch": peer.about["version"]}), flush=True)
        peer.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    start_again_with_mkl_truth()
    print(headline(about()), file=sys.stderr)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank_main, args=(options.ranks, options.small, port), nprocs=options.ranks)
    if options.ranks == 2:
        print_parts_in_cpp()
