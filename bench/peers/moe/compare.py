#!/usr/bin/env python3
"""Grouped products and a layer of experts of Tutti beside torch._grouped_mm, in turns in one run.

compare.py TUTTI [--tokens 1024] [--dim 512] [--hidden-dim 256] [--experts 32] [--top-k 4] [--dtype f32] [--threads 1,2] [--rounds 3] [--calls 10] [--total-ms 1000]
[--python PYTHON]: in each round `tutti bench moe` runs, and PyTorch computes the same products over the same loads. Prints a Markdown table: minimum over all
rounds, median of the rounds' medians, and the rate by that of the dense product or layer of the same work in the same library.
"""
import argparse
import json
import pathlib
import statistics
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import Peer, count, counts, headline, imports, program, run_tutti, text_of  # noqa: E402

SIZES = {"tokens": 1024, "dim": 512, "hidden_dim": 256, "experts": 32, "top_k": 4}


def rows_of_experts(load, rows, experts):
    """As bench/moe_bench.cpp deals them out; None for what has no load of its own."""
    shares = {"equal": lambda e: 1, "uneven": lambda e: (e + 1) ** -0.5, "few": lambda e: ((experts + 1) // 2 - 1 + (experts < 3) if e == 0 else 1 if e % 2 == 0 else 0)}.get(load)
    if shares is None:
        return None
    total, until, given, dealt = sum(shares(e) for e in range(experts)), 0.0, 0, []
    for e in range(experts):
        until += shares(e)
        end = round(rows * until / total)
        dealt.append(end - given)
        given = end
    return dealt


def measure(args, sizes, peer, threads):
    """(what, way) -> answers of Tutti and of PyTorch, one a round."""
    ours, theirs = {}, {}
    flags = [word for name, value in sizes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for _ in range(args.rounds):
        rows = run_tutti(args.tutti, ("moe", *flags, "--dtype", args.dtype, "--total-ms", str(args.total_ms)), threads)
        for row in rows:
            case = row["what"], row["way"]
            ours.setdefault(case, []).append(row)
            if peer is None or case in theirs and theirs[case] is None:
                continue
            dealt = rows_of_experts(row["way"], sizes["tokens"] * sizes["top_k"], sizes["experts"])
            answer = peer.ask(json.dumps([*case, dealt, args.calls]))
            if "missing" in answer:
                print(f"- PyTorch cannot compute {', '.join(case)}: {answer['missing']}")
                theirs[case] = None
            else:
                theirs.setdefault(case, []).append({"min_us": min(answer["us"]), "median_us": statistics.median(answer["us"])})
    return ours, theirs


def summary(rows):
    return (min(row["min_us"] for row in rows), statistics.median(row["median_us"] for row in rows)) if rows else None


def print_rows(threads, ours, theirs):
    for case, rows in ours.items():
        what, way = case
        least, median = summary(rows)
        flops = rows[0]["gflops"] * rows[0]["min_us"]
        of_dense = lambda answers, least: f"{summary(answers[what, 'dense'])[0] / least:.2f}" if answers.get((what, "dense")) else ""
        cells = [str(threads), what, way, f"{rows[0]['max_over_mean']:.2f}" if way != "dense" else "", f"{text_of(least)} ({text_of(median)})", f"{flops / least:.0f}", of_dense(ours, least)]
        peer = summary(theirs.get(case))
        cells += [f"{text_of(peer[0])} ({text_of(peer[1])})", f"{flops / peer[0]:.0f}", of_dense(theirs, peer[0]), f"{peer[0] / least:.2f}"] if peer else [""] * 4
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    for name, value in SIZES.items():
        flags.add_argument(f"--{name.replace('_', '-')}", type=count, default=value)
    flags.add_argument("--dtype", default="f32", choices=["f32", "bf16", "f16"])
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--rounds", type=count, default=3)
    flags.add_argument("--calls", type=count, default=10)
    flags.add_argument("--total-ms", type=count, default=1000)
    flags.add_argument("--python", default=sys.executable)
    args = flags.parse_args()
    sizes = {name: getattr(args, name) for name in SIZES}
    has_torch = imports(args.python, "torch")
    if not has_torch:
        print(f"- PyTorch is missing: '{args.python}' cannot import torch; --python names an interpreter that can")
    for number, threads in enumerate(args.threads):
        peer = Peer("PyTorch", [args.python, str(here / "torch_moe.py"), str(threads), json.dumps(sizes), args.dtype], threads) if has_torch else None
        if number == 0:
            print(f"\n{headline(peer.about if peer else None)}.\n{sizes['tokens']} tokens of {sizes['dim']} features, {sizes['top_k']} of {sizes['experts']} experts of {sizes['hidden_dim']}, {args.dtype}; minimum (median)\n")
            print("| threads | what | load | max/mean | Tutti | GFLOP/s | of dense | PyTorch | GFLOP/s | of dense | Tutti / PyTorch in rate |\n|---|---|---|---|---|---|---|---|---|---|---|")
        print_rows(threads, *measure(args, sizes, peer, threads))
        if peer:
            peer.end()


if __name__ == "__main__":
    main()
