#!/usr/bin/env python3
"""Finds views, spans and references that outlive the temporary they were bound to, which g++ 12 does not report.

Reads every file of the library and the program as clang 19 does (which CI installs, see packages.txt), with the options of a
configured build, and exits with 1 if there is such a place or a file cannot be read. Takes some minutes.

    cmake --preset release && scripts/check_dangling.py [build/release] [--tests]
"""
import argparse
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKS = ["dangling", "dangling-gsl", "dangling-field", "dangling-initializer-list", "dangling-assignment", "return-stack-address"]
ALWAYS = ["-std=c++20", "-march=x86-64-v3"]
ONE_AT_A_TIME = threading.Lock()
TAKES_A_VALUE = {"-I", "-isystem", "-D"}
# Clang cannot read g++'s omp.h and has none of its own without another package.
STAND_INS = tempfile.TemporaryDirectory(prefix="check_dangling-")
Path(STAND_INS.name, "omp.h").write_text('extern "C" int omp_get_max_threads();\nextern "C" void omp_set_num_threads(int);\n')


def output_of(entry):
    words = shlex.split(entry["command"])
    return words[words.index("-o") + 1]


def options_of(entry):
    """The options that decide what the file means: include folders and macros."""
    words = shlex.split(entry["command"])
    kept = []
    for i, word in enumerate(words):
        if word in TAKES_A_VALUE:
            kept += [word, words[i + 1]]
        elif word[:2] in ("-I", "-D"):
            kept.append(word)
    return kept


def headers_that_most_read():
    """Those that the build precompiles."""
    room = (Path(__file__).resolve().parent.parent / "cmake" / "TuttiRoom.cmake").read_text()
    return re.findall(r"<[^>]+>", re.search(r"set\(TUTTI_COMMON_HEADERS([^)]*)\)", room).group(1))


@functools.lru_cache(maxsize=None)
def precompile(clang, macros):
    """The options that read those headers precompiled, which takes more than half of the time of a file; none where clang cannot."""
    header = Path(STAND_INS.name, f"common{abs(hash(macros))}.h")
    header.write_text("".join(f"#include {name}\n" for name in headers_that_most_read()))
    made = header.with_suffix(".pch")
    done = subprocess.run([clang, *ALWAYS, *macros, "-x", "c++-header", header, "-o", made], capture_output=True, text=True)
    return ["-include-pch", str(made)] if done.returncode == 0 else []


def said_of(clang, entry, file):
    """What clang says about the file; "" is nothing."""
    options = options_of(entry)
    with ONE_AT_A_TIME:
        precompiled = precompile(clang, tuple(word for word in options if word.startswith("-D")))
    command = [clang, *ALWAYS, "-fsyntax-only", "-Wno-everything", *(f"-Werror={name}" for name in CHECKS), *precompiled, *options,
               "-idirafter", STAND_INS.name, file]
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else ""


def check(clang, entry):
    """The same; files that are compiled together are read one by one where clang cannot read them together."""
    said = said_of(clang, entry, entry["file"])
    together = re.findall(r'#include "(.*\.cpp)"', Path(entry["directory"], entry["file"]).read_text()) if "/Unity/" in entry["file"] else []
    return "".join(said_of(clang, entry, file) for file in together) if said and together else said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build/release", help="folder of a configured build")
    parser.add_argument("--tests", action="store_true", help="read the tests as well, which takes twice as long")
    parser.add_argument("--clang", default="clang++-19", help="the compiler that reads")
    arguments = parser.parse_args()
    commands = Path(arguments.build) / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"check_dangling: {commands} does not exist; configure the build first: cmake --preset release")
    places = ("rooms/", "program/") + (("tests/",) if arguments.tests else ())
    entries = [e for e in json.loads(commands.read_text()) if output_of(e).startswith(places) and not e["file"].endswith(".hxx.cxx")]
    if not entries:
        sys.exit(f"check_dangling: {commands} names no file of the library; configure the build again")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [said for said in pool.map(lambda e: check(arguments.clang, e), entries) if said]
    for said in faults:
        print(said, file=sys.stderr)
    if faults:
        sys.exit(f"check_dangling: {len(faults)} of {len(entries)} files have faults")
    print(f"check_dangling: no view outlives what it was bound to in {len(entries)} files")


if __name__ == "__main__":
    try:
        main()
    except FileNotFoundError as error:
        sys.exit(f"check_dangling: {error.filename} is not installed; apt-get install clang-19")
