#!/usr/bin/env python3
"""A library with Tutti inside finds its code generator wherever it was loaded from: python's ctypes loads it, with another program, another
folder of that program and another working folder than the library's.

library_test.py LIBRARY PLUGIN: LIBRARY has the folder of PLUGIN as its run path, and lies in another one.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
os.chdir(sys.argv[2])
library.compiled_sum.restype = ctypes.c_double
message = ctypes.create_string_buffer(4096)
print(library.compiled_sum(message, 4096), message.value.decode())
"""


def outcome(path, start, then):
    """What a Python that starts in `start`, loads `path` and goes to `then` computes. Its cache of kernels is empty."""
    environment = {k: v for k, v in os.environ.items() if k not in ("TUTTI_LLVM_PLUGIN", "LD_LIBRARY_PATH")}
    environment["TUTTI_CACHE_LIMIT_MB"] = "0"
    done = subprocess.run([sys.executable, "-c", PROGRAM, path, then], cwd=start, env=environment, capture_output=True, text=True)
    return done.stdout.strip() + done.stderr.strip()


def main():
    library, plugin = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    assert library.parent != plugin.parent, "the library lies beside the code generator"
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("work", "links", "beside", "above/bin", "above/lib", "alone"):
            (root / name).mkdir(parents=True)
        (root / "links" / library.name).symlink_to(library)
        # Copies whose run path leads nowhere.
        nowhere = root / library.name
        shutil.copy(library, nowhere)
        bytes_of = nowhere.read_bytes()
        run_path = str(plugin.parent).encode()
        assert run_path + b"\0" in bytes_of or run_path + b":" in bytes_of, f"{library} has no run path {plugin.parent}"
        nowhere.write_bytes(bytes_of.replace(run_path, b"/" + b"n" * (len(run_path) - 1)))
        for place in ("beside", "above/bin", "alone"):
            shutil.copy(nowhere, root / place)
        (root / "beside" / plugin.name).symlink_to(plugin)
        (root / "above/lib" / plugin.name).symlink_to(plugin)
        (root / "chain").mkdir()
        (root / "chain" / library.name).symlink_to(root / "beside" / library.name)
        cases = {
            "by its run path": (str(library), root / "work", "/"),
            "by its run path, from a relative path": (f"./{library.name}", library.parent, str(root / "work")),
            "by its run path, through a link": (str(root / "links" / library.name), root / "work", "/"),
            "beside it": (str(root / "beside" / library.name), root / "work", "/"),
            "beside it, from a relative path": (f"./{library.name}", root / "beside", "/"),
            "beside it, from a longer relative path": (f"../beside/{library.name}", root / "work", "/"),
            "in lib beside bin": (str(root / "above/bin" / library.name), root / "work", "/"),
            "in lib beside bin, from a relative path": (f"bin/{library.name}", root / "above", "/"),
            "beside what a link leads to": (str(root / "chain" / library.name), root / "work", "/"),
        }
        for name, (path, start, then) in cases.items():
            got = outcome(path, start, then)
            if got != "200.0":
                faults.append(f"{name}: {got}")
        got = outcome(str(root / "alone" / library.name), root / "work", "/")
        for part in ("-1.0", plugin.name, str(root / "alone"), "TUTTI_LLVM_PLUGIN"):
            if part not in got:
                faults.append(f"without a code generator, {part} is missing in: {got}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
