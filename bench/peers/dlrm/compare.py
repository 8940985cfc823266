#!/usr/bin/env python3
"""Training steps of a click model in Tutti beside the same model in PyTorch, in turns in one run.

compare.py TUTTI [--rows 1000000] [--dim 64] [--bottom 512,256] [--top 512,256] [--batch 2048] [--threads 1,2] [--rounds 5] [--steps 6] [--python PYTHON] [--fbgemm PYTHON] [--json FILE]:
steps of `tutti bench dlrm` (forward, loss, backward, AdamW, row-wise Adagrad of 26 tables) and of torch_dlrm.py, eager and compiled, with PyTorch's sparse EmbeddingBag and Adagrad,
and, where --fbgemm names an interpreter with fbgemm_gpu, with FBGEMM's tables. On T cores PyTorch has the number of threads from 1 to T with which its steps are shortest.
Prints a Markdown table: minimum over all rounds, median of the rounds' medians. Fails when the models differ in size.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import Peer, count, counts, headline, imports, program, run_tutti, text_of  # noqa: E402

TABLES = 26
COLUMNS = ("threads", "program", "step", "examples/s", "its threads", "Tutti's best / this in examples/s")


def peers_of(args, problem, threads):
    """(tables, mode) -> the program with the best number of threads."""
    best = {}
    for ways, python in (("sparse", args.python), ("fbgemm", args.fbgemm)):
        if python is None or not imports(python, "torch") or (ways == "fbgemm" and not imports(python, "fbgemm_gpu")):
            print(f"- PyTorch with {ways} tables is missing: '{python}' does not import it")
            continue
        for mode in ("eager", "compiled"):
            least, chosen = math.inf, None
            for n in range(threads, 0, -1):
                peer = Peer(f"PyTorch, {ways}, {mode}", [python, str(here / "torch_dlrm.py"), str(n), ways, mode, json.dumps(problem)], n)
                if peer.about is None:
                    print(f"- {peer.name} does not start")
                    continue
                peer.ask("3")
                us = min(peer.ask(str(args.steps))["us"])
                worse, chosen, least = (chosen, peer, us) if us < least else (peer, chosen, least)
                peer.about["threads"] = n
                if worse:
                    worse.end()
            if chosen:
                best[ways, mode] = chosen
    return best


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    for name, default in (("--rows", 1_000_000), ("--dim", 64), ("--batch", 2048), ("--rounds", 5), ("--steps", 6)):
        flags.add_argument(name, type=count, default=default)
    for name in ("--bottom", "--top"):
        flags.add_argument(name, type=counts, default=[512, 256])
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--python", default=sys.executable)
    flags.add_argument("--fbgemm")
    flags.add_argument("--json")
    args = flags.parse_args()
    problem = {"tables": TABLES, "rows": args.rows, "dim": args.dim, "bottom": args.bottom, "top": args.top, "batch": args.batch, "skew": 1.0}
    words = lambda sizes: ",".join(map(str, sizes))
    lines = []
    for threads in args.threads:
        peers = peers_of(args, problem, threads)
        if threads == args.threads[0]:
            print(headline(next((p.about for p in peers.values()), None)))
            print("\n| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
        answers = {}
        for _ in range(args.rounds):
            for row in run_tutti(args.tutti, ("dlrm", "--rows", str(args.rows), "--dim", str(args.dim), "--bottom", words(args.bottom), "--top", words(args.top), "--batch", str(args.batch),
                                              "--steps", str(args.steps)), threads):
                answers.setdefault(("Tutti", row["mode"]), []).append((row["min_us"], row["median_us"], row["parameters"], threads))
            for (ways, mode), peer in peers.items():
                us = peer.ask(str(args.steps))["us"]
                answers.setdefault((f"PyTorch, {ways} tables", mode), []).append((min(us), statistics.median(us), peer.about["parameters"], peer.about["threads"]))
        for peer in peers.values():
            peer.end()
        if len({row[2] for rows in answers.values() for row in rows}) != 1:
            sys.exit("compare.py: the models have different numbers of parameters")
        of = lambda rows: (min(r[0] for r in rows), statistics.median(r[1] for r in rows))
        ours = [min(of(rows)[i] for (name, _), rows in answers.items() if name == "Tutti") for i in (0, 1)]
        for (name, mode), rows in answers.items():
            least, median = of(rows)
            rate = lambda us: args.batch / us * 1e6
            ratio = "" if name == "Tutti" else f"{least / ours[0]:.2f} ({median / ours[1]:.2f})"
            print(f"| {threads} | {name}, {mode} | {text_of(least)} ({text_of(median)}) | {rate(least):.0f} ({rate(median):.0f}) | {rows[0][3]} | {ratio} |", flush=True)
            lines.append({"program": name, "mode": mode, "threads": threads, "its_threads": rows[0][3], "min_us": least, "median_us": median, **problem})
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
