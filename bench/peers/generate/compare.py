#!/usr/bin/env python3
"""Tokens per second of reading a prompt and of writing a text, beside llama.cpp and transformers, in turns in one run.

  compare.py TUTTI FOLDER [--llama PYTHON] [--torch PYTHON] [--threads 1,2] [--dtypes f32,bf16] [--prompt 256] [--generated 64] [--rounds 3] [--json FILE]

FOLDER is a Hugging Face folder; `tutti convert` writes it as GGUF in each dtype for llama.cpp. Each program is a process of its own in every round; the table has medians of the rounds. On T threads a peer has, in each
test, the number from 1 to T and the dtype with which it is fastest. --llama is an interpreter with llama-cpp-python, --torch one with transformers and torch. GB/s: the weights, keys and values that writing a token reads, by the time that it takes.
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
from programs import count, counts, environment, headline, imports, program, run_tutti, torch_environment  # noqa: E402


def dtypes(text):
    words = text.split(",")
    if not set(words) <= {"f32", "bf16"}:
        raise argparse.ArgumentTypeError(f"'{text}' should be dtypes with commas between them: f32, bf16")
    return words


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tutti", type=program)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--llama", default="")
parser.add_argument("--torch", default="")
parser.add_argument("--threads", type=counts, default=[1, 2])
parser.add_argument("--dtypes", type=dtypes, default=["f32", "bf16"])
parser.add_argument("--prompt", type=count, default=256)
parser.add_argument("--generated", type=count, default=64)
parser.add_argument("--rounds", type=count, default=3)
parser.add_argument("--json", default="")
flags = parser.parse_args()
if not (flags.folder / "config.json").is_file():
    sys.exit(f"compare.py: {flags.folder} has no config.json; give it a Hugging Face folder, which `tutti convert MODEL FOLDER` makes")
peers = {}
for name, python, module in (("llama.cpp", flags.llama, "llama_cpp"), ("transformers", flags.torch, "transformers")):
    if python and imports(python, module):
        peers[name] = python
    else:
        print(f"{name} is left out: {f'{python} cannot import {module}' if python else 'no interpreter was given'}", file=sys.stderr)


def told(command, env):
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"compare.py: '{' '.join(map(str, command))}' failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def tokens_per_second(name, dtype, threads, gguf):
    sizes = [str(flags.prompt), str(flags.generated)]
    if name == "Tutti":
        rows = run_tutti(flags.tutti, ["generate", str(flags.folder), "-p", sizes[0], "-n", sizes[1], "-r", "1", "--dtype", dtype], threads)
        return {"pp": rows[0]["avg_ts"], "tg": rows[1]["avg_ts"], "gbps": rows[1]["gbps"]}
    if name == "llama.cpp":
        return told([peers[name], here / "llama_tokens.py", gguf, str(threads), *sizes], environment(threads))
    return told([peers[name], here / "torch_tokens.py", flags.folder, str(threads), *sizes, dtype], torch_environment(threads))


def median(rows, key):
    return statistics.median(row[key] for row in rows)


lines, rows, versions = [], {}, {}
with tempfile.TemporaryDirectory(prefix="tutti_generate_") as work:
    for dtype in flags.dtypes:
        gguf = pathlib.Path(work) / f"model.{dtype}.gguf"
        if "llama.cpp" in peers:
            subprocess.run([flags.tutti, "convert", flags.folder, gguf, "--dtype", dtype], check=True, capture_output=True)
        for threads in flags.threads:
            for _ in range(flags.rounds):
                for name in ("Tutti", *peers):
                    row = tokens_per_second(name, dtype, threads, gguf)
                    rows.setdefault((name, dtype, threads), []).append(row)
                    versions[name] = row.get("version")
for dtype in flags.dtypes:
    for threads in flags.threads:
        for test in ("pp", "tg"):
            own = median(rows["Tutti", dtype, threads], test)
            line = {"dtype": dtype, "threads": threads, "test": f"{test}{flags.prompt if test == 'pp' else flags.generated}", "Tutti": own,
                    "gbps": median(rows["Tutti", dtype, threads], "gbps") if test == "tg" else None}
            for name in peers:
                line[name] = max(median(found, test) for (which, _, its), found in rows.items() if which == name and its <= threads)
            line["ratio"] = own / max((line[name] for name in peers), default=own)
            lines.append(line)
versions.pop("Tutti", None)
if flags.json:
    pathlib.Path(flags.json).write_text("".join(json.dumps(line) + "\n" for line in lines))
print(f"{headline()}; {', '.join(f'{name} {version}' for name, version in versions.items()) or 'no peer'}. Tokens per second.\n")
columns = ["dtype", "threads", "test", "Tutti", "GB/s", *peers, "Tutti / best peer"]
print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
for line in lines:
    cells = [line["dtype"], str(line["threads"]), line["test"], f"{line['Tutti']:.1f}", f"{line['gbps']:.1f}" if line["gbps"] else ""]
    print("| " + " | ".join(cells + [f"{line[name]:.1f}" for name in peers] + [f"{line['ratio']:.2f}"]) + " |")
