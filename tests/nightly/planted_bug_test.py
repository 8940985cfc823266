#!/usr/bin/env python3
"""A program that forgets to sum one gradient over the ranks is caught: bench layouts and diff name the step and the tensor.

planted_bug_test.py ROOT BUILD: copies the sources of ROOT to BUILD/planted_bug, applies bench/peers/layouts/planted_bug.patch to the copy,
builds the program there, and trains a small model with it. The build takes minutes, so the test is nightly.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys

PATCH = "bench/peers/layouts/planted_bug.patch"
TENSOR = "model.layers.0.self_attn.k_norm.weight"
SOURCES = ("tutti", "cli", "bench", "cmake", "configs", "CMakeLists.txt", "CMakePresets.json", "packages.txt", "LICENSE")
FLAGS = ("--data.paths=corpus.txt --data.tokenizer=byte --model.flavor=tiny --training.global_batch_tokens=512 --data.sequence_length=64 "
         "--data.validation_fraction=0.05").split()


def run(command, folder, status=0, **variables):
    """The output of a command, which must end with the status."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != status:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}, expected {status}:\n{done.stdout[-4000:]}")
    return done.stdout


def expect(holds, message, output):
    if not holds:
        sys.exit(f"{message}:\n{output}")


def build(root, tree):
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in SOURCES:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy2
        copy(root / name, tree / name)
    # The ceiling keeps git from finding the repository that the copy may stand in: paths of the patch are those of the copy.
    run(["git", "apply", root / PATCH], tree, GIT_CEILING_DIRECTORIES=str(tree.parent))
    run(["cmake", "--preset", "release", "-DTUTTI_BUILD_TESTS=OFF"], tree)
    run(["cmake", "--build", "--preset", "release", "--target", "tutti_program"], tree)
    return tree / "build/release/tutti"


def check(program, place):
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    words = random.Random(1)
    (place / "corpus.txt").write_text("".join(f"{words.choice(['the old river', 'a small boat', 'her letter'])} {words.randrange(1000)}.\n" for _ in range(4000)))
    config = program.parents[2] / "configs/quickstart.toml"
    table = run([program, "bench", "layouts", config, "--steps", "4", "--keep", "runs", *FLAGS], place, status=1)
    rows = {line.split()[0]: line for line in table.splitlines() if line}
    for layout in ("two-ranks", "four-ranks", "compiled-two-ranks"):
        expect("differs from step 1 on" in rows[layout] and TENSOR in rows[layout], f"the row {layout} does not name step 1 and {TENSOR}", table)
    for layout in ("two-threads", "compiled"):
        expect(rows[layout].endswith("same bits"), f"the row {layout} has one rank, and differs", table)
    parted = run([program, "diff", "runs/one-rank", "runs/two-ranks"], place, status=1)
    verdict = parted.splitlines()[-1]
    expect("from step 1 on" in verdict and TENSOR in verdict, f"the verdict does not name step 1 and {TENSOR}", parted)
    print(verdict)


if __name__ == "__main__":
    root, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "planted_bug"
    check(build(root, folder / "tree"), folder / "runs")
