"""A room includes only rooms below it, and what comes from outside has its doors. Reads tutti/, cli/ and bench/."""
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
    "job": {"core", "runtime"},
    "diagnose": {"core", "runtime", "tensor"},
    "symm": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "job"},
    "comm": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "job", "diagnose", "symm"},
    "nn": {"core", "runtime", "tensor", "codegen", "ops", "io", "autograd", "graph"},
    "optim": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "nn"},
    "parallel": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "symm", "comm", "nn", "optim"},
    "models": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "graph", "nn"},
    "train": {"core", "runtime", "tensor", "codegen", "ops", "io", "autograd", "graph", "job", "diagnose", "comm", "nn", "optim", "parallel", "models"},
}
# Headers that only .cpp files may include: they are heavy.
HEAVY = re.compile(r"#include [<\"](llvm/|nlohmann/|toml|CLI/|pcre2|zlib|mpi)")
# JSON from outside has one door, which checks it: runtime/json_document.h. Elsewhere the library only writes.
JSON_DOOR = "tutti/runtime/json_parser.cpp"
JSON_READ = re.compile(r'::(parse|accept|sax_parse|from_(cbor|msgpack|ubjson|bson|bjdata))\(|"_json\b|>>\s*\w*[jJ]son\b')
# Caches have one door too (runtime/cache_folder.h), which alone knows where they are.
CACHE_DOOR = "tutti/runtime/cache_folder.cpp"
CACHE_PLACE = re.compile(r'getenv\("(TUTTI_CACHE_DIR|XDG_CACHE_HOME|HOME)"\)|variable\("(TUTTI_CACHE_DIR|XDG_CACHE_HOME|HOME)"\)')
INCLUDE = re.compile(r'#include "tutti/([a-z_]+)[/.]')


def main(root: pathlib.Path) -> int:
    wrong = []
    files = sorted(p for folder in ("tutti", "cli", "bench") for p in (root / folder).rglob("*") if p.suffix in (".h", ".cpp"))
    for path in files:
        relative = path.relative_to(root)
        room = relative.parts[1] if relative.parts[0] == "tutti" else None
        text = path.read_text()
        knows_json = "nlohmann" in text
        for number, line in enumerate(text.splitlines(), 1):
            if knows_json and JSON_READ.search(line) and str(relative) != JSON_DOOR:
                wrong.append(f"{relative}:{number}: JSON is read past runtime/json_document.h: {line.strip()}")
            if CACHE_PLACE.search(line) and str(relative) != CACHE_DOOR:
                wrong.append(f"{relative}:{number}: a cache is looked for past runtime/cache_folder.h: {line.strip()}")
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
    print(f"{len(files)} files, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
