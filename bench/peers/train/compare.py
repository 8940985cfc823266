#!/usr/bin/env python3
"""Training steps of Tutti beside PyTorch, eager and compiled, in turns in one run.

compare.py TUTTI [--model debugmodel] [--rows 2] [--sequence-length 256] [--threads 1,2] [--rounds 5] [--steps 2] [--python PYTHON] [--json FILE]: a step is forward,
loss, backward, gradient norm with clipping and AdamW on random tokens in f32. In each round every program takes the steps; what was compiled is warm by then. Prints a
Markdown table: minimum over all rounds, median of the rounds' medians. Fails when the models differ in size, or a loss does not begin near ln(vocabulary) and fall.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from models import MODELS  # noqa: E402
from programs import Peer, count, counts, imports, program, run_tutti, text_of  # noqa: E402

MODES = ("eager", "compiled")


def check(name, row, parameters, vocab):
    """Is it that model, and does it learn? Random weights guess: their loss is about ln(vocab)."""
    if row["parameters"] != parameters:
        sys.exit(f"compare.py: the model of {name} has {row['parameters']} parameters and Tutti's {parameters}")
    if not abs(row["first_loss"] - math.log(vocab)) < 0.5 or not row["last_loss"] < row["first_loss"]:
        sys.exit(f"compare.py: {name}: the loss went from {row['first_loss']:.3f} to {row['last_loss']:.3f}; expected it to begin near ln({vocab}) = {math.log(vocab):.3f} and to fall")


def start_peers(args, threads):
    """name -> a running program whose first steps, which compile, are done."""
    if not imports(args.python, "torch"):
        print(f"- PyTorch is missing: '{args.python}' cannot import torch; --python names an interpreter that can")
        return {}
    peers = {}
    for mode in MODES:
        sizes = (threads, args.rows, args.sequence_length)
        peer = Peer(f"PyTorch, {mode}", [args.python, str(here / "torch_train.py"), *map(str, sizes), mode, json.dumps(MODELS[args.model])], threads)
        warm = peer.ask("2") if peer.about else {"missing": "it does not start"}
        if "missing" in warm:
            print(f"- {peer.name} is missing: {warm['missing']}")
        else:
            peers[mode] = peer
            peer.about["first_loss"] = warm["losses"][0]
    return peers


def measure(args, peers, threads):
    """(program, mode) -> one answer a round: min_us and median_us."""
    answers, vocab = {}, MODELS[args.model]["vocab"]
    for _ in range(args.rounds):
        rows = run_tutti(args.tutti, ("train", "--model", args.model, "--rows", str(args.rows), "--sequence-length", str(args.sequence_length), "--steps", str(args.steps)), threads)
        of_peers = []
        for peer in peers.values():
            row = peer.ask(str(args.steps))
            of_peers.append(dict(peer.about, last_loss=row["losses"][-1], min_us=min(row["us"]), median_us=statistics.median(row["us"])))
        for name, of_name, modes in (("Tutti", rows, [row["mode"] for row in rows]), ("PyTorch", of_peers, list(peers))):
            for mode, row in zip(modes, of_name):
                check(f"{name}, {mode}", row, rows[0]["parameters"], vocab)
                answers.setdefault((name, mode), []).append(row)
    return answers


def summary(args, threads, answers):
    tokens = args.rows * args.sequence_length
    lines = {}
    for (name, mode), rows in answers.items():
        least, median = min(row["min_us"] for row in rows), statistics.median(row["median_us"] for row in rows)
        lines[name, mode] = {"program": name, "model": args.model, "tokens": tokens, "threads": threads, "mode": mode, "parameters": rows[0]["parameters"], "min_us": least,
                             "median_us": median, "tokens_per_s": tokens / median * 1e6, "best_tokens_per_s": tokens / least * 1e6}
    return lines


def print_rows(threads, lines):
    def cells(line):
        return f"{text_of(line['min_us'])} ({text_of(line['median_us'])}) | {line['best_tokens_per_s']:.0f} ({line['tokens_per_s']:.0f})" if line else " | "

    best = lambda name: min((line for (of, _), line in lines.items() if of == name), key=lambda line: line["min_us"], default=None)
    for mode, ours, theirs in [(mode, lines["Tutti", mode], lines.get(("PyTorch", mode))) for mode in MODES] + [("the better of the two", best("Tutti"), best("PyTorch"))]:
        ratio = f"{theirs['min_us'] / ours['min_us']:.2f} ({theirs['median_us'] / ours['median_us']:.2f})" if theirs else ""
        print(f"| {threads} | {mode} | {cells(ours)} | {cells(theirs)} | {ratio} |", flush=True)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--model", default="debugmodel", choices=MODELS)
    flags.add_argument("--rows", type=count, default=2)
    flags.add_argument("--sequence-length", type=count, default=256)
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--rounds", type=count, default=5)
    flags.add_argument("--steps", type=count, default=2)
    flags.add_argument("--python", default=sys.executable)
    flags.add_argument("--json")
    args = flags.parse_args()
    lines = []
    for threads in args.threads:
        peers = start_peers(args, threads)
        answers = measure(args, peers, threads)
        for peer in peers.values():
            peer.end()
        of_this = summary(args, threads, answers)
        if not lines:
            about = next((f", PyTorch {peer.about['version']} as {peer.about['isa']}" for peer in peers.values()), "")
            print(f"\n{args.model}, {of_this['Tutti', 'eager']['parameters']} parameters, {args.rows} x {args.sequence_length} tokens a step, f32{about}; minimum (median)\n")
            print("| threads | | Tutti: step | tokens/s | PyTorch: step | tokens/s | Tutti / PyTorch in tokens/s |\n|---|---|---|---|---|---|---|")
        print_rows(threads, of_this)
        lines += of_this.values()
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
