#!/usr/bin/env python3
"""Writes tests/golden/block_encode.txt, digests of the blocks that ggml's reference functions make of generated numbers.

Run by hand: block_encode_reference.py LIBRARY FILE, where LIBRARY is ggml-quants.c of llama.cpp as a shared library in which every
operation is rounded by itself:

    gcc -std=gnu11 -O2 -ffp-contract=off -DNDEBUG -shared -fPIC -ffunction-sections -Wl,--gc-sections -I include -I src src/ggml-quants.c abort.c -lm

with a ggml_abort() in abort.c. A line of the file is "FORMAT DISTRIBUTION DIGEST": the BLAKE2b of 16 bytes of the blocks of 65,536
elements. tests/core/support/block_inputs.h generates the same numbers.
"""
import ctypes
import hashlib
import sys

import numpy as np

FORMATS = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}
COUNT = 65536


def mixed(i):
    """The i-th number of SplitMix64."""
    with np.errstate(over="ignore"):
        z = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def bell(i):
    """A whole number of about the normal distribution: the sum of four numbers of 16 bits, less their mean."""
    z = mixed(i)
    return sum(((z >> np.uint64(16 * k)) & np.uint64(0xFFFF)).astype(np.int64) for k in range(4)) - 131070


def scaled(numbers, exponent):
    return np.ldexp(numbers.astype(np.float32), exponent).astype(np.float32)


def zeros_after(i):
    """How many bits at the end of another number are 0, at most 24."""
    z = mixed(i + np.uint64(1 << 40)) | np.uint64(1 << 24)
    return np.log2((z & (~z + np.uint64(1))).astype(np.float64)).astype(np.int64)


def outliers(i):
    is_outlier = (mixed((i >> np.uint64(8)) + np.uint64(1 << 41)) & np.uint64(255)) == (i & np.uint64(255))
    return scaled(bell(i), np.where(is_outlier, -10, -20))


DISTRIBUTIONS = {
    "normal": lambda i: scaled(bell(i), -20),
    "heavy_tails": lambda i: scaled(bell(i), -20 + zeros_after(i)),
    "mixed_scales": lambda i: scaled(bell(i), -16 - (mixed((i >> np.uint64(4)) + np.uint64(1 << 42)) % np.uint64(12)).astype(np.int64)),
    "outliers": outliers,
    "constants": lambda i: scaled(bell(i >> np.uint64(8)), -18),
    "zeros": lambda i: np.where(mixed(i) & np.uint64(1), np.float32(-0.0), np.float32(0)),
    "positive": lambda i: scaled(np.abs(bell(i)), -20),
    "negative": lambda i: scaled(-np.abs(bell(i)), -20),
    "far_from_zero": lambda i: np.float32(3) + scaled(bell(i), -24),
    "ties": lambda i: scaled(bell(i) % 33 - 16, -4),
    "large": lambda i: scaled(bell(i), -2),
    "scales_below_f16": lambda i: scaled(bell(i), -38),
    "squares_below_f32": lambda i: scaled(bell(i), -88),
    "reciprocals_infinite": lambda i: scaled(bell(i), -142),
    "subnormal": lambda i: scaled(bell(i), -149),
}


def encode(library, name, values):
    elements, nbytes = FORMATS[name]
    blocks = np.zeros(values.size // elements * nbytes, np.uint8)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    getattr(library, f"quantize_row_{name.replace('Q', 'q')}_ref")(pointer(values), pointer(blocks), ctypes.c_int64(values.size))
    return blocks.tobytes()


def main(library, path):
    library = ctypes.CDLL(library)
    with open(path, "w") as file:
        for name in FORMATS:
            for distribution, values in DISTRIBUTIONS.items():
                values = np.ascontiguousarray(values(np.arange(COUNT, dtype=np.uint64)), np.float32)
                file.write(f"{name} {distribution} {hashlib.blake2b(encode(library, name, values), digest_size=16).hexdigest()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
