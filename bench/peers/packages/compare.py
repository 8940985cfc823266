#!/usr/bin/env python3
"""Packages of Tutti beside those of AOTInductor and ONNX Runtime, in turns in one run.

compare.py TUTTI [--threads 1,2] [--rounds 3] [--total-ms 2000] [--python PYTHON]: the three functions of `tutti bench package`. PYTHON has torch and numpy (tested: 2.15); with onnx, onnxscript and onnxruntime (tested:
1.32) it also makes and runs ONNX files. Sizes of files, the fastest of `--rounds` openings (to the first result, in a process of its own, where the file has been read before), and minimum and median of calls;
the last column is the peer's median by Tutti's, as the median of the rounds' ratios.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import Peer, count, counts, headline, program, run_tutti, text_of, torch_environment  # noqa: E402
import json  # noqa: E402


def make(python, folder, threads):
    done = subprocess.run([python, str(here / "torch_packages.py"), "make", folder, str(threads)], capture_output=True, text=True, env=torch_environment(threads))
    if done.returncode != 0:
        sys.exit(f"compare.py: '{python} torch_packages.py make' failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(threads, what, size, first_ms, us, ratio=""):
    least, median = min(us), statistics.median(us)
    print(f"| {threads} | {what} | {size / 1e6:.2f} MB | {first_ms:.1f} ms | {text_of(least)} ({text_of(median)}) | {ratio} |", flush=True)


def compare(args, folder, made, threads):
    for name in made["aoti"]:
        ours, theirs, first, told = [], {}, {}, {}
        for _ in range(args.rounds):
            ours.append(run_tutti(args.tutti, ("package", "--only", name, "--total-ms", str(args.total_ms)), threads)[0])
            for which in ("aoti", "onnx"):
                if name not in made[which]:
                    continue
                peer = Peer("PyTorch", [args.python, str(here / "torch_packages.py"), which, folder, name, str(threads)], threads)
                if peer.about is None:
                    sys.exit(f"compare.py: '{args.python} torch_packages.py {which} {folder} {name} {threads}' ends before it answers; run it to see why")
                told[which] = peer.about
                first.setdefault(which, []).append(peer.about["first_ms"])
                theirs.setdefault(which, []).append(peer.ask(str(args.total_ms / 2))["us"])
                peer.end()
        best = min(ours, key=lambda r: r["packaged_us"])
        row(threads, f"{name}, Tutti", best["file_bytes"], min(r["first_ms"] for r in ours), [r["packaged_min_us"] for r in ours] + [r["packaged_us"] for r in ours])
        for which, rounds in theirs.items():
            ratio = statistics.median(statistics.median(us) / r["packaged_us"] for us, r in zip(rounds, ours))
            row(threads, f"{name}, {told[which]['peer']}", told[which]["bytes"], min(first[which]), [t for us in rounds for t in us], f"{ratio:.2f}")


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--rounds", type=count, default=3)
    flags.add_argument("--total-ms", type=count, default=2000)
    flags.add_argument("--python", default=sys.executable)
    args = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = make(args.python, folder, max(args.threads))
        if "missing" in told["made"]:
            print(f"- ONNX files are missing: {told['made']['missing']}")
        print(f"\n{headline(told)}. Minimum (median)\n")
        print("| threads | package | file | to the first result | a call | by Tutti's |\n|---|---|---|---|---|---|")
        for threads in args.threads:
            compare(args, folder, told["made"], threads)


if __name__ == "__main__":
    main()
