#!/usr/bin/env python3
"""Training steps of Tutti beside PyTorch, eager and compiled, in f32 and bf16, in turns in one run.

compare.py TUTTI [--model debugmodel] [--rows 2] [--sequence-length 256] [--threads 1,2] [--dtypes f32,bf16] [--rounds 5] [--steps 2] [--python PYTHON] [--json FILE]: a step
is forward, loss, backward, gradient norm with clipping and AdamW on random tokens. On T cores PyTorch has the number of threads from 1 to T with which its steps are
shortest; beside Tutti's bf16 stand PyTorch's autocast and bf16 parameters with f32 masters (torch_train.py). In each round every program takes the steps; what was compiled is
warm by then. Prints a Markdown table: minimum over all rounds, median of the rounds' medians. GFLOP/s: 6 per parameter and token, and attention's products over the pairs that a
causal query sees. Peak RSS is that of the process during the steps, for both programs from /proc/self/status; in brackets what came on top of the program before there was a model.
Fails when the models differ in size, or a loss does not begin near ln(vocabulary) and fall.
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
from programs import Peer, count, counts, headline, imports, program, run_tutti, text_of  # noqa: E402

MODES = ("eager", "compiled")
OF_PEER = {"f32": ("f32",), "bf16": ("autocast", "bf16")}  # Tutti's dtype -> PyTorch's ways
COLUMNS = ("threads", "", "Tutti: step", "tokens/s", "GFLOP/s", "of the peak", "peak RSS", "PyTorch: step", "tokens/s", "its threads", "peak RSS", "Tutti / PyTorch in tokens/s")


def dtypes(text):
    words = text.split(",")
    if not set(words) <= OF_PEER.keys():
        raise argparse.ArgumentTypeError(f"'{text}' should be dtypes with commas between them: {', '.join(OF_PEER)}")
    return words


def check(name, row, parameters, vocab):
    """Is it that model, and does it learn? Random weights guess: their loss is about ln(vocab)."""
    if row["parameters"] != parameters:
        sys.exit(f"compare.py: the model of {name} has {row['parameters']} parameters and Tutti's {parameters}")
    if not abs(row["first_loss"] - math.log(vocab)) < 0.5 or not row["last_loss"] < row["first_loss"]:
        sys.exit(f"compare.py: {name}: the loss went from {row['first_loss']:.3f} to {row['last_loss']:.3f}; expected it to begin near ln({vocab}) = {math.log(vocab):.3f} and to fall")


def start_peer(args, mode, way, threads):
    """A running program whose first steps, which compile, are done, and the least time of the steps after them; or None and why there is none."""
    sizes = (threads, args.rows, args.sequence_length)
    peer = Peer(f"PyTorch, {mode}, {way}", [args.python, str(here / "torch_train.py"), *map(str, sizes), mode, way, json.dumps(MODELS[args.model])], threads)
    warm = peer.ask("2") if peer.about else {"missing": "it does not start"}
    if "missing" in warm:
        return None, f"{peer.name} is missing: {warm['missing']}"
    peer.ask("peak")
    peer.about |= {"first_loss": warm["losses"][0], "threads": threads}
    return peer, min(peer.ask(str(max(args.steps, 5)))["us"])  # few steps may meet a moment at which others have the machine


def best_peer(args, mode, way, cores):
    """The program with the best number of threads up to that of the cores; the others are ended."""
    best, least = None, math.inf
    for threads in range(cores, 0, -1):
        peer, us = start_peer(args, mode, way, threads)
        if peer is None:
            print(f"- {us}")
            return best
        worse, best, least = (best, peer, us) if us < least else (peer, best, least)
        if worse:
            worse.end()
    return best


def measure(args, peers, dtype, threads):
    """(program, mode, way) -> one answer a round: min_us, median_us and memory."""
    answers, vocab = {}, MODELS[args.model]["vocab"]
    for _ in range(args.rounds):
        rows = {}
        for mode in MODES:
            flags = ("train", "--model", args.model, "--rows", str(args.rows), "--sequence-length", str(args.sequence_length), "--steps", str(args.steps), "--dtype", dtype, "--mode", mode)
            rows["Tutti", mode, dtype] = run_tutti(args.tutti, flags, threads)[0]
        for (mode, way), peer in peers.items():
            row = peer.ask(str(args.steps))
            rows["PyTorch", mode, way] = dict(peer.about, last_loss=row["losses"][-1], min_us=min(row["us"]), median_us=statistics.median(row["us"]), peak_rss_mbytes=row["peak_rss_mbytes"])
        for key, row in rows.items():
            check(", ".join(key), row, rows["Tutti", MODES[0], dtype]["parameters"], vocab)
            answers.setdefault(key, []).append(row)
    return answers


def summary(args, cores, answers):
    tokens = args.rows * args.sequence_length
    lines = {}
    for (name, mode, way), rows in answers.items():
        least, median = min(row["min_us"] for row in rows), statistics.median(row["median_us"] for row in rows)
        peak_rss = max(row["peak_rss_mbytes"] for row in rows)
        lines[name, mode, way] = {"program": name, "model": args.model, "tokens": tokens, "cores": cores, "threads": rows[0]["threads"], "mode": mode, "dtype": way,
                                  "parameters": rows[0]["parameters"], "min_us": least, "median_us": median, "tokens_per_s": tokens / median * 1e6,
                                  "best_tokens_per_s": tokens / least * 1e6, "peak_rss_mbytes": peak_rss, "model_rss_mbytes": peak_rss - min(row["rss_mbytes"] for row in rows)}
        if name == "Tutti":
            lines[name, mode, way] |= {"gflops": max(row["gflops"] * row["median_us"] / row["min_us"] for row in rows), "peak_gflops": max(row["peak_gflops"] for row in rows)}
    return lines


def peak_of(args, dtype, threads):
    """GFLOP/s of all threads in that dtype: of dot units of bf16 where the processor has them."""
    row = run_tutti(args.tutti, ("gemm", "--m", "64", "--n", "64", "--k", "64", "--dtype", dtype), 1)[0]
    return row["peak_gflops"] * threads


def print_rows(cores, lines, dtype, peak):
    def rss(line):
        return f"{line['peak_rss_mbytes']:.0f} MiB ({line['model_rss_mbytes']:.0f})"

    def row(label, ours, theirs):
        step = lambda line: [f"{text_of(line['min_us'])} ({text_of(line['median_us'])})", f"{line['best_tokens_per_s']:.0f} ({line['tokens_per_s']:.0f})"]
        share = f"{100 * ours['gflops'] / peak:.0f} %" if peak else ""
        cells = [str(cores), label, *step(ours), f"{ours['gflops']:.0f}", share, rss(ours)]
        ratio = lambda key: theirs[key] / ours[key]
        cells += [*step(theirs), str(theirs["threads"]), rss(theirs), f"{ratio('min_us'):.2f} ({ratio('median_us'):.2f})"] if theirs else [""] * 5
        print("| " + " | ".join(cells) + " |", flush=True)

    for way in OF_PEER[dtype]:
        words = {"autocast": "bf16, beside autocast", "bf16": "bf16, beside bf16 parameters"}.get(way, way)
        for mode in MODES:
            row(f"{words}, {mode}", lines["Tutti", mode, dtype], lines.get(("PyTorch", mode, way)))
    best = lambda name: min((line for (of, *_), line in lines.items() if of == name), key=lambda line: line["min_us"], default=None)
    row(f"{dtype}, the best of each", best("Tutti"), best("PyTorch"))


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--model", default="debugmodel", choices=MODELS)
    flags.add_argument("--rows", type=count, default=2)
    flags.add_argument("--sequence-length", type=count, default=256)
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--dtypes", type=dtypes, default=["f32", "bf16"])
    flags.add_argument("--rounds", type=count, default=5)
    flags.add_argument("--steps", type=count, default=2)
    flags.add_argument("--python", default=sys.executable)
    flags.add_argument("--json")
    args = flags.parse_args()
    has_torch = imports(args.python, "torch")
    if not has_torch:
        print(f"- PyTorch is missing: '{args.python}' cannot import torch; --python names an interpreter that can")
    lines = []
    for dtype in args.dtypes:
        for threads in args.threads:
            peers = {(mode, way): best_peer(args, mode, way, threads) for way in OF_PEER[dtype] for mode in MODES} if has_torch else {}
            peers = {key: peer for key, peer in peers.items() if peer}
            of_this = summary(args, threads, measure(args, peers, dtype, threads))
            about = next((peer.about for peer in peers.values()), None)
            for peer in peers.values():
                peer.end()
            if not lines:
                ours = of_this["Tutti", "eager", dtype]
                print(f"\n{headline(about)}.\n{args.model}, {ours['parameters']} parameters, {args.rows} x {args.sequence_length} tokens a step; minimum (median)\n")
                print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
            print_rows(threads, of_this, dtype, peak_of(args, dtype, threads))
            lines += of_this.values()
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
