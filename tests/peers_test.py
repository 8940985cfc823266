#!/usr/bin/env python3
"""The comparisons with other libraries refuse what they cannot run and say which peers are missing: peers_test.py ROOT TUTTI."""
import pathlib
import shutil
import subprocess
import sys

root, tutti = pathlib.Path(sys.argv[1]), sys.argv[2]
problems = []


def expect(status, words, script, *arguments):
    done = subprocess.run([sys.executable, str(root / "bench/peers" / script), *arguments], capture_output=True, text=True)
    said = done.stdout + done.stderr
    wrong = [f"exit status {done.returncode} instead of {status}"] * (done.returncode != status) + [f"no '{word}'" for word in words if word not in said]
    if wrong:
        problems.append(f"{script} {' '.join(arguments)}: {', '.join(wrong)} in:\n{said}")


for script in ("kernels/compare.py", "train/compare.py"):
    expect(2, ["there is no program '/nowhere/tutti'", "--target tutti_program"], script, "/nowhere/tutti")
    for threads in ("0", "1,x", "", "-2"):
        expect(2, [f"'{threads}' should be counts of at least 1"], script, tutti, f"--threads={threads}")
    expect(2, ["'-1' should be a count of at least 1"], script, tutti, "--rounds=-1")
expect(2, ["--rounds: 0 leaves nothing to print"], "kernels/compare.py", tutti, "--rounds=0")
expect(2, ["'/nowhere/rounds' should be a file that --json wrote"], "kernels/compare.py", tutti, "--add=/nowhere/rounds")
expect(2, ["LICENSE' should be a file that --json wrote"], "kernels/compare.py", tutti, f"--add={root / 'LICENSE'}")
expect(1, ["no case has 'nothing like it'", "softmax, 16384 rows of 1024"], "kernels/compare.py", tutti, "--only=nothing like it")
expect(2, ["invalid choice: 'large'", "debugmodel"], "train/compare.py", tutti, "--model=large")
expect(0, ["PyTorch is missing: '/nowhere/python' cannot import torch", "2017216 parameters", "| 1 | eager | ", "| 1 | compiled | "], "train/compare.py", tutti, "--model=quickstart", "--rows=1",
       "--sequence-length=16", "--threads=1", "--rounds=1", "--steps=1", "--python=/nowhere/python")
if shutil.which("g++") and "avx2" in pathlib.Path("/proc/cpuinfo").read_text():  # what measures the rate of memory is built for that
    nowhere = [f"--{flag}=/nowhere" for flag in ("python", "mlx", "ggml")]
    words = ["PyTorch is missing: --python", "MLX is missing: --mlx", "ggml is missing: ", "| embedding, gradient, 4096 of 512 to 32000 | "]
    expect(0, words, "kernels/compare.py", tutti, "--only=embedding, gradient", "--threads=1", "--rounds=1", *nowhere)
print("\n".join(problems) or "all comparisons say what they lack")
sys.exit(bool(problems))
