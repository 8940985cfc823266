#!/usr/bin/env python3
"""The comparisons with other libraries refuse what they cannot run and say which peers are missing: peers_test.py ROOT TUTTI."""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

root, tutti = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.append(str(root / "bench/peers"))
import machine  # noqa: E402
import programs  # noqa: E402

problems = []


def agree(what, found, expected):
    if found != expected:
        problems.append(f"{what}: '{found}' instead of '{expected}'")


def cpuinfo(vendor, family, model, flags):
    return f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: a name\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nvendor_id\t: another\n"


for (vendor, family, model, flags), kind in {
    ("AuthenticAMD", 25, 17, "avx2"): "Zen 4 with AVX2 only",
    ("AuthenticAMD", 25, 17, "avx2 avx512f avx512_bf16"): "Zen 4 with AVX-512 and bf16 units",
    ("AuthenticAMD", 25, 1, "avx2"): "Zen 3 with AVX2 only",
    ("AuthenticAMD", 26, 2, "avx2 avx512f avx512_bf16"): "Zen 5 with AVX-512 and bf16 units",
    ("AuthenticAMD", 99, 2, "avx2"): "AMD with AVX2 only",
    ("GenuineIntel", 6, 85, "avx2 avx512f"): "Intel with AVX-512, without bf16 units",
    ("GenuineIntel", 6, 143, "avx2 avx512f avx512_bf16 amx_bf16"): "Intel with AVX-512, bf16 units and AMX",
}.items():
    agree("the kind of a processor", machine.kind(cpuinfo(vendor, family, model, flags)), f"{kind} ({vendor}, family {family}, model {model})")
agree("the kind of no processor", machine.kind("processor : 0\n"), "an unknown processor")

# On a processor of AMD, and only there, PyTorch gets a library that tells MKL the truth; a header says what the peer itself found.
TOLD = {"version": "2", "isa": "AVX512", "mkl": "2024.2", "onednn": "3.13", "mkl_told": True}
with mock.patch.object(machine, "is_amd", lambda: True):
    programs.mkl_truth.cache_clear()
    with mock.patch.object(programs, "compiler", lambda: None):
        agree("a preload without a compiler", programs.mkl_truth(), (None, "there is no C compiler to build it"))
        agree("the environment without a compiler", programs.torch_environment(1).get("LD_PRELOAD"), os.environ.get("LD_PRELOAD"))
        agree("a header of a peer that was not told", "as shipped, which takes AVX2 code on a processor of AMD (nothing is preloaded: there is no C compiler" in programs.headline(dict(TOLD, mkl_told=False)), True)
    programs.mkl_truth.cache_clear()
    if programs.compiler():
        library = programs.mkl_truth()[0]
        agree("what MKL is told", ctypes.CDLL(library).mkl_serv_intel_cpu_true(), 1)
        agree("the environment of PyTorch", programs.torch_environment(1)["LD_PRELOAD"].split(" ")[0], library)
        agree("the environment of other programs", programs.environment(1).get("LD_PRELOAD"), os.environ.get("LD_PRELOAD"))
    agree("a header of a peer that was told", "MKL 2024.2 told by a preloaded library" in programs.headline(TOLD), True)
with mock.patch.object(machine, "is_amd", lambda: False):
    programs.mkl_truth.cache_clear()
    agree("a preload elsewhere", programs.mkl_truth(), (None, "the processor is not one of AMD's"))
    agree("a header elsewhere", programs.headline(dict(TOLD, mkl_told=False)).endswith("PyTorch 2 as AVX512, MKL 2024.2, oneDNN 3.13"), True)
programs.mkl_truth.cache_clear()


def expect(status, words, script, *arguments):
    done = subprocess.run([sys.executable, str(root / "bench/peers" / script), *arguments], capture_output=True, text=True)
    said = done.stdout + done.stderr
    wrong = [f"exit status {done.returncode} instead of {status}"] * (done.returncode != status) + [f"no '{word}'" for word in words if word not in said]
    if wrong:
        problems.append(f"{script} {' '.join(arguments)}: {', '.join(wrong)} in:\n{said}")


for script in ("kernels/compare.py", "train/compare.py", "moe/compare.py", "packages/compare.py"):
    expect(2, ["there is no program '/nowhere/tutti'", "--target tutti_program"], script, "/nowhere/tutti")
    for threads in ("0", "1,x", "", "-2"):
        expect(2, [f"'{threads}' should be counts of at least 1"], script, tutti, f"--threads={threads}")
    expect(2, ["'-1' should be a count of at least 1"], script, tutti, "--rounds=-1")
expect(2, ["--rounds: 0 leaves nothing to print"], "kernels/compare.py", tutti, "--rounds=0")
expect(2, ["'/nowhere/rounds' should be a file that --json wrote"], "kernels/compare.py", tutti, "--add=/nowhere/rounds")
expect(2, ["LICENSE' should be a file that --json wrote"], "kernels/compare.py", tutti, f"--add={root / 'LICENSE'}")
expect(1, ["no case has 'nothing like it'", "softmax, 16384 rows of 1024"], "kernels/compare.py", tutti, "--only=nothing like it")
expect(2, ["invalid choice: 'large'", "debugmodel"], "train/compare.py", tutti, "--model=large")
expect(2, ["'f32,f16' should be dtypes with commas between them: f32, bf16"], "train/compare.py", tutti, "--dtypes=f32,f16")
expect(0, ["PyTorch is missing: '/nowhere/python' cannot import torch", "2017216 parameters", "| 1 | f32, eager | ", "| 1 | f32, compiled | ",
           "| 1 | bf16, beside autocast, eager | ", "| 1 | bf16, the best of each | "], "train/compare.py", tutti, "--model=quickstart", "--rows=1",
       "--sequence-length=16", "--threads=1", "--rounds=1", "--steps=1", "--python=/nowhere/python")
expect(0, ["PyTorch is missing: '/nowhere/python' cannot import torch", "| 1 | rows | uneven | ", "| 1 | layer | dense | "], "moe/compare.py", tutti, "--tokens=32", "--dim=16", "--hidden-dim=8", "--experts=4",
       "--top-k=2", "--threads=1", "--rounds=1", "--total-ms=1", "--python=/nowhere/python")
if shutil.which("g++") and "avx2" in pathlib.Path("/proc/cpuinfo").read_text():  # what measures the rate of memory is built for that
    nowhere = [f"--{flag}=/nowhere" for flag in ("python", "mlx", "ggml")]
    words = ["PyTorch is missing: --python", "libtorch is missing: '/nowhere' cannot import torch", "MLX is missing: --mlx", "ggml is missing: ", "| embedding, gradient, 4096 of 512 to 32000 | "]
    expect(0, words, "kernels/compare.py", tutti, "--only=embedding, gradient", "--threads=1", "--rounds=1", *nowhere)
for script in ("parallel/compare.py", "comm/compare.py"):
    expect(2, ["there is no program '/nowhere/tutti'", "--target tutti_program"], script, "/nowhere/tutti")
expect(2, ["there is no program '/nowhere/tutti'", "--target tutti_program"], "loading/compare.py", "/nowhere/tutti", str(root))
expect(2, ["there is no model '/nowhere/model'"], "loading/compare.py", tutti, "/nowhere/model")
expect(2, ["'0' should be a count of at least 1"], "loading/compare.py", tutti, str(root), "--rounds=0")
expect(2, ["'mlp,walk' should be names with commas between them: mlp, block, wide, read, write"], "packages/compare.py", tutti, "--only=mlp,walk")
expect(2, ["--only: read and write are calls of a model; name one with --model"], "packages/compare.py", tutti, "--only=read")
expect(2, ["--model: there is no '/nowhere/model'; scripts/fetch_models.sh smollm2-135m-instruct fetches one"], "packages/compare.py", tutti, "--model=/nowhere/model")
expect(1, ["compare.py: '/nowhere/python' cannot import torch; give one that can with --python"], "packages/compare.py", tutti, "--only=mlp", "--python=/nowhere/python")
expect(2, ["--openmpi: there is no /nowhere/bin/mpicxx"], "comm/compare.py", tutti, "--openmpi=/nowhere")
expect(2, ["'pp-2' is no layout; expected one, ddp, fsdp, tp, ep"], "parallel/compare.py", tutti, "--layouts=pp-2")
expect(0, ["PyTorch is missing: '/nowhere/python' cannot import torch", " cores.\nquickstart, 128 tokens a step", "| 1 rank of 1 threads | "], "parallel/compare.py", tutti, "--model=quickstart", "--rows=4",
       "--sequence-length=32", "--virtual-shards=1", "--layouts=one-1", "--rounds=1", "--steps=1", "--python=/nowhere/python")
layouts = root / "bench/peers/layouts"
if sys.version_info >= (3, 11):  # reads TOML
    expect(2, ["there is no program '/nowhere/tutti'", "--target tutti_program"], "layouts/compare.py", "/nowhere/tutti", "--out=/nowhere")
    expect(2, ["'0' should be a count of at least 1"], "layouts/compare.py", tutti, "--out=/nowhere", "--steps=0")
    with tempfile.TemporaryDirectory() as folder:
        out, config = pathlib.Path(folder) / "out", pathlib.Path(folder) / "small.toml"
        config.write_text((root / "configs/quickstart.toml").read_text().replace("global_batch_tokens = 4096", "global_batch_tokens = 128").replace("sequence_length = 256", "sequence_length = 16"))
        small = [tutti, f"--out={out}", f"--config={config}", "--steps=2", "--python=/nowhere/python"]
        expect(1, ["compare.py: /dev/null has 0 bytes of text, and 2 steps read 256"], "layouts/compare.py", *small, "--text=/dev/null")
        expect(0, ["PyTorch is missing: '/nowhere/python' cannot import torch", "| Tutti, 2 ranks | ", "| Tutti, 4 ranks | ", "| 2 of 2 | 0 |"], "layouts/compare.py", *small, f"--text={root / 'LICENSE'}")
        expect(1, ["was made with other settings: ", "steps = 200, now 2"], "layouts/compare.py", *small, f"--text={root / 'LICENSE'}", f"--add={layouts / 'losses.json'}")
        picture = pathlib.Path(folder) / "same_bits.svg"
        subprocess.run([sys.executable, str(layouts / "picture.py"), str(layouts / "losses.json"), str(picture)], check=True)
        if picture.read_text() != (root / "docs/images/same_bits.svg").read_text():
            problems.append("docs/images/same_bits.svg is not what bench/peers/layouts/picture.py draws of bench/peers/layouts/losses.json")
if shutil.which("git"):
    done = subprocess.run(["git", "apply", "--check", str(layouts / "planted_bug.patch")], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        problems.append(f"planted_bug.patch does not apply: {done.stderr}")
print("\n".join(problems) or "all comparisons say what they lack")
sys.exit(bool(problems))
