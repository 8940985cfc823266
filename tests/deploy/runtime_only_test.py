#!/usr/bin/env python3
"""libtutti_runtime as a user gets it: built alone, installed, and linked by the programs of examples/run_package.

runtime_only_test.py SOURCE_DIR BUILD_DIR CXX_COMPILER LESSON [PACKAGED_RANKS]

Configures SOURCE_DIR with TUTTI_RUNTIME_ONLY=ON in BUILD_DIR/runtime_only, builds and installs it, looks at what the library exports and
needs and how large it is, and builds the example programs against the installed tree. They run the package that LESSON
(example_17_package with a file as its argument) writes, in C with both libraries, in C++ and in Python, to the same results. PACKAGED_RANKS (tests/comm/tools/packaged_ranks.cpp) runs packages
with collectives in the shared library, on two ranks, to the bits of the live functions.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MOST_BYTES = 4_950_000  # stripped; the promise is 5 MB
LIBRARIES = {"linux-vdso", "libstdc++", "libm", "libgcc_s", "libc", "ld-linux-x86-64", "libpthread", "libasan", "libubsan", "libtsan"}

faults = 0


def check(holds, text):
    global faults
    if not holds:
        faults += 1
        print(f"FAULT: {text}")


def run(*command, **more):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout[-4000:]}{result.stderr[-4000:]}")
    return result.stdout


def names_of_libraries(file):
    return {re.sub(r"\.so.*", "", pathlib.Path(line.split()[0]).name) for line in run("ldd", file).splitlines()}


def stripped_bytes(file, folder):
    stripped = pathlib.Path(folder) / "stripped"
    run("strip", "-o", stripped, file)
    return stripped.stat().st_size


def main():
    source, build, compiler, lesson, *ranks = sys.argv[1:]
    built = pathlib.Path(build) / "runtime_only"
    configured = run("cmake", "-S", source, "-B", built, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTUTTI_RUNTIME_ONLY=ON", f"-DCMAKE_CXX_COMPILER={compiler}")
    for name in ("LLVM", "MPI", "GTest", "ZLIB", "CLI11", "nlohmann_json"):
        check(name not in configured, f"the configuration looks for {name}")
    run("ninja", "-C", built)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run("cmake", "--install", built, "--prefix", folder / "root")
        library = next((folder / "root").rglob("libtutti_runtime.so"))
        exported = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}
        declared = set(re.findall(r"\btutti_\w+(?=\()", "".join(h.read_text() for h in (folder / "root").rglob("tutti_*.h"))))
        check(exported and exported <= declared, f"the library exports {sorted(exported - declared)}, which no header declares")
        check(declared <= exported, f"the library lacks {sorted(declared - exported)}")
        check(names_of_libraries(library) <= LIBRARIES, f"the library needs {sorted(names_of_libraries(library) - LIBRARIES)}")

        programs = folder / "programs"
        run("cmake", "-S", pathlib.Path(source) / "examples/run_package", "-B", programs, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={folder / 'root'}")
        run("cmake", "--build", programs)
        for name, file in (("libtutti_runtime.so", library), ("run_package, linked statically", programs / "run_package_static")):
            size = stripped_bytes(file, folder)
            print(f"{name}: {size} bytes stripped")
            check(size <= MOST_BYTES, f"{name} has {size} bytes when it is stripped, and at most {MOST_BYTES} are allowed")
        check(names_of_libraries(programs / "run_package_static") <= LIBRARIES, "the static program needs other libraries")
        with_pkg_config = folder / "with_pkg_config"
        environment = dict(os.environ, PKG_CONFIG_PATH=str(next((folder / "root").rglob("pkgconfig"))))
        flags = run("pkg-config", "--cflags", "--libs", "tutti_runtime", env=environment).split()
        run("cc", "-std=c99", pathlib.Path(source) / "examples/run_package/run_package.c", "-o", with_pkg_config, *flags, f"-Wl,-rpath,{library.parent}")

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
    print(f"{faults} faults")
    sys.exit(faults != 0)


main()
