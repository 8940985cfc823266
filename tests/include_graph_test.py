"""Budgets of the include graph, which decide how long a build takes: what files read, not how fast a machine is.

Prints the mean number of lines of Tutti's own headers that a source file of each room and of each folder of tests reads, and fails
when one exceeds its budget, or when more files than planned read the headers of a heavy library. A budget may be raised with a
reason in the commit.
"""
import pathlib
import re
import sys

# Mean lines of Tutti's headers per source file of a room.
LINES = {
    "core": 320, "runtime": 300, "tensor": 1280, "codegen": 825, "ops": 2725, "io": 605, "autograd": 3010, "plan": 3040, "deploy": 2610, "package": 4020, "graph": 4070, "job": 400,
    "devices": 1100, "diagnose": 530, "symm": 1540, "comm": 2170,
    "nn": 3370, "optim": 3710, "dist": 3620, "parallel": 4400, "models": 3300, "generate": 3300, "train": 2650, "cli": 1520, "bench": 3980,
    "tests/autograd": 3080, "tests/cli": 540, "tests/codegen": 1080, "tests/comm": 3145, "tests/contract": 2350, "tests/core": 350, "tests/deploy": 2200, "tests/devices": 1330, "tests/diagnose": 1110, "tests/dtensor": 5080,
    "tests/errors": 1000, "tests/fuzz": 1600, "tests/generate": 4000, "tests/graph": 4520, "tests/io": 650, "tests/job": 600, "tests/layouts": 2740, "tests/models": 4020,
    "tests/nightly": 1480, "tests/nn": 4620, "tests/ops": 2570, "tests/optim": 5400, "tests/package": 5170, "tests/parallel": 6450, "tests/plan": 3620, "tests/runtime": 350,
    "tests/single": 1720, "tests/support": 1630, "tests/symm": 1310, "tests/tensor": 1370, "tests/train": 2770, "tests/weights": 3160,
}
# How many source files may read headers that begin so, and where those files stand. The seconds are what one file costs.
HEAVY = {
    "llvm/ExecutionEngine/Orc": (2, "tutti/codegen/llvm/"),  # 9.6 s
    "llvm/Passes/": (2, "tutti/codegen/llvm/"),              # 9.6 s
    "llvm/": (30, "tutti/codegen/llvm/"),                    # precompiled once
    "CLI/": (46, "cli/"),                                    # 6 s, compiled in a few units
    "nlohmann/": (25, ""),                                   # 2 to 4 s; the library writes with runtime/json_writer.h
    "toml++/": (1, "tutti/train/"),                          # 4 s
    "mpi": (1, "tutti/comm/mpi/"),
    "regex": (0, ""),                                        # 3 s
    "iostream": (0, ""),
    "fmt/chrono.h": (0, ""),
    "fmt/ranges.h": (10, ""),
    "random": (1, "tutti/codegen/choice/"),
    "ranges": (0, ""),
    "future": (0, ""),
    "gloo/": (6, "tutti/comm/gloo/"),
    "openssl/": (3, ("tutti/job/", "tutti/io/file_signature.cpp")),
    "httplib.h": (3, ""),                                    # 2 s; the server and the clients that load it
}
FOLDERS = ("tutti", "cli", "bench", "tests")
GENERATED = "tutti/ops.h"  # all ops: for users and for tests, never for the library itself
UMBRELLA = "tutti/tutti.h"  # what users call of all rooms: for programs, never for the library or its tests
MADE_BY_THE_BUILD = (GENERATED, "tutti/comm/collective_rows.h", "tutti/diagnose/collective_kind.h",
                     "tutti/train/config/config_sections.h")
# How many tests may read them; what is not here has no budget for tests.
HEAVY_IN_TESTS = {
    "nlohmann/": 28, "regex": 3, "random": 56, "future": 4, "mpi": 1, GENERATED: 49, "llvm/": 0, "CLI/": 0, "toml++/": 0, "iostream": 2,
    "ranges": 0, "fmt/chrono.h": 0,
}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def read(root: pathlib.Path) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Lines and includes of every file of the program and the tests."""
    lines, includes = {}, {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".hpp", ".cpp") and "peers" not in path.parts:
                name, text = str(path.relative_to(root)), path.read_text().splitlines()
                lines[name] = len(text)
                includes[name] = [match.group(1) for line in text if (match := INCLUDE.match(line))]
    return lines, includes


def everything_read_by(source: str, includes: dict[str, list[str]]) -> set[str]:
    """The headers that a source file reads, directly or through others; those of other projects by the names they are included with."""
    found, unread = set(), [source]
    while unread:
        for header in includes.get(unread.pop(), []):
            if header not in found:
                found.add(header)
                unread.append(header)
    return found


def room_of(source: str) -> str:
    """The room of a source file, "tests/<folder>" for a test."""
    parts = source.split("/")
    return parts[1] if parts[0] == "tutti" else "/".join(parts[:2]) if parts[0] == "tests" else parts[0]


def faults_of(lines: dict[str, int], includes: dict[str, list[str]]) -> list[str]:
    sources = [name for name in lines if name.endswith(".cpp")]
    reads = {source: everything_read_by(source, includes) for source in sources}
    faults = [f"{name}: includes \"{header}\", which is no path from the root" for name, own in includes.items() for header in own
              if header.startswith(tuple(folder + "/" for folder in FOLDERS)) and header not in lines and header not in MADE_BY_THE_BUILD]
    print("room              files  mean lines of headers  budget")
    for room in sorted({room_of(source) for source in sources}):
        own = [source for source in sources if room_of(source) == room]
        mean = sum(lines.get(header, 0) for source in own for header in reads[source]) / len(own)
        print(f"{room:16} {len(own):6} {mean:22.0f} {LINES.get(room, 0):7}")
        if room not in LINES:
            faults.append(f"{room}: no budget; add one to {pathlib.Path(__file__).name}")
        elif mean > LINES[room]:
            largest = max(own, key=lambda source: sum(lines.get(header, 0) for header in reads[source]))
            faults.append(f"{room}: {mean:.0f} lines of headers per file, budget {LINES[room]}; {largest} reads most. Declare instead of including, or move types out of headers")
    faults += [f"{name}: includes {UMBRELLA}, which is for programs; include the headers of what it calls" for name, own in includes.items() if UMBRELLA in own]
    tests = [source for source in sources if source.startswith("tests/")]
    sources = [source for source in sources if not source.startswith("tests/")]

    def readers_of(prefix: str, among: list[str], most: int) -> list[str]:
        readers = [source for source in among if any(header.startswith(prefix) for header in reads[source])]
        if len(readers) > most:
            faults.append(f"{prefix}: {len(readers)} files read its headers, budget {most}: {', '.join(readers)}")
        return readers

    for prefix, most in HEAVY_IN_TESTS.items():
        readers_of(prefix, tests, most)
    for prefix, (most, place) in HEAVY.items():
        readers = readers_of(prefix, sources, most)
        faults += [f"{source}: reads {prefix}, which only files below {place} do" for source in readers if not source.startswith(place)]
    faults += [f"{source}: reads {GENERATED}; include the headers of the ops that it calls" for source in sources if GENERATED in reads[source]]
    return faults


def main(root: pathlib.Path) -> int:
    faults = faults_of(*read(root))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
