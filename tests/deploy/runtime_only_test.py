#!/usr/bin/env python3
"""libtutti_runtime as a user gets it: built alone, installed, and linked by the programs of examples/run_package.

runtime_only_test.py SOURCE_DIR BUILD_DIR CXX_COMPILER LESSON [PACKAGED_RANKS]

Builds and installs SOURCE_DIR with TUTTI_RUNTIME_ONLY=ON in BUILD_DIR/runtime_only, looks at what the library exports and needs and how
large it is, and builds the example programs against the installed tree. They run the package that LESSON (example_17_package with a file
as its argument) writes, in C with both libraries, in C++ and in Python, to the same results. PACKAGED_RANKS
(tests/comm/tools/packaged_ranks.cpp) runs packages with collectives in the shared library, on two ranks, to the bits of the live functions.
"""
import os
import pathlib
import re
import sys
import tempfile

import installed_runtime
from installed_runtime import LIBRARIES, check, check_instruction_set, check_size, names_of_libraries, run

MOST_BYTES = 4_950_000  # stripped; the promise is 5 MB


def main():
    source, build, compiler, lesson, *ranks = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        installed = installed_runtime.Installed(source, build, compiler, folder)
        for name in ("LLVM", "MPI", "GTest", "ZLIB", "CLI11", "nlohmann_json"):
            check(name not in installed.configured, f"the configuration looks for {name}")
        library, programs = installed.library("tutti_runtime"), installed.programs
        installed.check_exports("tutti_runtime", "deploy/tutti_*.h")
        check(names_of_libraries(library) <= LIBRARIES, f"the library needs {sorted(names_of_libraries(library) - LIBRARIES)}")
        check_size("libtutti_runtime.so", library, MOST_BYTES, folder)
        check_size("run_package, linked statically", programs / "run_package_static", MOST_BYTES, folder)
        check(names_of_libraries(programs / "run_package_static") <= LIBRARIES, "the static program needs other libraries")
        with_pkg_config = folder / "with_pkg_config"
        installed.compile_with_pkg_config("run_package.c", ["tutti_runtime"], with_pkg_config)
        for file in (library, programs / "run_package_static"):
            check_instruction_set(file)

        package = folder / "mlp.tutti"
        run(lesson, package)
        alone = dict(os.environ, TUTTI_CACHE_LIMIT_MB="0", TUTTI_LLVM_PLUGIN="/nowhere")
        results = {name: run(programs / name, package, env=alone) for name in ("run_package", "run_package_static", "run_package_cpp")}
        results["with pkg-config"] = run(with_pkg_config, package, env=alone)
        results["run_package.py"] = run(sys.executable, pathlib.Path(source) / "examples/run_package/run_package.py", library, package, env=alone)
        wanted = re.sub(r" first .*", "", results["run_package"])
        check("mlp, made by Tutti" in wanted and "result 0: 1 8 hash" in wanted, wanted)
        for name, text in results.items():
            check(re.sub(r" first .*", "", text) == wanted, f"{name} prints {text}, and the program in C {wanted}")
        print(wanted)
        for program in ranks:
            text = run(program, library)
            check("shm: equal bits\nshm: equal bits\n" in text, f"packages with collectives: {text}")
            print(text)
    installed_runtime.finish()


main()
