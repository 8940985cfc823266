"""A room includes only rooms below it, a floor of a room only floors below it, and what comes from outside has its doors. Reads tutti/,
cli/ and bench/."""
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
    "devices": {"core", "runtime", "tensor", "codegen", "ops"},
    "io": {"core", "runtime", "tensor"},
    "plan": {"core", "runtime", "tensor", "codegen", "ops"},
    "deploy": {"core", "runtime", "tensor", "codegen", "ops", "plan"},
    "autograd": {"core", "runtime", "tensor", "codegen", "ops"},
    "graph": {"core", "runtime", "tensor", "codegen", "ops", "plan", "autograd"},
    "package": {"core", "runtime", "tensor", "codegen", "ops", "plan", "deploy", "autograd", "graph"},
    "job": {"core", "runtime"},
    "diagnose": {"core", "runtime", "tensor"},
    "symm": {"core", "runtime", "tensor", "codegen", "ops", "autograd", "job"},
    "comm": {"core", "runtime", "tensor", "codegen", "ops", "plan", "deploy", "autograd", "graph", "job", "diagnose", "symm"},
    "dist": {"core", "runtime", "tensor", "codegen", "ops", "plan", "autograd", "graph", "comm"},
    "nn": {"core", "runtime", "tensor", "codegen", "ops", "io", "plan", "autograd", "graph", "dist"},
    "optim": {"core", "runtime", "tensor", "codegen", "ops", "plan", "autograd", "graph", "dist", "nn"},
    "parallel": {"core", "runtime", "tensor", "codegen", "ops", "plan", "autograd", "graph", "symm", "comm", "dist", "nn", "optim"},
    "models": {"core", "runtime", "tensor", "codegen", "ops", "io", "plan", "autograd", "graph", "dist", "nn", "parallel"},
    "generate": {"core", "runtime", "tensor", "codegen", "ops", "io", "plan", "deploy", "package", "autograd", "graph", "comm", "dist", "nn", "parallel", "models"},
    "train": {"core", "runtime", "tensor", "codegen", "ops", "io", "plan", "package", "autograd", "graph", "job", "diagnose", "comm", "dist", "nn", "optim", "parallel", "models", "generate"},
}
# Floors inside rooms, lowest first. A floor is a list of sub-folders and of files of the room's own folder, these without their endings;
# "." are the files that no floor lists. What is on one floor may include what is below it; its files also include each other, its
# sub-folders do not.
FLOORS = {
    "job": [".", "store", "host", "rendezvous", "launch", "runtime_only"],
    "diagnose": ["call_record tick_clock flight_dump flight_dump_reader", "finite_check flight_recorder dump_signal", "."],
    "symm": [".", "ops"],
    "comm": [
        "backend call_checks call_mismatch collective collective_call collective_def device_backends exchange_check host_layout named_collectives "
        "refusals transport transports work",
        "message",
        "exchanges fake gloo hier mpi runtime_only shm",
        "nccl",
        ".",  # process groups and their queue
        "functional",
        "collectives",
        "collectives_in_c groups rank_group reduce_nodes run_ranks shrink tutti_ranks world_state",
    ],
    "dist": ["step_kind", "mesh_layout index_set measured_costs", "device_mesh spec", "moves", "."],
}
# Headers that only .cpp files may include: they are heavy.
HEAVY = re.compile(r"#include [<\"](httplib|llvm/|nlohmann/|toml|CLI/|pcre2|zlib|mpi)")
# JSON from outside has one door, which checks it: runtime/json_document.h. Elsewhere the library only writes.
JSON_DOOR = "tutti/runtime/json_parser.cpp"
JSON_READ = re.compile(r'::(parse|accept|sax_parse|from_(cbor|msgpack|ubjson|bson|bjdata))\(|"_json\b|>>\s*\w*[jJ]son\b')
# Caches have one door too (runtime/cache_folder.h), which alone knows where they are.
CACHE_DOOR = "tutti/runtime/cache_folder.cpp"
CACHE_PLACE = re.compile(r'getenv\("(TUTTI_CACHE_DIR|XDG_CACHE_HOME|HOME)"\)|variable\("(TUTTI_CACHE_DIR|XDG_CACHE_HOME|HOME)"\)')
# A test file that reads these is given them when the build is configured, by what stands in the file itself (cmake/TuttiRoom.cmake): a
# header would have them only where its includer happens to read them too.
PLACES = re.compile(r"TUTTI_(SOURCE|BINARY)_DIR")
PLACES_HEADER = "tests/support/number_cases.h"  # which the build looks for by name
INCLUDE = re.compile(r'#include "tutti/([a-z_]+)[/.]([^"]*)"')


def place_of(room: str, parts: tuple[str, ...]) -> tuple[int, str]:
    """The floor of a file, and its sub-folder or "" for a file of the room's own folder. `parts` is its path below the room."""
    folder = parts[0] if len(parts) > 1 else ""
    name = folder or parts[0].split(".")[0]
    floors = [floor.split() for floor in FLOORS[room]]
    listed = [number for number, floor in enumerate(floors) if name in floor]
    rest = [number for number, floor in enumerate(floors) if "." in floor]
    if folder and not listed:
        raise ValueError(f"{room}/{folder} has no floor; add it to FLOORS in {pathlib.Path(__file__).name}")
    return (listed or rest)[0], folder


def fault_inside(room: str, own: tuple[str, ...], target: tuple[str, ...]) -> str:
    """Why a file of a room may not include another one of it; "" when it may."""
    try:
        (floor, folder), (other, other_folder) = place_of(room, own), place_of(room, target)
    except ValueError as error:
        return str(error)
    if other > floor:
        return f"{'/'.join(target)} stands on a floor above it in {room}"
    if other == floor and folder != other_folder:
        return f"{folder or room} and {other_folder or room} stand side by side in {room}"
    return ""


def main(root: pathlib.Path) -> int:
    wrong = []
    files = sorted(p for folder in ("tutti", "cli", "bench") for p in (root / folder).rglob("*") if p.suffix in (".h", ".cpp"))
    for path in files:
        relative = path.relative_to(root)
        room = relative.parts[1] if relative.parts[0] == "tutti" and len(relative.parts) > 2 else None  # tutti/tutti.h reads all rooms
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
            if target == room and room in FLOORS and (root / "tutti" / room / match.group(2)).exists():  # else the build makes it
                why = fault_inside(room, relative.parts[2:], tuple(match.group(2).split("/")))
                if why:
                    wrong.append(f"{relative}:{number}: {why}")
    for path in sorted((root / "tests").rglob("*.h")):
        if PLACES.search(path.read_text()) and str(path.relative_to(root)) != PLACES_HEADER:
            wrong.append(f"{path.relative_to(root)}: a header reads TUTTI_SOURCE_DIR or TUTTI_BINARY_DIR; move the code to a .cpp file")
    for room, floors in FLOORS.items():
        for name in " ".join(floors).split():
            if not (root / "tutti" / room / name).is_dir() and not list((root / "tutti" / room).glob(f"{name}.*")):
                wrong.append(f"{room}: the floors list {name}, which does not exist")
    for line in wrong:
        print(line)
    print(f"{len(files)} files, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
