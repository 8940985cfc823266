#!/usr/bin/env python3
"""The fingerprint of the code generator depends on its sources, on all that they include, and on nothing else.

fingerprint_test.py CMAKE SCRIPT
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCES = {
    "tutti/a.cpp": '#include <vector>\n#include "tutti/b.h"  // this; and [that\nint a;\n',
    "tutti/other.cpp": '#  include "tutti/b.h"\n',
    "tutti/b.h": '#include "tutti/deep/c.h"\n',
    "tutti/deep/c.h": '#include "tutti/b.h"\nint c;\n',
    "tutti/deep/c.cpp": '#include "tutti/of_a_source.h"\n',
    "tutti/of_a_source.h": "int of_a_source;\n",
    "tutti/b.cpp": "int not_linked;\n",
    "tutti/unread.h": "int unread;\n",
    "tutti/unread.cpp": "int unread;\n",
}
ROOTS = ["tutti/a.cpp", "tutti/other.cpp"]
LINKED = ["tutti/deep/c.cpp", "tutti/unread.cpp"]
OTHERS = ["tutti/b.cpp", "tutti/unread.h", "tutti/unread.cpp"]


def write(root):
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def run(root, roots=None, tools="GNU 12.2.0, LLVM 19.1.7"):
    output = root / "fingerprint.cpp"
    cmake, script = sys.argv[1:3]
    sources, linked = ";".join(roots or ROOTS), ";".join(LINKED)
    done = subprocess.run([cmake, f"-DROOT={root}", f"-DTOOLS={tools}", f"-DOUTPUT={output}", f"-DSOURCES={sources}", f"-DLINKED={linked}",
                           "-P", script], capture_output=True, text=True)
    return done, output


def fingerprint(root, roots=None, **more):
    done, output = run(root, roots, **more)
    assert done.returncode == 0, done.stderr
    return re.search(r"return 0x([0-9a-f]{16});", output.read_text()).group(1)


def changed(root, name, text):
    """The fingerprint with `text` at the end of file `name`, which is restored."""
    before = (root / name).read_text()
    (root / name).write_text(before + text)
    result = fingerprint(root)
    (root / name).write_text(before)
    return result


def main():
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        first = write(pathlib.Path(folder) / "first")
        own = fingerprint(first)

        def check(holds, what):
            if not holds:
                faults.append(what)

        check(fingerprint(write(pathlib.Path(folder) / "another place")) == own, "another checkout has another one")
        for name in SOURCES:
            differs = changed(first, name, "int more;\n") != own
            check(differs == (name not in OTHERS), f"a change of {name} {'changes' if differs else 'does not change'} it")
        check(changed(first, "tutti/deep/c.h", '#include "tutti/unread.h"\n') != own, "one more file does not change it")
        check(fingerprint(first) == own, "it is not that of the same files any more")
        check(fingerprint(first, ROOTS[:1]) != own, "one source less does not change it")
        check(fingerprint(first, tools="GNU 12.2.0, LLVM 19.1.8") != own, "another LLVM does not change it")

        fingerprint(first)
        read = {pathlib.Path(p).relative_to(first).as_posix()
                for p in (first / "fingerprint.cpp.d").read_text().split(":", 1)[1].replace("\\\n", " ").split()}
        check(read == set(SOURCES) - set(OTHERS), f"the build is told to look at {sorted(read)}")

        (first / "tutti/deep/c.h").write_text('#include "tutti/gone.h"\n')
        done, _ = run(first)
        message = " ".join(done.stderr.split())
        check(done.returncode != 0 and "tutti/deep/c.h includes \"tutti/gone.h\"" in message, f"a file that is missing: {message}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
