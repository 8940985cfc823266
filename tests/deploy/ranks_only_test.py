#!/usr/bin/env python3
"""libtutti_ranks as a user gets it: built alone beside libtutti_runtime, installed, and used from C.

ranks_only_test.py SOURCE_DIR BUILD_DIR CXX_COMPILER PACKAGED_RANKS [TUTTI]

Looks at what the installed library exports and needs and how large it is. PACKAGED_RANKS (tests/comm/tools/packaged_ranks.cpp) writes
packages of two ranks, which examples/run_package/run_on_ranks.c runs in two processes to the bits of the live functions, with both
libraries shared and static, and once more as ranks of `tutti launch`. The scenarios of ranks_in_c.py call the interface as programs would.
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import installed_runtime
from installed_runtime import LIBRARIES, check, check_instruction_set, check_size, names_of_libraries, run

MOST_BYTES = 1_100_000  # stripped
DEADLINE = 120  # seconds
# How many ranks take part, and which of them end otherwise than in good order.
SCENARIOS = {"all_collectives": (2, 3), "split_groups": (3,), "two_threads": (2,), "many_groups": (2,), "root_leaves": (2, 3), "wrong_calls": (2,),
             "other_numbers": (2,), "absent_rank": (2,), "killed_peer": (2, 3), "killed_first_rank": (2, 3), "late_peer": (2,), "forked_child": (2,),
             "crossed_opens": (2,), "open_while_another_waits": (1,), "failed_opens": (2,), "cancelled_thread": (2,), "places_of_one_rank": (1,)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_ranks(ranks, *command):
    """The exit status and the text of each process."""
    place = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    processes = [subprocess.Popen([str(c) for c in command], env=dict(place, RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(ranks)]
    results = []
    for process in processes:
        try:
            text = process.communicate(timeout=DEADLINE)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = f"{process.communicate()[0]}not done after {DEADLINE} seconds"
        results.append((process.returncode, text))
    return results


def check_packages(program, folder, transport):
    for name in ("mlp", "exchanges"):
        for r, (status, text) in enumerate(run_ranks(2, program, folder / (name + ".{rank}"), transport)):
            wanted = f"rank {r} of 2 over {transport}\n" + (folder / f"{name}.{r}.txt").read_text()
            check(status == 0 and text == wanted, f"{program.name} {name} on rank {r} prints {text}, and the full library {wanted}")


def main():
    source, build, compiler, packaged_ranks, *launcher = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        installed = installed_runtime.Installed(source, build, compiler, folder)
        library, programs = installed.library("tutti_ranks"), installed.programs
        has_gloo = "TUTTI_RUNTIME_GLOO:BOOL=ON" in (installed.built / "CMakeCache.txt").read_text()
        installed.check_exports("tutti_ranks", "comm/tutti_ranks.h")
        check(has_gloo or names_of_libraries(library) <= LIBRARIES, f"the library needs {sorted(names_of_libraries(library) - LIBRARIES)}")
        with_pkg_config, static_with_pkg_config = folder / "with_pkg_config", folder / "static_with_pkg_config"
        installed.compile_with_pkg_config("run_on_ranks.c", ["tutti_ranks", "tutti_runtime"], with_pkg_config)
        installed.compile_with_pkg_config("run_on_ranks.c", ["tutti_ranks", "tutti_runtime"], static_with_pkg_config, is_static=True)
        for file in (library, programs / "run_on_ranks_static", static_with_pkg_config):
            check_instruction_set(file)
        check_size("libtutti_ranks.so", library, MOST_BYTES if not has_gloo else 2 * MOST_BYTES, folder)
        run(packaged_ranks, "--write", folder)
        transports = ["shm"] + ["gloo"] * has_gloo
        for transport in transports:
            for program in (programs / "run_on_ranks", programs / "run_on_ranks_static", with_pkg_config, static_with_pkg_config):
                check_packages(program, folder, transport)
        for status, text in run_ranks(2, programs / "run_on_ranks", folder / "whole.{rank}"):
            check(status == 1 and "argument 0 has dtype 6" in text, f"run_on_ranks with an argument of i64: status {status}: {text}")
        for program in launcher:  # whose store has a job key
            text = run(program, "launch", "-n", "2", "--", programs / "run_on_ranks", folder / "exchanges.{rank}")
            for r in range(2):
                check((folder / f"exchanges.{r}.txt").read_text().splitlines()[1] in text, f"as rank {r} of tutti launch: {text}")
        for transport in transports:
            for scenario, numbers in SCENARIOS.items():
                for ranks in numbers:
                    for r, (status, text) in enumerate(run_ranks(ranks, sys.executable, pathlib.Path(__file__).parent / "ranks_in_c.py", library, transport, scenario)):
                        is_killed = r == {"killed_peer": ranks - 1, "killed_first_rank": 0}.get(scenario)
                        ends_well = status == -9 if is_killed else status == 0 and text.endswith("done\n")
                        check(ends_well, f"{scenario} over {transport} on rank {r} of {ranks}: status {status}: {text}")
                    print(f"{scenario} over {transport} on {ranks} ranks", flush=True)
    installed_runtime.finish()


main()
