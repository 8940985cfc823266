"""The run of compare.py in PyTorch: the model of ../train/torch_train.py under DistributedDataParallel over Gloo, in deterministic mode, one thread per rank.

torch_ddp.py JOB --initial FILE writes the weights that training starts from under the names that Tutti gives them, as safetensors.
torch_ddp.py JOB --ranks N --metrics FILE trains and writes one line per step, as Tutti does to metrics.jsonl.
JOB is a JSON file that compare.py writes: model, text, rows, sequence_length, steps, seed, max_norm, optimizer and lr_scheduler.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import struct
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

here = pathlib.Path(__file__).resolve().parent
sys.path += [str(here.parent), str(here.parent / "train")]
from programs import hex_of  # noqa: E402
from torch_train import Qwen3  # noqa: E402

BEGIN_OF_DOCUMENT = 256  # of Tutti's byte tokenizer; the other tokens are the bytes
NAMES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "before_attention": "input_layernorm", "before_mlp": "post_attention_layernorm"}


def make_model(job):
    torch.manual_seed(job["seed"])
    return Qwen3(job["model"], job["sequence_length"])


def name_in_tutti(name):
    if name.startswith("blocks."):
        _, layer, part, weight = name.split(".")
        return f"model.layers.{layer}.{NAMES[part]}.{weight}"
    return {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "head.weight": "lm_head.weight"}[name]


def write_safetensors(file, model):
    header, data = {}, b""
    for name, weight in model.named_parameters():
        nbytes = struct.pack(f"<{weight.numel()}f", *weight.detach().flatten().tolist())
        header[name_in_tutti(name)] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [len(data), len(data) + len(nbytes)]}
        data += nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write_bytes(struct.pack("<Q", len(head)) + head + data)


def lr_factor(step, steps, schedule):
    """tutti/train/step/lr_schedule.cpp with decay_type = "cosine" and no decay_ratio; steps count from 1."""
    warmup, least = schedule["warmup_steps"], schedule["min_lr_factor"]
    if step <= warmup:
        return step / warmup
    progress = max(0, step - 1 - warmup) / (steps - warmup)
    return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * progress))


def train(rank, job, ranks, metrics, meeting):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    model = DistributedDataParallel(make_model(job))
    parameters = list(model.parameters())
    o = job["optimizer"]
    optimizer = torch.optim.AdamW(parameters, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], weight_decay=o["weight_decay"], fused=True)
    text = pathlib.Path(job["text"]).read_bytes()
    tokens = torch.cat([torch.tensor([BEGIN_OF_DOCUMENT]), torch.frombuffer(bytearray(text), dtype=torch.uint8).long()])
    length, rows = job["sequence_length"], job["rows"] // ranks
    seen = job["rows"] * length
    with open(metrics if rank == 0 else os.devnull, "w") as lines:
        for step in range(1, job["steps"] + 1):
            start = time.perf_counter()
            first = (step - 1) * seen + rank * rows * length
            inputs, labels = (tokens[first + shift:first + shift + rows * length].view(rows, length) for shift in (0, 1))
            for group in optimizer.param_groups:
                group["lr"] = o["lr"] * lr_factor(step, job["steps"], job["lr_scheduler"])
            optimizer.zero_grad(set_to_none=True)
            losses = model(inputs, labels, reduction="none")
            losses.mean().backward()
            norm = nn.utils.clip_grad_norm_(parameters, job["max_norm"], foreach=True)
            optimizer.step()
            # The mean over the tokens of all ranks is rounded once: what differs between ranks is the training, not how its loss is told.
            total = losses.detach().double().sum()
            dist.all_reduce(total)
            loss = (total / seen).float().item()
            ms = (time.perf_counter() - start) * 1e3
            row = {"step": step, "loss": loss, "loss_hex": hex_of(loss), "grad_norm": norm.item(), "grad_norm_hex": hex_of(norm.item()), "lr": optimizer.param_groups[0]["lr"],
                   "tokens_seen": step * seen, "tokens_per_s": seen / ms * 1e3, "tflops": None, "mfu": None, "step_ms": ms, "data_ms": None, "comm_ms": None,
                   "memory_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
            lines.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("job", type=pathlib.Path)
    flags.add_argument("--initial", type=pathlib.Path)
    flags.add_argument("--ranks", type=int, default=1)
    flags.add_argument("--metrics", type=pathlib.Path)
    args = flags.parse_args()
    job = json.loads(args.job.read_text())
    if args.initial:
        write_safetensors(args.initial, make_model(job))
    if args.metrics:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(train, (job, args.ranks, str(args.metrics), f"{folder}/meeting"), nprocs=args.ranks)


if __name__ == "__main__":
    main()
