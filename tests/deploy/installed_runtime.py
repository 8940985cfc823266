"""The runtime of packages, built alone and installed, for the tests that look at it as a user does."""
import os
import pathlib
import re
import subprocess
import sys

LIBRARIES = {"linux-vdso", "libstdc++", "libm", "libgcc_s", "libc", "ld-linux-x86-64", "libpthread", "libasan", "libubsan", "libtsan"}

faults = 0


def check(holds, text):
    global faults
    if not holds:
        faults += 1
        print(f"FAULT: {text}", flush=True)


def finish():
    print(f"{faults} faults")
    sys.exit(faults != 0)


def run(*command, **more):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=3000, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout[-4000:]}{result.stderr[-4000:]}")
    return result.stdout


def names_of_libraries(file):
    return {re.sub(r"\.so.*", "", pathlib.Path(line.split()[0]).name) for line in run("ldd", file).splitlines()}


def check_size(name, file, most, folder):
    stripped = pathlib.Path(folder) / "stripped"
    run("strip", "-o", stripped, file)
    size = stripped.stat().st_size
    print(f"{name}: {size} bytes stripped")
    check(size <= most, f"{name} has {size} bytes when it is stripped, and at most {most} are allowed")


def check_instruction_set(file):
    """The loader refuses the file on an older processor."""
    notes = run("readelf", "-n", file)
    check(re.search(r"x86 ISA needed:.*x86-64-v3", notes), f"{file} does not note that it needs x86-64-v3: {notes}")


class Installed:
    """SOURCE, configured with TUTTI_RUNTIME_ONLY=ON in BUILD/runtime_only, built and installed in FOLDER/root, with the programs of
    examples/run_package in FOLDER/programs."""

    def __init__(self, source, build, compiler, folder):
        self.source = pathlib.Path(source)
        self.built = pathlib.Path(build) / "runtime_only"
        self.root = folder / "root"
        self.programs = folder / "programs"
        self.configured = run("cmake", "-S", source, "-B", self.built, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTUTTI_RUNTIME_ONLY=ON", f"-DCMAKE_CXX_COMPILER={compiler}")
        run("ninja", "-C", self.built)
        run("cmake", "--install", self.built, "--prefix", self.root)
        run("cmake", "-S", self.source / "examples/run_package", "-B", self.programs, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={self.root}")
        run("cmake", "--build", self.programs)

    def library(self, name):
        return next(self.root.rglob(f"lib{name}.so"))

    def check_exports(self, name, headers):
        """The library exports what these headers declare and nothing else."""
        exported = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", self.library(name)).splitlines()}
        text = re.sub(r"/\*.*?\*/", "", "".join(h.read_text() for h in self.root.rglob(headers)), flags=re.DOTALL)
        declared = set(re.findall(r"\btutti_\w+(?=\()", text))
        check(exported and exported <= declared, f"lib{name} exports {sorted(exported - declared)}, which no header declares")
        check(declared <= exported, f"lib{name} lacks {sorted(declared - exported)}")

    def compile_with_pkg_config(self, program, packages, target, is_static=False):
        environment = dict(os.environ, PKG_CONFIG_PATH=str(next(self.root.rglob("pkgconfig"))))
        flags = run("pkg-config", *["--static"] * is_static, "--cflags", "--libs", *packages, env=environment).split()
        if is_static:  # the shared libraries lie beside the static ones
            flags = [re.sub(r"^-l(tutti_\w+)$", r"-l:lib\1.a", flag) for flag in flags]
        library = self.library("tutti_runtime")
        run("cc", "-std=c99", self.source / "examples/run_package" / program, "-o", target, *flags, f"-Wl,-rpath,{library.parent}")
