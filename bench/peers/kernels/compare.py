#!/usr/bin/env python3
"""Tutti's kernels beside oneDNN, OpenBLAS, ggml, PyTorch (called from Python, small ones also from C++ as libtorch) and MLX, in turns in one run: which of them this machine has is found out, none is needed.

compare.py TUTTI [--threads 1,2] [--rounds 3] [--only TEXT] [--python PYTHON] [--mlx PYTHON] [--onednn PREFIX] [--ggml PREFIX] [--add FILE] [--json FILE]
[--svg FILE]: prints a Markdown table per number of threads: minimum over all rounds, median of the rounds' medians. Fails when a result is wrong.
"""
import argparse
import ctypes.util
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from cases import CASES
from roofline import MARKS, draw

here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent))
from programs import Peer, build, build_libtorch, count, counts, headline, imports, program, run_tutti, text_of, written  # noqa: E402


def find_peers(folder, args):
    """name -> command and what to add to its environment."""
    commands = {}
    placed = lambda prefix: [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"] if prefix else []
    ggml = placed(args.ggml)
    for name, source, *flags in (("oneDNN", "onednn_kernels.cpp", *placed(args.onednn), "-ldnnl"), ("OpenBLAS", "openblas_kernels.cpp", "-lopenblas"), ("ggml", "ggml_kernels.cpp", *ggml, "-lggml-cpu", "-lggml-base")):
        binary, why = build(folder, here / source, *flags)
        if binary:
            commands[name] = [binary], {}
        else:
            print(f"- {name} is missing: {why}")
    for name, module, flag, script in (("PyTorch", "torch", "python", "torch_kernels.py"), ("MLX", "mlx.core, numpy", "mlx", "mlx_kernels.py")):
        python = getattr(args, flag) or args.python
        if imports(python, module):
            commands[name] = [python, str(here / script)], {}
        else:
            print(f"- {name} is missing: --{flag} names an interpreter that can import {module}")
    binary, why = build_libtorch(folder, args.python)
    if binary:
        commands["libtorch"] = [binary], {}
    else:
        print(f"- libtorch is missing: {why}")
    blas = ctypes.util.find_library("openblas")
    if "MLX" in commands and blas:
        print(f"- MLX calls {blas} instead of the BLAS that it brings")
        commands["MLX"][1]["LD_PRELOAD"] = blas
    return commands


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
                    row = next((row for row in rows if wanted.items() <= row.items()), None)
                    if row is None:
                        sys.exit(f"compare.py: 'tutti bench {' '.join(group)}' printed no line with {wanted}, which '{case.label}' needs; build {tutti} from this tree")
                    keep(case, column, row)
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


def earlier_rounds(path, cases, threads):
    """What an earlier run wrote with --json, as one more round of each case and program: its answers, and its roof."""
    answers, roof = {}, {}
    labels = {case.label: case for case in cases}
    for row in map(json.loads, pathlib.Path(path).read_text().splitlines()):
        if row["threads"] != threads:
            continue
        if row["program"] == "roof":
            roof = {key: value for key, value in row.items() if key not in ("program", "threads")}
        elif row["shape"] in labels:
            answers.setdefault((labels[row["shape"]], row["program"]), []).append(row)
    return answers, roof


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
    flags.add_argument("tutti", type=program)
    flags.add_argument("--threads", type=counts, default=[1, 2])
    flags.add_argument("--rounds", type=lambda text: 0 if text == "0" else count(text), default=3, help="0: only those of --add")
    flags.add_argument("--only", default="", help="cases whose label contains this")
    flags.add_argument("--python", default=sys.executable, help="an interpreter that can import torch")
    flags.add_argument("--mlx", help="an interpreter that can import mlx.core and numpy; without it that of --python")
    flags.add_argument("--onednn", metavar="PREFIX", help="an installed oneDNN to use instead of the system's")
    flags.add_argument("--ggml", help="where ggml is installed, if the compiler does not find it by itself")
    flags.add_argument("--add", type=written, action="append", default=[], metavar="FILE", help="what an earlier run wrote with --json counts as one more round")
    flags.add_argument("--json")
    flags.add_argument("--svg")
    args = flags.parse_args()
    if args.rounds == 0 and not args.add:
        flags.error("argument --rounds: 0 leaves nothing to print; --add names files of earlier rounds")
    cases = [case for case in CASES if args.only in case.label]
    if not cases:
        sys.exit(f"compare.py: no case has '{args.only}' in its label; they are: " + "; ".join(case.label for case in CASES))
    if args.svg and not any(case.short for case in cases):
        sys.exit(f"compare.py: --svg: none of the cases with '{args.only}' is on the plot; leave --svg out, or take one of: " + "; ".join(c.label for c in CASES if c.short))
    lines, panels = [], []
    with tempfile.TemporaryDirectory() as folder:
        commands = find_peers(folder, args) if args.rounds else {}
        rate, why = build(folder, here / "memory_rate.cpp", "-mavx2", "-pthread") if args.rounds else ("", "")
        if rate is None:
            sys.exit(f"compare.py: memory_rate.cpp does not build: {why}")
        for threads in args.threads:
            peers = [Peer(name, [*command, str(threads)], threads, **more) for name, (command, more) in commands.items()]
            if not panels:
                for peer in peers:
                    print(f"- {peer.name} {peer.about['version']}, runs as {peer.about['isa']}" if peer.about else f"- {peer.name} is missing: it does not start")
                print("\n" + headline(next((peer.about for peer in peers if peer.name == "PyTorch"), None)) + ".")
            peers = [peer for peer in peers if peer.about]
            answers, roof, missing = measure(args.tutti, peers, cases, threads, args.rounds, rate)
            for peer in peers:
                peer.end()
            for path in args.add:
                more, its_roof = earlier_rounds(path, cases, threads)
                for key, rows in more.items():
                    answers.setdefault(key, []).extend(rows)
                roof = {key: max(roof.get(key, 0), its_roof.get(key, 0)) for key in {*roof, *its_roof}}
            if not roof:
                sys.exit(f"compare.py: no round with {threads} threads: --rounds is 0 and {', '.join(args.add)} has none")
            results = {(case, column): summary(case, column, rows, threads) for (case, column), rows in answers.items()}
            columns = [c for c in MARKS if any(column == c for _, column in results)]
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
