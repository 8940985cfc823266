"""Rows in 8 and 4 bits for tests/ops/quantized_rows_peer_test.cpp: `quantized_rows_reference.py tests/golden/fbgemm_rows.txt`.

Needs fbgemm-gpu-cpu 1.9.0 and PyTorch 2.14, on processors. Rows are numbers of a formula that the test repeats, scaled and moved so that ranges are large,
small, zero, and those whose minimum f16 cannot hold exactly. A line `rows COUNT COLUMNS` begins a case; then come the bytes of FBGEMM's rows in hexadecimal, a
line `8bit` and, for multiples of 4 columns, `4bit` for each row, and what FBGEMM decodes them to (`8bit_values`, `4bit_values`). The last lines, `lookup_int8`
and `lookup_int4`, are results of FBGEMM's inference module, of f32, for bags that the test makes, too.
"""
import sys

import numpy
import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_embedding_utils import quantize_embs
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen

SCALES = [(1, 0), (1e-3, 0.5), (100, -30), (0, 0.1), (0, 0), (1e-9, 0), (3e4, 0), (0, -1 / 3)]
lines = []


def word(a, b):
    return ((a * 2654435761 + b * 40503 + 12345) % 2**32) >> 8


def rows_of(count, columns):
    numbers = [[numpy.float32(word(r * columns + d, columns) / 2**23 - 1) for d in range(columns)] for r in range(count)]
    pairs = [SCALES[r % len(SCALES)] for r in range(count)]
    return torch.from_numpy(numpy.array([[n * numpy.float32(s) + numpy.float32(m) for n in row] for row, (s, m) in zip(numbers, pairs)], dtype=numpy.float32))


def write_bytes(name, table):
    lines.extend(f"{name} {bytes(row).hex()}" for row in table.numpy())


def write_values(name, table):
    values = [f"{v:.9g}" for v in table.reshape(-1).tolist()]
    lines.append(f"{name} {len(values)} {' '.join(values)}")


for columns in (4, 12, 16, 33, 72):
    table = rows_of(16, columns)
    lines.append(f"rows 16 {columns}")
    byte_rows = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(table)
    write_bytes("8bit", byte_rows)
    if columns % 4 == 0:
        write_values("8bit_values", torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(byte_rows))
    if columns % 4 == 0:
        half_rows = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(table, 4)
        write_bytes("4bit", half_rows)
        write_values("4bit_values", torch.ops.fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat(half_rows, 4))

ROWS, COLUMNS, BAGS = 16, 16, 6
offsets = [0]
for b in range(BAGS):
    offsets.append(offsets[-1] + word(b, 7) % 5)
indices = [word(p, 9) % ROWS for p in range(offsets[-1])]
for name, kind in (("int8", SparseType.INT8), ("int4", SparseType.INT4)):
    module = IntNBitTableBatchedEmbeddingBagsCodegen([("", ROWS, COLUMNS, kind, EmbeddingLocation.HOST)], pooling_mode=PoolingMode.SUM, device="cpu", output_dtype=SparseType.FP32)
    module.fill_random_weights()
    weight, scale_shift = quantize_embs(rows_of(ROWS, COLUMNS), kind)
    module.assign_embedding_weights([(weight, scale_shift)])
    lines.append(f"layout_{name} {bytes(module.split_embedding_weights(split_scale_shifts=False)[0][0].contiguous().view(-1).numpy()).hex()}")
    write_values(f"lookup_{name}", module(torch.tensor(indices, dtype=torch.int32), torch.tensor(offsets, dtype=torch.int32)).float())

with open(sys.argv[1], "w") as file:
    file.write("\n".join(lines) + "\n")
