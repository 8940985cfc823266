#!/usr/bin/env python3
"""Tutti's kernels beside oneDNN, OpenBLAS and PyTorch, in turns in one run: which of them this machine has is found out, none is needed.

compare.py TUTTI [--threads 1,2] [--rounds 3] [--only TEXT] [--python PYTHON] [--json FILE] [--svg FILE]: prints a Markdown table per number of
threads: minimum over all rounds, median of the rounds' medians. Fails when a result is wrong.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from cases import CASES
from roofline import draw

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]


def environment(threads):
    """Memory of all programs, Tutti included, lies in huge pages, and what was freed stays with them: else a large result would be mapped anew each time."""
    return dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads), GLIBC_TUNABLES="glibc.malloc.hugetlb=1", MALLOC_MMAP_MAX_="0",
                MALLOC_TRIM_THRESHOLD_=str(1 << 40))


class Peer:
    """A program that answers cases, see peer.h; it stays between rounds."""

    def __init__(self, name, command, threads):
        self.name = name
        self.process = subprocess.Popen([*command, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(threads))
        first = self.process.stdout.readline()
        self.about = json.loads(first) if first else None

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"compare.py: {self.name} ended while it ran '{line}'; run that case alone with --only")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def build(folder, source, *more):
    """The program, or None and why."""
    target = f"{folder}/{pathlib.Path(source).stem}"
    if shutil.which("g++") is None:
        return None, "there is no g++"
    done = subprocess.run(["g++", "-O3", "-std=c++20", "-I", str(root), str(here / source), "-o", target, *more], capture_output=True, text=True)
    return (target, "") if done.returncode == 0 else (None, next((l for l in done.stderr.splitlines() if "error" in l or "cannot find" in l), done.stderr.strip()))


def find_peers(folder, python):
    """name -> command."""
    commands = {}
    for name, source, library in (("oneDNN", "onednn_kernels.cpp", "-ldnnl"), ("OpenBLAS", "openblas_kernels.cpp", "-lopenblas")):
        binary, why = build(folder, source, library)
        if binary:
            commands[name] = [binary]
        else:
            print(f"- {name} is missing: {why}")
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
        commands["PyTorch"] = [python, str(here / "torch_kernels.py")]
    else:
        print("- PyTorch is missing: --python names an interpreter that can import torch")
    return commands


def run_tutti(tutti, arguments, threads):
    done = subprocess.run([tutti, "bench", *arguments, "--threads", str(threads), "--json"], capture_output=True, text=True, env=environment(threads))
    if done.returncode != 0:
        sys.exit(f"compare.py: '{tutti} bench {' '.join(arguments)}' failed: {done.stderr.strip() or 'a result is wrong'}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(tutti, peers, cases, threads, rounds, rate):
    """(case, column) -> answers of the rounds, and the roof: peak GFLOP/s and GB/s. Every case is run by all programs before the next one."""
    answers, roof, missing = {}, {}, {}

    def keep(case, column, row):
        answers.setdefault((case, column), []).append(row)

    for _ in range(rounds):
        for key, value in json.loads(subprocess.run([rate, str(threads)], capture_output=True, text=True).stdout).items():
            roof[key] = max(roof.get(key, 0), value)
        peak = run_tutti(tutti, ("gemm", "--m", "64", "--n", "64", "--k", "64"), threads)[0]["peak_gflops"] * threads
        roof["peak_gflops"] = max(roof.get("peak_gflops", 0), peak)
        for group in dict.fromkeys(case.tutti for case in cases):
            rows = run_tutti(tutti, group, threads) if group else []
            for case in (c for c in cases if c.tutti == group):
                for column, wanted in case.rows.items():
                    keep(case, column, next(row for row in rows if wanted.items() <= row.items()))
                for peer in peers:
                    if (case, peer.name) in missing:
                        continue
                    row = peer.ask(case.line)
                    if "missing" in row:
                        missing[case, peer.name] = row["missing"]
                    elif not row["error"] <= 1:
                        sys.exit(f"compare.py: '{case.line}' of {peer.name} is {row['error']:.3g} times as far from the result in double precision as rounding explains")
                    else:
                        keep(case, peer.name, row)
    return answers, roof, missing


def summary(case, column, rows, threads):
    best = min(row["min_us"] for row in rows)
    words = case.line.split()
    return {"program": column, "op": words[0], "shape": case.label, "dtype": next(w for w in words[1:] if not w.isdigit()), "threads": threads, "min_us": best,
            "median_us": statistics.median(row["median_us"] for row in rows), "gflops": case.flops / best * 1e-3, "gbps": case.nbytes / best * 1e-3,
            "kernel": rows[0].get("kernel", "")}


def text_of(us):
    for unit, scale in (("us", 1), ("ms", 1e3), ("s", 1e6)):
        if us < 1000 * scale or unit == "s":
            value = us / scale
            return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f} {unit}"


def print_table(cases, results, columns, roof, threads):
    print(f"\n{threads} thread{'s' * (threads > 1)}; multiply-adds {roof['peak_gflops']:.1f} GFLOP/s, 64 MiB read {roof['read_gbps']:.1f} GB/s, copied "
          f"{roof['copy_gbps']:.1f}, updated in place {roof['update_gbps']:.1f}, 4 MiB read {roof['cache_read_gbps']:.1f}; minimum (median)\n")
    print("| | " + " | ".join(columns) + " | Tutti / best peer | GFLOP/s | of the peak | GB/s |")
    print("|---|" + "---|" * (len(columns) + 4))
    for case in cases:
        row = {column: results[case, column] for column in columns if (case, column) in results}
        ours = [r for column, r in row.items() if column.startswith("Tutti")]
        peers = [r["min_us"] for column, r in row.items() if not column.startswith("Tutti")]
        ratio = ", ".join(f"{r['min_us'] / min(peers):.2f}" for r in ours) if peers else ""
        best = min(ours, key=lambda r: r["min_us"], default=None)
        rates = f"{best['gflops']:.1f} | {100 * best['gflops'] / roof['peak_gflops']:.0f} % | {best['gbps']:.1f}" if best else " | | "
        cells = [f"{text_of(row[c]['min_us'])} ({text_of(row[c]['median_us'])})" if c in row else "" for c in columns]
        print(f"| {case.label} | " + " | ".join(cells) + f" | {ratio} | {rates} |", flush=True)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti")
    flags.add_argument("--threads", default="1,2")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--only", default="", help="cases whose label contains this")
    flags.add_argument("--python", default=sys.executable)
    flags.add_argument("--json")
    flags.add_argument("--svg")
    args = flags.parse_args()
    cases = [case for case in CASES if args.only in case.label]
    if not cases:
        sys.exit(f"compare.py: no case has '{args.only}' in its label; they are: " + "; ".join(case.label for case in CASES))
    if args.svg and not any(case.short for case in cases):
        sys.exit(f"compare.py: --svg: none of the cases with '{args.only}' is on the plot; leave --svg out, or take one of: " + "; ".join(c.label for c in CASES if c.short))
    lines, panels = [], []
    with tempfile.TemporaryDirectory() as folder:
        commands = find_peers(folder, args.python)
        rate, why = build(folder, "memory_rate.cpp", "-mavx2", "-pthread")
        if rate is None:
            sys.exit(f"compare.py: memory_rate.cpp does not build: {why}")
        for threads in (int(t) for t in args.threads.split(",")):
            peers = [Peer(name, command, threads) for name, command in commands.items()]
            if not panels:
                for peer in peers:
                    print(f"- {peer.name} {peer.about['version']}, runs as {peer.about['isa']}" if peer.about else f"- {peer.name} is missing: it does not start")
            peers = [peer for peer in peers if peer.about]
            answers, roof, missing = measure(args.tutti, peers, cases, threads, args.rounds, rate)
            for peer in peers:
                peer.end()
            results = {(case, column): summary(case, column, rows, threads) for (case, column), rows in answers.items()}
            columns = [c for c in ("Tutti", "Tutti, compiled", *commands) if any(column == c for _, column in results)]
            print_table(cases, results, columns, roof, threads)
            for (case, name), why in missing.items():
                if why != "no such operation":
                    print(f"\n{name} has no '{case.label}' here: {why}")
            lines += [{"program": "roof", "threads": threads, **roof}, *results.values()]
            panels.append((threads, roof, results))
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(line) + "\n" for line in lines))
    if args.svg:
        pathlib.Path(args.svg).write_text(draw(panels))


if __name__ == "__main__":
    main()
