#!/usr/bin/env python3
"""Training steps whose model ranks divide, by Tutti and by PyTorch on Gloo, in turns in one run.

compare.py TUTTI [--model quickstart-tp4] [--rows 16] [--sequence-length 256] [--layouts one-2,ddp-2,fsdp-2,tp-2] [--rounds 3] [--steps 4] [--virtual-shards 8]
[--python PYTHON]: a layout is one of torch_parallel.py with a number of ranks; one-2 is one rank of two threads. In each round every layout runs in both programs; Tutti runs
`tutti train` with the same model, number of tokens and optimizer, eager and compiled. Every layout also stands beside the best single process of PyTorch on the same cores,
eager or compiled, with the number of threads that is best in the first round. PyTorch's ranks have Gloo, which has no shared memory. Prints a Markdown table: minimum over all rounds, median of the rounds' medians.
Fails when a loss does not begin near ln(vocabulary) and fall, or when Tutti's losses depend on the layout.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
sys.path.append(str(here.parent))
from models import MODELS  # noqa: E402
from programs import count, environment, headline, imports, program, text_of, torch_environment  # noqa: E402

FLAGS = {"one": [], "ddp": [], "fsdp": ["--parallelism.data_parallel_shard_degree={ranks}"], "tp": ["--parallelism.tensor_parallel_degree={ranks}"],
         "ep": ["--parallelism.expert_parallel_degree={ranks}", "--parallelism.data_parallel_schedule=every_round"]}
NAMES = {"one": "1 rank of {ranks} threads", "ddp": "{ranks} ranks, replicas (DDP)", "fsdp": "{ranks} ranks, divided parameters (FSDP2)", "tp": "{ranks} ranks, divided products (TP)",
         "ep": "{ranks} ranks, divided experts (EP)"}


def layout(text):
    kind, _, ranks = text.partition("-")
    if kind not in FLAGS or not ranks.isdigit() or int(ranks) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no layout; expected {', '.join(FLAGS)} and a number of ranks, such as tp-2")
    return kind, int(ranks)


def run(command, name, env):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env, cwd=root)
    if done.returncode != 0:
        sys.exit(f"compare.py: {name}: '{' '.join(map(str, command))}' failed: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout


def run_tutti(args, kind, ranks, compiled):
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--model.flavor={args.model}", "--data.tokenizer=byte", f"--training.global_batch_tokens={args.rows * args.sequence_length}",
                 f"--data.sequence_length={args.sequence_length}", f"--numerics.virtual_shards={args.virtual_shards}", f"--training.steps={args.steps + 1}", "--lr_scheduler.warmup_steps=1",
                 "--validation.every=0", "--validation.sample_tokens=0", "--checkpoint.every=0", f"--training.compile={'true' if compiled else 'false'}", f"--run.dir={folder}", "--run.name=run",
                 "-n", "1" if kind == "one" else str(ranks), f"--runtime.threads={ranks if kind == 'one' else 1}", *(flag.format(ranks=ranks) for flag in FLAGS[kind])]
        run([args.tutti, "train", root / "configs/quickstart.toml", *flags], f"Tutti, {kind}-{ranks}", environment(ranks if kind == "one" else 1))
        lines = [json.loads(line) for line in (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    return {"us": [line["step_ms"] * 1e3 for line in lines[1:]], "losses": [line["loss"] for line in lines], "hex": [line["loss_hex"] for line in lines]}


def run_torch(args, kind, ranks, compiled=False):
    command = [args.python, here / "torch_parallel.py", kind, "--ranks", ranks, *["--compiled"] * compiled, "--model", args.model, "--rows", args.rows, "--sequence-length", args.sequence_length, "--steps", args.steps]
    return json.loads(run(command, f"PyTorch, {kind}-{ranks}", torch_environment(ranks if kind == "one" else 1)).splitlines()[-1])


def check(name, answer, vocab):
    first, last = answer["losses"][0], answer["losses"][-1]
    if not abs(first - math.log(vocab)) < 0.6 or not last < first:
        sys.exit(f"compare.py: {name}: the loss went from {first:.3f} to {last:.3f}; expected it to begin near ln({vocab}) = {math.log(vocab):.3f} and to fall")


class Singles:
    """PyTorch's single processes on so many cores: every number of threads up to them once, and the best one, eager and compiled, in each further round."""

    def __init__(self, args, cores):
        self.args, self.cores, self.answers = args, cores, {}

    def measure(self, vocab):
        for compiled in (False, True):
            known = {threads: rows for (of, threads), rows in self.answers.items() if of == compiled}
            for threads in [min(known, key=lambda t: min(min(row["us"]) for row in known[t]))] if known else range(1, self.cores + 1):
                answer = run_torch(self.args, "one", threads, compiled)
                check(f"PyTorch, one process of {threads} threads", answer, vocab)
                self.answers.setdefault((compiled, threads), []).append(answer)

    def best(self):
        """Compiled or not, threads, answers."""
        (compiled, threads), rows = min(self.answers.items(), key=lambda item: min(min(row["us"]) for row in item[1]))
        return compiled, threads, rows


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--model", default="quickstart-tp4", choices=MODELS)
    flags.add_argument("--rows", type=count, default=16)
    flags.add_argument("--sequence-length", type=count, default=256)
    flags.add_argument("--layouts", type=lambda text: [layout(word) for word in text.split(",")], default="one-2,ddp-2,fsdp-2,tp-2")
    flags.add_argument("--rounds", type=count, default=3)
    flags.add_argument("--steps", type=count, default=4)
    flags.add_argument("--virtual-shards", type=count, default=8)
    flags.add_argument("--python", default=sys.executable)
    args = flags.parse_args()
    has_torch = imports(args.python, "torch")
    if not has_torch:
        print(f"- PyTorch is missing: '{args.python}' cannot import torch; --python names an interpreter that can")
    answers, vocab, about = {}, MODELS[args.model]["vocab"], None
    cores_of = lambda ranks: min(ranks, os.cpu_count())
    singles = {cores: Singles(args, cores) for cores in {cores_of(ranks) for _, ranks in args.layouts}} if has_torch else {}
    for _ in range(args.rounds):
        for single in singles.values():
            single.measure(vocab)
        for kind, ranks in args.layouts:
            programs = {"Tutti, eager": lambda: run_tutti(args, kind, ranks, False), "Tutti, compiled": lambda: run_tutti(args, kind, ranks, True)}
            if has_torch and kind != "one":
                programs["PyTorch"] = lambda: run_torch(args, kind, ranks)
            for name, measure in programs.items():
                answer = measure()
                check(f"{name}, {kind}-{ranks}", answer, vocab)
                about = answer.get("about", about)
                answers.setdefault((kind, ranks, name), []).append(answer)
    losses = {tuple(answer["hex"]) for (_, _, name), rows in answers.items() if name.startswith("Tutti") for answer in rows}
    if len(losses) != 1:
        sys.exit(f"compare.py: Tutti's losses depend on the layout: {losses}")
    tokens = args.rows * args.sequence_length
    print(f"\n{headline(about)}.\n{args.model}, {tokens} tokens a step, f32; minimum (median), tokens/s of the minimum\n")
    print("| layout | Tutti, eager | tokens/s | compiled | tokens/s | PyTorch | tokens/s | Tutti / PyTorch | PyTorch's best single process | which is | Tutti / that |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for kind, ranks in args.layouts:
        cells, least = [NAMES[kind].format(ranks=ranks)], {}

        def step(name, rows):
            least[name] = min(min(row["us"]) for row in rows)
            return f"{text_of(least[name])} ({text_of(statistics.median(statistics.median(row['us']) for row in rows))})"

        for name in ("Tutti, eager", "Tutti, compiled", "PyTorch"):
            rows = answers.get((kind, ranks, name))
            cells += [step(name, rows), f"{tokens / least[name] * 1e6:.0f}"] if rows else ["", ""]
        ours = min(least["Tutti, eager"], least["Tutti, compiled"])
        cells.append(f"{least['PyTorch'] / ours:.2f}" if "PyTorch" in least else "")
        if singles:
            compiled, threads, rows = singles[cores_of(ranks)].best()
            cells += [step("single", rows), f"{'compiled' if compiled else 'eager'}, {threads} thread{'s' * (threads > 1)}", f"{least['single'] / ours:.2f}"]
        else:
            cells += ["", "", ""]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
