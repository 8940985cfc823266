#!/usr/bin/env python3
"""Tutti's collectives beside Open MPI, MPICH and Gloo, in turns in one run, with the distance of the cores before and after each.

compare.py TUTTI [--ranks 2] [--rounds 3] [--bytes 8,1024,...]: builds the peers that this machine has, runs all programs once per
round, and prints a Markdown table of medians over rounds: microseconds, and Tutti's time over the best peer's.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

here = pathlib.Path(__file__).parent
flags = argparse.ArgumentParser()
flags.add_argument("tutti")
flags.add_argument("--ranks", type=int, default=2)
flags.add_argument("--rounds", type=int, default=3)
flags.add_argument("--bytes", default="8,1024,32768,1048576,16777216,67108864")
args = flags.parse_args()
cores = os.cpu_count()
crowded = args.ranks > cores
root = ["--allow-run-as-root"] if os.geteuid() == 0 else []

with tempfile.TemporaryDirectory() as build:
    def compile_with(compiler, source, *more):
        target = f"{build}/{pathlib.Path(source).stem}_{compiler.split('.')[-1]}"
        if shutil.which(compiler) is None:
            return None
        done = subprocess.run([compiler, "-O3", "-std=c++17", str(here / source), "-o", target, *more], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"# {source} with {compiler} does not build: {done.stderr.splitlines()[0] if done.stderr else ''}")
        return target if done.returncode == 0 else None

    probe = compile_with("g++", "roundtrip.cpp", "-pthread")
    programs = {
        "Tutti": [args.tutti, "bench", "comm", "-n", str(args.ranks), "--bytes", args.bytes, "--json"],
        "Tutti, symmetric": [args.tutti, "bench", "comm", "-n", str(args.ranks), "--bytes", args.bytes, "--json", "--buffers", "symmetric"],
    }
    if binary := compile_with("mpicxx.openmpi", "mpi_comm.cpp"):
        binding = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"] if crowded else ["--bind-to", "core"]
        programs["Open MPI"] = ["mpirun.openmpi", *root, *binding, "-n", str(args.ranks), binary, "openmpi", args.bytes]
    if binary := compile_with("mpicxx.mpich", "mpi_comm.cpp"):
        programs["MPICH"] = ["mpirun.mpich", *([] if crowded else ["-bind-to", "core"]), "-n", str(args.ranks), binary, "mpich", args.bytes]
    if binary := compile_with("g++", "gloo_comm.cpp", "-lgloo"):
        programs["Gloo"] = [binary, str(args.ranks), args.bytes]

    times, distances = {}, {}
    for _ in range(args.rounds):
        for name, command in programs.items():
            before = int(subprocess.run([probe], capture_output=True, text=True).stdout)
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            after = int(subprocess.run([probe], capture_output=True, text=True).stdout)
            distances.setdefault(name, []).append(f"{before}-{after}")
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    times.setdefault((row["op"], row.get("asked_bytes", row["bytes"])), {}).setdefault(name, []).append(row["median_us"])

print(f"{args.ranks} ranks on {cores} cores; cache-line round trips in ns before-after: "
      + "; ".join(f"{name} {', '.join(d)}" for name, d in distances.items()) + "\n")
names = list(programs)
print("| op | bytes asked | " + " | ".join(names) + " | best: Tutti / peer |")
print("|---|---|" + "---|" * (len(names) + 1))
for (op, size), row in times.items():
    medians = {name: statistics.median(values) for name, values in row.items()}
    peers = [v for name, v in medians.items() if not name.startswith("Tutti")]
    ours = [v for name, v in medians.items() if name.startswith("Tutti")]
    ratio = f"{ours[0] / min(peers):.2f} / {ours[-1] / min(peers):.2f}" if peers and ours else ""
    print(f"| {op} | {size} | " + " | ".join(f"{medians[n]:.2f}" if n in medians else "" for n in names) + f" | {ratio} |")
