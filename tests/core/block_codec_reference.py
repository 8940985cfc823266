#!/usr/bin/env python3
"""Writes tests/golden/block_codec.txt, what the Python package gguf (0.19.0) decodes and encodes: block_codec_reference.py FILE.

Each line is "decode FORMAT BLOCK VALUES" or "encode FORMAT VALUES BLOCK"; a block is its bytes, values are the bits of f32 in order,
both in hexadecimal, NaN as "nan". Run by hand: pip install gguf==0.19.0.
"""
import sys

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

# Where a block has its scales of 16 bits: d, and m or dmin.
SCALES = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
SMALLEST, NEGATIVE_ZERO, LARGEST, INFINITE, NO_NUMBER, ONE = 0x0001, 0x8000, 0x7BFF, 0x7C00, 0x7E00, 0x3C00
ODD = [(SMALLEST, 0x83FF), (NEGATIVE_ZERO, NEGATIVE_ZERO), (INFINITE, ONE), (ONE, NO_NUMBER), (LARGEST, 0xFBFF)]


def hex_values(values):
    return "".join("nan     " if np.isnan(v) else f"{v.view(np.uint32):08x}" for v in values.astype(np.float32)).replace(" ", "_")


def line(verb, kind, values, block):
    fields = [block.tobytes().hex(), hex_values(values)]
    return " ".join([verb, kind.name, *(fields if verb == "decode" else fields[::-1])])


def main(path):
    random = np.random.default_rng(7)
    lines = []
    for kind, places in SCALES.items():
        for scales in [*ODD, None, None]:
            block = random.integers(0, 256, GGML_QUANT_SIZES[kind][1], dtype=np.uint8)
            values = scales or random.normal(0, 0.01, 2).astype(np.float16).view(np.uint16).tolist()
            for place, scale in zip(places, values):
                block[place:place + 2] = np.array([scale], np.uint16).view(np.uint8)
            with np.errstate(all="ignore"):
                lines.append(line("decode", kind, quants.dequantize(block[None], kind)[0], block))
    for kind, bits in ((Type.F16, np.uint16), (Type.BF16, np.uint16), (Type.F32, np.uint32)):
        for value in [0, 1, 0x8000, 0x3555, 0x7BFF, 0xFC00, 0x7F80, 0xC2F7]:
            block = np.array([value], bits).view(np.uint8)
            lines.append(line("decode", kind, quants.dequantize(block[None], kind)[0], block))
    ties = np.resize(np.array([127, 0.5, -0.5, 1.5, -2.5, 126.5, -126.5, 0.49999997], np.float32), 32)
    for block in [ties, np.zeros(32, np.float32), np.full(32, -8.3e6, np.float32), random.normal(0, 1, 32), random.normal(0, 1e-9, 32), random.normal(0, 1e-6, 32), random.normal(0, 100, 32)]:
        block = block.astype(np.float32)
        lines.append(line("encode", Type.Q8_0, block, quants.quantize(block[None], Type.Q8_0)[0]))
    for kind in (Type.F32, Type.F16, Type.BF16):
        for value in [0.0, -0.0, 1.0, 0.1, 65519.0, 65520.0, 3e-8, 1.00390625, 1.01171875, -3.3e38, np.inf]:
            with np.errstate(all="ignore"):
                lines.append(line("encode", kind, np.array([value], np.float32), quants.quantize(np.array([[value]], np.float32), kind)[0]))
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
