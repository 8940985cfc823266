"""What the comparisons share: programs that answer questions, lines of `tutti bench`, the environment of all of them, and flags that are checked."""
import argparse
import atexit
import functools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

script = pathlib.Path(sys.argv[0]).name

# MKL asks this function whether the processor is one of Intel's, and takes AVX2 code on all others, whatever instructions they have.
MKL_TRUTH = """/* MKL may use every instruction set that the processor has. */
int mkl_serv_intel_cpu_true(void) { return 1; }
"""


def environment(threads):
    """Memory of all programs, Tutti included, lies in huge pages, and what was freed stays with them: else a large result would be mapped anew each time."""
    return dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads), GLIBC_TUNABLES="glibc.malloc.hugetlb=1", MALLOC_MMAP_MAX_="0",
                MALLOC_TRIM_THRESHOLD_=str(1 << 40))


def compiler():
    """The system's C compiler, or None."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


@functools.cache
def mkl_truth():
    """The library to preload into programs with MKL on a processor of AMD, built into a folder that ends with this process, and ""; or None and why there is none."""
    if not machine.is_amd():
        return None, "the processor is not one of AMD's"
    cc = compiler()
    if cc is None:
        return None, "there is no C compiler to build it"
    folder = tempfile.mkdtemp(prefix="mkl_truth_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, target = pathlib.Path(folder) / "mkl_truth.c", pathlib.Path(folder) / "mkl_truth.so"
    source.write_text(MKL_TRUTH)
    done = subprocess.run([cc, "-shared", "-fPIC", "-O1", str(source), "-o", str(target)], capture_output=True, text=True)
    return (str(target), "") if done.returncode == 0 else (None, f"{cc} does not build it: {done.stderr.strip().splitlines()[-1:]}")


def torch_environment(threads):
    """That of all programs; on a processor of AMD with the preloaded library that tells MKL the truth."""
    env, (library, _) = environment(threads), mkl_truth()
    if library:
        env["LD_PRELOAD"] = " ".join(filter(None, (library, env.get("LD_PRELOAD"))))
    return env


def start_again_with_mkl_truth():
    """For scripts that import torch themselves: where MKL would not know the truth, runs the script once more with it preloaded, and ends with its exit status."""
    library, _ = mkl_truth()
    if library and "mkl_truth" not in os.environ.get("LD_PRELOAD", ""):
        env = dict(os.environ, LD_PRELOAD=" ".join(filter(None, (library, os.environ.get("LD_PRELOAD")))))
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=env).returncode)


def headline(about=None):
    """The processor's kind, and what a PyTorch that told about itself (torch_about.py) runs as: one sentence for the header of a table."""
    words = f"{machine.kind()}, {os.cpu_count()} cores"
    if about is None:
        return words
    mkl = f"MKL {about['mkl']}"
    if about["mkl_told"]:
        mkl += " told by a preloaded library to use every instruction set of the processor"
    elif machine.is_amd():
        mkl += f" as shipped, which takes AVX2 code on a processor of AMD (nothing is preloaded: {mkl_truth()[1]})"
    return f"{words}; PyTorch {about['version']} as {about['isa']}, {mkl}, oneDNN {about['onednn']}"


class Peer:
    """A program that tells about itself and then answers each line with one JSON object; it stays between rounds."""

    def __init__(self, name, command, threads, **more):
        self.name = name
        make = torch_environment if name.startswith(("PyTorch", "libtorch")) else environment
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(make(threads), **more))
        first = self.process.stdout.readline()
        self.about = json.loads(first) if first else None

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"{script}: {self.name} ended while it ran '{line}'; run '{' '.join(self.process.args)}' and give it that line to see why")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def run_tutti(tutti, arguments, threads):
    """The objects that `tutti bench ... --json` prints."""
    done = subprocess.run([tutti, "bench", *arguments, "--threads", str(threads), "--json"], capture_output=True, text=True, env=environment(threads))
    if done.returncode != 0:
        sys.exit(f"{script}: '{tutti} bench {' '.join(arguments)}' failed: {done.stderr.strip() or 'a result is wrong'}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def imports(python, module):
    """Whether that interpreter can import the module; a missing interpreter cannot."""
    return shutil.which(python) is not None and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(folder, source, *more, standard="c++20"):
    """The program, or None and why."""
    target = f"{folder}/{pathlib.Path(source).stem}"
    if shutil.which("g++") is None:
        return None, "there is no g++"
    done = subprocess.run(["g++", "-O3", f"-std={standard}", "-I", str(ROOT), str(source), "-o", target, *more], capture_output=True, text=True)
    return (target, "") if done.returncode == 0 else (None, next((l for l in done.stderr.splitlines() if "error" in l or "cannot find" in l), done.stderr.strip()))


def build_libtorch(folder, python):
    """libtorch_kernels.cpp against the C++ library inside of that interpreter's package torch: the program, or None and why."""
    asked = subprocess.run([python, "-c", "import torch; print(torch.__path__[0]); print(int(torch.compiled_with_cxx11_abi()))"], capture_output=True, text=True) if imports(python, "torch") else None
    if asked is None:
        return None, f"'{python}' cannot import torch"
    package, abi = asked.stdout.split("\n")[:2]
    includes = ("-isystem", f"{package}/include", "-isystem", f"{package}/include/torch/csrc/api/include", f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
    return build(folder, ROOT / "bench/peers/kernels/libtorch_kernels.cpp", *includes, f"-L{package}/lib", f"-Wl,-rpath,{package}/lib", "-Wl,--as-needed", "-ltorch_cpu", "-lc10")


def text_of(us):
    for unit, scale in (("us", 1), ("ms", 1e3), ("s", 1e6)):
        if us < 1000 * scale or unit == "s":
            value = us / scale
            return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f} {unit}"


def hex_of(value):
    """The number as C prints it with %a, as in metrics.jsonl."""
    mantissa, exponent = value.hex().split("p") if math.isfinite(value) else (str(value), "")
    digits = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{digits}p{exponent}" if exponent else digits


def counts(text):
    """The type of --threads 1,2."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' should be counts of at least 1 with commas between them, e.g. 1,2")
    return [int(word) for word in words]


def count(text):
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' should be a count of at least 1")
    return int(text)


def written(text):
    """The type of --add: a file of objects as --json writes them, one a line."""
    try:
        rows = [json.loads(line) for line in pathlib.Path(text).read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as e:
        raise argparse.ArgumentTypeError(f"'{text}' should be a file that --json wrote: {e}")
    if not all(isinstance(row, dict) and {"program", "threads"} <= row.keys() for row in rows):
        raise argparse.ArgumentTypeError(f"'{text}' should be a file that --json wrote; a line of it has no program and threads")
    return text


def program(text):
    """The type of the first argument, the tutti program."""
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no program '{text}'; 'cmake --build --preset release --target tutti_program' makes build/release/tutti")
    return found
