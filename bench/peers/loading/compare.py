#!/usr/bin/env python3
"""Seconds and peak memory from the start of a program to the first token of a published model, beside transformers.

  compare.py TUTTI MODEL... [--python PYTHON] [--rounds N]     (a Hugging Face folder, or a GGUF file)

Each program is a process of its own that loads the model and writes one token of "a": `tutti generate`, and with --python, which has torch,
transformers, accelerate and for GGUF files gguf, AutoModelForCausalLM.from_pretrained in float32 and generate(max_new_tokens=1). Peak memory is
the largest resident set of the process, mapped pages of files included, and is compared with the bytes of the tensors; for transformers, that of an
interpreter that has imported torch and transformers is given beside it. Cold: the files were dropped from the page cache before. Medians of rounds,
in which the programs take turns.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from programs import count, headline, imports, program  # noqa: E402

PEER = """
import sys, torch, transformers
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(int(sys.argv[2]))
if sys.argv[1]:
    import pathlib
    path = pathlib.Path(sys.argv[1])
    named = dict(gguf_file=path.name) if path.suffix == ".gguf" else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent if named else path, dtype=torch.float32, **named)
    with torch.inference_mode():
        model.generate(torch.tensor([[5]]), attention_mask=torch.ones(1, 1, dtype=torch.long), max_new_tokens=1, do_sample=False)
"""


def files_of(model):
    return [model] if model.is_file() else sorted(path for path in model.iterdir() if path.is_file())


def tensor_nbytes(model):
    """Of a folder the bytes of its tensors; of a GGUF file, whose header is small, those of the file."""
    if model.is_file():
        return model.stat().st_size
    total = 0
    for path in model.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        total += sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in header.items() if name != "__metadata__")
    return total


def drop_from_cache(model):
    for path in files_of(model):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(command):
    """(seconds, peak bytes)"""
    begin = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        sys.exit(f"{command[0]} failed: {said.decode(errors='replace')[-2000:]}")
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def model_path(text):
    path = pathlib.Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"there is no model '{text}'")
    return path


def rows(model, commands, rounds, nbytes, idle):
    cold, warm = {name: [] for name in commands}, {name: [] for name in commands}
    for command in commands.values():
        measure(command)  # kernels that are made once
    for _ in range(rounds):
        for name, command in commands.items():
            drop_from_cache(model)
            cold[name].append(measure(command)[0])
            warm[name].append(measure(command))
    for name in commands:
        peak = statistics.median(bytes_ for _, bytes_ in warm[name])
        beside = f"{idle[name] / 2**20:.0f}" if name in idle else ""
        print(f"| {model.name} | {nbytes / 2**20:.0f} | {name} | {statistics.median(cold[name]):.2f} s | {statistics.median(s for s, _ in warm[name]):.2f} s | "
              f"{peak / 2**20:.0f} | {peak / nbytes:.2f} | {beside} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti", type=program)
    parser.add_argument("models", type=model_path, nargs="+")
    parser.add_argument("--python")
    parser.add_argument("--rounds", type=count, default=5)
    flags = parser.parse_args()
    if flags.python and not imports(flags.python, "transformers"):
        print(f"transformers is missing: '{flags.python}' cannot import it")
        flags.python = None
    print(headline() + ".")
    threads, idle = len(os.sched_getaffinity(0)), {}
    print("| model | tensors, MiB | program | cold | warm | peak, MiB | of the tensors | without a model, MiB |\n|---|---|---|---|---|---|---|---|")
    if flags.python:
        idle["transformers"] = measure([flags.python, "-c", PEER, "", threads])[1]
    for model in flags.models:
        commands = {"Tutti": [flags.tutti, "generate", model, "--prompt", "a", "--max-tokens", "1", "--temperature", "0"]}
        if flags.python:
            commands["transformers"] = [flags.python, "-c", PEER, model, threads]
        rows(model, commands, flags.rounds, tensor_nbytes(model), idle)


if __name__ == "__main__":
    main()
