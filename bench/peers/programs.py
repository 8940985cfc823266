"""What the comparisons share: programs that answer questions, lines of `tutti bench`, the environment of all of them, and flags that are checked."""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

script = pathlib.Path(sys.argv[0]).name


def environment(threads):
    """Memory of all programs, Tutti included, lies in huge pages, and what was freed stays with them: else a large result would be mapped anew each time."""
    return dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads), GLIBC_TUNABLES="glibc.malloc.hugetlb=1", MALLOC_MMAP_MAX_="0",
                MALLOC_TRIM_THRESHOLD_=str(1 << 40))


class Peer:
    """A program that tells about itself and then answers each line with one JSON object; it stays between rounds."""

    def __init__(self, name, command, threads, **more):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(environment(threads), **more))
        first = self.process.stdout.readline()
        self.about = json.loads(first) if first else None

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"{script}: {self.name} ended while it ran '{line}'; run '{' '.join(self.process.args)}' and give it that line to see why")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def run_tutti(tutti, arguments, threads):
    """The objects that `tutti bench ... --json` prints."""
    done = subprocess.run([tutti, "bench", *arguments, "--threads", str(threads), "--json"], capture_output=True, text=True, env=environment(threads))
    if done.returncode != 0:
        sys.exit(f"{script}: '{tutti} bench {' '.join(arguments)}' failed: {done.stderr.strip() or 'a result is wrong'}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def imports(python, module):
    """Whether that interpreter can import the module; a missing interpreter cannot."""
    return shutil.which(python) is not None and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def text_of(us):
    for unit, scale in (("us", 1), ("ms", 1e3), ("s", 1e6)):
        if us < 1000 * scale or unit == "s":
            value = us / scale
            return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f} {unit}"


def hex_of(value):
    """The number as C prints it with %a, as in metrics.jsonl."""
    mantissa, exponent = value.hex().split("p") if math.isfinite(value) else (str(value), "")
    digits = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{digits}p{exponent}" if exponent else digits


def counts(text):
    """The type of --threads 1,2."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' should be counts of at least 1 with commas between them, e.g. 1,2")
    return [int(word) for word in words]


def count(text):
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' should be a count of at least 1")
    return int(text)


def written(text):
    """The type of --add: a file of objects as --json writes them, one a line."""
    try:
        rows = [json.loads(line) for line in pathlib.Path(text).read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as e:
        raise argparse.ArgumentTypeError(f"'{text}' should be a file that --json wrote: {e}")
    if not all(isinstance(row, dict) and {"program", "threads"} <= row.keys() for row in rows):
        raise argparse.ArgumentTypeError(f"'{text}' should be a file that --json wrote; a line of it has no program and threads")
    return text


def program(text):
    """The type of the first argument, the tutti program."""
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no program '{text}'; 'cmake --build --preset release --target tutti_program' makes build/release/tutti")
    return found
