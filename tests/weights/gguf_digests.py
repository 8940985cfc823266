#!/usr/bin/env python3
"""Prints what tests of published weights compare with: BLAKE2b digests of tensors as the Python package gguf decodes them to f32.

  gguf_digests.py FILE TENSOR...      Run by hand: pip install gguf==0.19.0
"""
import hashlib
import sys

import numpy as np
from gguf import GGUFReader, quants


def main(path, *names):
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    for name in names:
        values = np.ascontiguousarray(quants.dequantize(tensors[name].data, tensors[name].tensor_type), dtype=np.float32)
        print(f'{{"{name}", "{hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()}"}},')


if __name__ == "__main__":
    main(*sys.argv[1:])
