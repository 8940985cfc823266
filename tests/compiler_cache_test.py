"""With the command that the build gives to ccache, a header that changed in a comment alone makes a new precompiled header. GCC takes a
header of #pragma once in a precompiled one for another where their bytes differ, and reads it a second time. compiler_cache_test.py LAUNCHER... COMPILER"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

compiler = sys.argv[1:]

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    environment = {**os.environ, "CCACHE_DIR": str(folder / "cache")}

    def compile_(command, *arguments):
        done = subprocess.run([*command, "-fpch-preprocess", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(arguments)}:\n{done.stderr}")

    (folder / "all.h").write_text(f'#include "{folder}/number.h"\n')
    (folder / "all.cpp").write_text("")
    (folder / "use.cpp").write_text('#include "number.h"\nint main() { return Number{}.value; }\n')
    for comment in ("one", "two"):
        (folder / "number.h").write_text(f"#pragma once\n// {comment}\nstruct Number {{ int value; }};\n")
        time.sleep(2)  # ccache remembers no header that is as new as the call
        (folder / "all.h.gch").unlink(missing_ok=True)
        compile_(compiler, "-x", "c++-header", "-include", str(folder / "all.h"), "-MD", "-MT", "all.h.gch", "-MF", "all.d", "-o", "all.h.gch", "-c", "all.cpp")
        compile_(compiler[-1:], "-Werror=invalid-pch", "-include", str(folder / "all.h"), "-o", "use.o", "-c", "use.cpp")
