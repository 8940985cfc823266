#!/usr/bin/env python3
"""Table-batched embeddings of Tutti beside FBGEMM and PyTorch's EmbeddingBag, in turns in one run.

compare.py TUTTI [--tables 26] [--rows 10000000] [--bags 2048] [--skew 1.0] [--threads 1,2] [--rounds 3] [--total-ms 1500] [--python PYTHON] [--fbgemm PYTHON]
[--flags=--codes]: in each round `tutti bench embedding` runs, and then the peers look up and step the same batch, which the first round has written to a folder,
with every setting that they have: indices i32 and i64, eager and compiled. The table has the setting with the least median: minimum and median over all rounds
and calls, the rate of rows touched, and what Tutti's rate is by the peer's, as the median of the rounds' ratios. --python has torch (tested: 2.15), --fbgemm
torch and fbgemm-gpu-cpu (tested: 2.14.1 and 1.9.0).
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import Peer, count, counts, headline, imports, program, run_tutti, text_of  # noqa: E402


def of_rounds(rounds):
    """Minimum and median of the times of all rounds."""
    every = [us for times in rounds for us in times]
    return min(every), statistics.median(every)


def measure(args, folder, threads):
    """Kind -> one (minimum, median, GB) a round of Tutti; (peer, kind, variant) -> the times of each round. A peer that had its turn ends: the tables of all take memory."""
    ours, theirs, told = {}, {}, {}
    flags = ("--tables", str(args.tables), "--rows", str(args.rows), "--bags", str(args.bags), "--skew", str(args.skew), "--total-ms", str(args.total_ms), "--write-batch", folder)
    for _ in range(args.rounds):
        for row in run_tutti(args.tutti, ("embedding", *flags, *args.flags), threads):
            ours.setdefault(row["kind"], []).append((row["min_us"], row["median_us"], row["gbps"] * row["min_us"] * 1e-6))
        for name, python in (("fbgemm", args.fbgemm), ("torch", args.python)):
            if python is None:
                continue
            peer = Peer(f"PyTorch ({name})", [python, str(here / "torch_embedding.py"), name, str(threads), folder], threads, FBGEMM_TBE_MAX_NUM_THREADS=str(threads))
            if peer.about is None:
                sys.exit(f"compare.py: '{python} {here}/torch_embedding.py {name} {threads} {folder}' ends before it answers; run it to see why")
            told[name] = peer.about
            for kind, variants in peer.about["kinds"].items():
                for variant in variants if kind in ours else []:
                    theirs.setdefault((name, kind, variant), []).append(peer.ask(json.dumps([kind, variant, args.total_ms / len(ours)]))["us"])
            peer.end()
    return ours, theirs, told


def print_rows(threads, ours, theirs, told):
    for kind, rounds in ours.items():
        least, median, gbytes = min(r[0] for r in rounds), statistics.median(r[1] for r in rounds), rounds[0][2]
        print(f"| {threads} | {kind} | Tutti | {text_of(least)} ({text_of(median)}) | {gbytes / least * 1e6:.1f} | | |")
        for name in told:
            variants = {variant: times for (n, k, variant), times in theirs.items() if (n, k) == (name, kind)}
            if not variants:
                continue
            variant, times = min(variants.items(), key=lambda item: of_rounds(item[1])[1])
            least, median = of_rounds(times)
            by_minimum = statistics.median(min(t) / r[0] for t, r in zip(times, rounds))
            by_median = statistics.median(statistics.median(t) / r[1] for t, r in zip(times, rounds))
            print(f"| {threads} | {kind} | {told[name]['peer']}, {variant} | {text_of(least)} ({text_of(median)}) | {gbytes / least * 1e6:.1f} | {by_minimum:.2f} | {by_median:.2f} |", flush=True)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--tables", type=count, default=26)
    flags.add_argument("--rows", type=count, default=10_000_000)
    flags.add_argument("--bags", type=count, default=2048)
    flags.add_argument("--skew", type=float, default=1.0)
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--rounds", type=count, default=3)
    flags.add_argument("--total-ms", type=count, default=1500)
    flags.add_argument("--python", default=sys.executable)
    flags.add_argument("--fbgemm")
    flags.add_argument("--flags", nargs="*", default=[], help="more flags of tutti bench embedding, e.g. --flags=--codes")
    args = flags.parse_args()
    if args.python and not imports(args.python, "torch, numpy"):
        print(f"- PyTorch is missing: '{args.python}' cannot import torch and numpy; --python names an interpreter that can")
        args.python = None
    if args.fbgemm is None or not imports(args.fbgemm, "torch, numpy, fbgemm_gpu"):
        print(f"- FBGEMM is missing: {args.fbgemm or '--fbgemm names no interpreter and'} cannot import torch, numpy and fbgemm_gpu")
        args.fbgemm = None
    with tempfile.TemporaryDirectory() as folder:
        for number, threads in enumerate(args.threads):
            ours, theirs, told = measure(args, folder, threads)
            if number == 0:
                print(f"\n{headline(next(iter(told.values()), None))}.\n{args.tables} tables of up to {args.rows} rows, {args.bags} bags of each, skew {args.skew}, f32; minimum (median)\n")
                print("| threads | kind | program | time | GB/s | Tutti's rate by it, minima | medians |\n|---|---|---|---|---|---|---|")
            print_rows(threads, ours, theirs, told)


if __name__ == "__main__":
    main()
