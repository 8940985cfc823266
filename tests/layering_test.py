"""A room includes only rooms below it. Reads the #include lines of tutti/, cli/ and bench/."""
import pathlib
import re
import sys

# Rooms in the order of their floors: each may include itself and what stands in its set.
BELOW = {
    "core": set(),
    "runtime": {"core"},
    "tensor": {"core", "runtime"},
    "codegen": {"core", "runtime", "tensor"},
    "ops": {"core", "runtime", "tensor", "codegen"},
    "io": {"core", "runtime", "tensor"},
    "autograd": {"core", "runtime", "tensor", "codegen", "ops"},
    "graph": {"core", "runtime", "tensor", "codegen", "ops", "autograd"},
    "comm": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph"},
    "nn": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph"},
    "optim": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "nn"},
    "models": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "nn"},
    "train": {"core", "runtime", "tensor", "codegen", "ops", "io", "autograd", "graph", "comm", "nn", "optim", "models"},
}
# Headers that only .cpp files may include: they are heavy.
HEAVY = re.compile(r"#include [<\"](llvm/|nlohmann/|toml|CLI/|pcre2|zlib|mpi)")
INCLUDE = re.compile(r'#include "tutti/([a-z_]+)[/.]')


def main(root: pathlib.Path) -> int:
    wrong = []
    files = sorted(p for folder in ("tutti", "cli", "bench") for p in (root / folder).rglob("*") if p.suffix in (".h", ".cpp"))
    for path in files:
        relative = path.relative_to(root)
        room = relative.parts[1] if relative.parts[0] == "tutti" else None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path.suffix == ".h" and HEAVY.search(line) and "codegen/llvm" not in str(relative):
                wrong.append(f"{relative}:{number}: a header includes a heavy header: {line}")
            match = INCLUDE.search(line)
            if not match or room is None:
                continue
            target = match.group(1)
            if target != room and target not in BELOW[room]:
                wrong.append(f"{relative}:{number}: {room} includes {target}, which does not stand below it")
    for line in wrong:
        print(line)
    print(f"{len(files)} files, {len(wrong)} wrong includes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
