#!/usr/bin/env python3
"""The Python package gguf (0.19.0) as the reference for GGUF files. Run by hand: pip install gguf==0.19.0 safetensors.

  gguf_reference.py write FOLDER       writes every_type.gguf, with every type of metadata and tensors of every format that
                                       Tutti decodes, and decoded.safetensors with what the package decodes
  gguf_reference.py read FILE          prints what the package reads: keys with types and values, tensors with digests of values
  gguf_reference.py compare A B        fails unless the package reads the same keys and tensors in both files
"""
import hashlib
import pathlib
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType as Value, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

SCALES = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
SCALARS = {Value.UINT8: 200, Value.INT8: -100, Value.UINT16: 60000, Value.INT16: -30000, Value.UINT32: 4000000000, Value.INT32: -2000000000,
           Value.FLOAT32: 0.15625, Value.BOOL: True, Value.STRING: "na\u00efve \u2581text\n", Value.UINT64: 2**64 - 1, Value.INT64: -2**63, Value.FLOAT64: 0.1}


def blocks_of(kind, rows, length, random):
    elements, nbytes = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * length // elements, nbytes), dtype=np.uint8)
    for place in SCALES[kind]:
        blocks[:, place:place + 2] = random.normal(0, 0.01, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, length // elements * nbytes)


def write(folder):
    from safetensors.numpy import save_file
    random = np.random.default_rng(11)
    writer = GGUFWriter(folder / "every_type.gguf", "llama")
    for kind, value in SCALARS.items():
        writer.add_key_value(f"scalar.{kind.name.lower()}", value, kind)
    for kind, value in SCALARS.items():
        values = [value, value] if kind == Value.STRING else [value, type(value)(0), type(value)(1)]
        writer.add_key_value(f"array.{kind.name.lower()}", values, Value.ARRAY, kind)
    decoded = {}
    for kind in SCALES:
        length = max(64, GGML_QUANT_SIZES[kind][0])
        data = blocks_of(kind, 2, length, random)
        writer.add_tensor(f"blocks.{kind.name}", data, raw_dtype=kind)
        decoded[f"blocks.{kind.name}"] = quants.dequantize(data, kind)
    for kind in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64):
        data = (random.normal(0, 50, (2, 3, 5))).astype(kind)
        writer.add_tensor(f"plain.{np.dtype(kind).name}", data)
        decoded[f"plain.{np.dtype(kind).name}"] = data
    bf16 = quants.quantize(random.normal(0, 1, (3, 4)).astype(np.float32), Type.BF16)
    writer.add_tensor("plain.bfloat16", bf16, raw_dtype=Type.BF16)
    decoded["as_float32.bfloat16"] = quants.dequantize(bf16, Type.BF16)
    writer.add_tensor("blocks.IQ4_NL", random.integers(0, 256, (1, 18), dtype=np.uint8), raw_dtype=Type.IQ4_NL)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(decoded, folder / "decoded.safetensors")


def lines_of(path):
    reader = GGUFReader(path)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF."):
            yield f"{field.name} {' '.join(t.name for t in field.types)} {field.contents()!r}"
    for tensor in reader.tensors:
        try:
            values = quants.dequantize(tensor.data, tensor.tensor_type) if tensor.tensor_type in (*SCALES, Type.BF16) else tensor.data
        except NotImplementedError:
            values = tensor.data
        digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
        yield f"{tensor.name} {tensor.tensor_type.name} {tensor.shape.tolist()[::-1]} {digest}"


def main(verb, *paths):
    if verb == "write":
        write(pathlib.Path(paths[0]))
    elif verb == "read":
        print("\n".join(lines_of(paths[0])))
    elif verb == "compare":
        first, second = (list(lines_of(path)) for path in paths)
        differences = [f"{a}\n  is not\n{b}" for a, b in zip(first, second) if a != b]
        if len(first) != len(second):
            differences.append(f"{len(first)} and {len(second)} keys and tensors")
        print("\n".join(differences) or f"{len(first)} keys and tensors are equal")
        return bool(differences)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
