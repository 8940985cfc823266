#!/usr/bin/env python3
"""Packages of Tutti beside those of AOTInductor and ONNX Runtime, in turns in one run.

compare.py TUTTI [--model MODEL] [--only mlp,read] [--threads 1,2] [--rounds 3] [--total-ms 2000] [--python PYTHON]: the three functions of `tutti bench package`, mlp, block and wide, and with --model two calls of a published model (such as
scripts/fetch_models.sh fetches) in f32: read, the first 65 tokens of a text, and write, one token behind 256 keys. PYTHON has torch and numpy (tested: 2.15); with onnx, onnxscript and onnxruntime (tested: 1.32) it also makes and runs ONNX files.
Sizes of files, the fastest of `--rounds` openings (to the first result, in a process of its own, where the file has been read before), and minimum and median of calls; the last column is the peer's median by Tutti's, as the median of the
rounds' ratios. Peers have a file for each call of a model, and of AOTInductor for each number of threads; Tutti has one. The files of SmolLM2-135M take 20 GB of the folder for temporary files while this runs.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import Peer, count, counts, headline, imports, program, run_tutti, text_of, torch_environment  # noqa: E402

FUNCTIONS = {name: name for name in ("mlp", "block", "wide")}
CALLS = {"read": "65 tokens read", "write": "one token behind 256 keys"}


def row(threads, what, who, size, first_ms, least, median, ratio=""):
    print(f"| {threads} | {what} | {who} | {size / 1e6:.2f} MB | {first_ms:.1f} ms | {text_of(least)} ({text_of(median)}) | {ratio} |", flush=True)


class Group:
    """Cases whose peers one script makes and runs."""

    def __init__(self, args, script, names, folder, *tutti):
        self.args, self.script, self.names, self.folder, self.tutti = args, script, names, folder, tutti
        command = [args.python, str(here / script), "make", folder, ",".join(names), ",".join(map(str, args.threads))]
        environment = dict(torch_environment(max(args.threads)), TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor")  # choices of earlier runs count for nothing
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            sys.exit(f"compare.py: '{' '.join(command[:3])}' failed: {done.stderr.strip().splitlines()[-1:]}")
        self.told = json.loads(done.stdout.splitlines()[-1])
        self.made = self.told["made"]

    def compare(self, threads):
        for name, what in self.names.items():
            self.compare_case(name, what, threads)

    def compare_case(self, name, what, threads):
        args, ours, theirs, first, told = self.args, [], {}, {}, {}
        for _ in range(args.rounds):
            ours.append(run_tutti(args.tutti, ("package", "--only", name, "--total-ms", str(args.total_ms), *(word.format(name=name) for word in self.tutti)), threads)[0])
            for which in ("aoti", "onnx"):
                if name not in self.made[which]:
                    continue
                command = [args.python, str(here / self.script), which, self.folder, name, str(threads)]
                peer = Peer("PyTorch", command, threads)
                if peer.about is None:
                    sys.exit(f"compare.py: '{' '.join(command)}' ends before it answers; run it to see why")
                told[which] = peer.about
                first.setdefault(which, []).append(peer.about["first_ms"])
                theirs.setdefault(which, []).append(peer.ask(str(args.total_ms / 2))["us"])
                peer.end()
        best = min(ours, key=lambda r: r["packaged_us"])
        row(threads, what, "Tutti", best["file_bytes"], min(r["first_ms"] for r in ours), min(r["packaged_min_us"] for r in ours), statistics.median(r["packaged_us"] for r in ours))
        for which, rounds in theirs.items():
            ratio = statistics.median(statistics.median(us) / r["packaged_us"] for us, r in zip(rounds, ours))
            row(threads, what, told[which]["peer"], told[which]["bytes"], min(first[which]), min(map(min, rounds)), statistics.median(map(statistics.median, rounds)), f"{ratio:.2f}")


def model_group(args, names, folder):
    """The model's weights in f32 in FOLDER/model, and Tutti's package of them in FOLDER/package."""
    model, package = f"{folder}/model", f"{folder}/package"
    for command in ([args.tutti, "convert", args.model, model, "--dtype", "f32"], [args.tutti, "package", model, package, "--context", "1024"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"compare.py: '{' '.join(command)}' failed: {done.stderr.strip()}")
    title = pathlib.Path(args.model).name.removesuffix(".gguf").split(".Q")[0]  # without the type of a file's weights, which are decoded
    return Group(args, "torch_decoder.py", {name: f"{title}, {what}" for name, what in names.items()}, folder, "--model", package, "--logits", folder + "/{name}.logits")


def names(text):
    """The type of --only."""
    words = text.split(",")
    known = FUNCTIONS | CALLS
    if not all(word in known for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' should be names with commas between them: {', '.join(known)}")
    return words


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--model")
    flags.add_argument("--only", type=names)
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--rounds", type=count, default=3)
    flags.add_argument("--total-ms", type=count, default=2000)
    flags.add_argument("--python", default=sys.executable)
    args = flags.parse_args()
    if args.model and not pathlib.Path(args.model).exists():
        flags.error(f"--model: there is no '{args.model}'; scripts/fetch_models.sh smollm2-135m-instruct fetches one")
    chosen = lambda known: {name: what for name, what in known.items() if not args.only or name in args.only}
    if not args.model and not chosen(FUNCTIONS):
        flags.error("--only: read and write are calls of a model; name one with --model")
    if not imports(args.python, "torch"):
        sys.exit(f"compare.py: '{args.python}' cannot import torch; give one that can with --python")
    with tempfile.TemporaryDirectory() as folder:
        groups = []
        if chosen(FUNCTIONS):
            groups.append(Group(args, "torch_packages.py", chosen(FUNCTIONS), folder))
        if args.model and chosen(CALLS):
            groups.append(model_group(args, chosen(CALLS), folder))
        if "missing" in groups[0].made:
            print(f"- ONNX files are missing: {groups[0].made['missing']}")
        for case, settings in groups[-1].made.get("settings", {}).items():
            print(f"- AOTInductor, {case}: fastest with {settings}")
        print(f"\n{headline(groups[0].told)}. Minimum (median)\n")
        print("| threads | package | | file | to the first result | a call | by Tutti's |\n|---|---|---|---|---|---|---|")
        for threads in args.threads:
            for group in groups:
                group.compare(threads)


if __name__ == "__main__":
    main()
