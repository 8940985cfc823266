"""Twenty steps of fused embedding optimizers for tests/ops/table_batched_peer_test.cpp: `table_batched_reference.py tests/golden/fbgemm_tables.txt`.

Needs fbgemm-gpu-cpu 1.9.0 and PyTorch 2.14, on processors. There FBGEMM has SGD, Adagrad and row-wise Adagrad; it ignores the weight decay of f32 tables
without saying so, so decays are those of f16 tables (rounded to nearest), and it steps a table that two features share once for each of them, so tables are
shared where that is the same thing, by SGD. Adam is PyTorch's AdamW over dense gradients, in steps that look every row up. Tables are 0 [6, 8] and 1 [5, 4].
Inputs are numbers of a formula that the test repeats, so only results are written.

A case is a line `case OPTIMIZER DECAY WEIGHT_DECAY POOLING DTYPE FEATURES`, the last one the tables of the features, such as 0101; then lines `NAME COUNT
VALUE...`: y1 and y20, the results of the first and the last forward, w0 and w1, the tables after 20 steps, and their states h0, h1 (Adagrad), m0, m1, v0, v1
(Adam).
"""
import sys

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen, WeightDecayMode

ROWS, COLUMNS, BAGS, LR, EPS = [6, 5], [8, 4], 5, 0.05, 1e-8
lines = []


def word(a, b):
    return ((a * 2654435761 + b * 40503 + 12345) % 2**32) >> 8


def numbers(seed, count):
    return torch.tensor([word(i, seed) / 2**23 - 1 for i in range(count)], dtype=torch.float32)


def batch(step, features, every_row):
    indices, offsets = [], [0]
    for t, table in enumerate(features):
        for b in range(BAGS):
            length = 2 * ROWS[table] if every_row and b == 0 else word(t * BAGS + b, step) % 4
            for p in range(length):
                indices.append(p % ROWS[table] if every_row and b == 0 else word(len(indices), 1000 + step) % ROWS[table])
            offsets.append(len(indices))
    return torch.tensor(indices), torch.tensor(offsets)


def write(name, tensor):
    values = [f"{v:.9g}" for v in tensor.detach().reshape(-1).tolist()]
    lines.append(f"{name} {len(values)} {' '.join(values)}")


def starts():
    return [numbers(t, ROWS[t] * COLUMNS[t]).view(ROWS[t], COLUMNS[t]) for t in range(2)]


def fbgemm(name, optimizer, decay, weight_decay, pooling, dtype="f32", features=(0, 1)):
    options = {} if decay == "none" else {"weight_decay_mode": {"l2": WeightDecayMode.L2, "decoupled": WeightDecayMode.DECOUPLE}[decay]}
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(ROWS[t], COLUMNS[t], EmbeddingLocation.HOST, ComputeDevice.CPU) for t in range(2)], feature_table_map=list(features), optimizer=optimizer,
        learning_rate=LR, eps=EPS, weight_decay=weight_decay, stochastic_rounding=False, bounds_check_mode=BoundsCheckMode.FATAL,
        weights_precision={"f32": SparseType.FP32, "f16": SparseType.FP16}[dtype], output_dtype=SparseType.FP32,
        pooling_mode={"sum": PoolingMode.SUM, "mean": PoolingMode.MEAN}[pooling], **options)
    for w, start in zip(module.split_embedding_weights(), starts()):
        w.data.copy_(start)
    lines.append(f"case {name} {decay} {weight_decay} {pooling} {dtype} {''.join(map(str, features))}")
    for step in range(1, 21):
        y = module(*batch(step, features, False))
        if step in (1, 20):
            write(f"y{step}", y)
        y.backward(numbers(2000 + step, y.numel()).view(y.shape))
    for t, w in enumerate(module.split_embedding_weights()):
        write(f"w{t}", w)
    for t, state in enumerate(module.split_optimizer_states()):
        if state:
            write(f"h{t}", state[0])


def adamw(weight_decay, pooling, features=(0, 1, 0, 1)):
    tables = [torch.nn.Parameter(w) for w in starts()]
    optimizer = torch.optim.AdamW(tables, lr=LR, betas=(0.9, 0.999), eps=EPS, weight_decay=weight_decay)
    lines.append(f"case adam none {weight_decay} {pooling} f32 {''.join(map(str, features))}")
    for step in range(1, 21):
        indices, offsets = batch(step, features, True)
        parts = []
        for t, table in enumerate(features):
            first, last = offsets[t * BAGS], offsets[(t + 1) * BAGS]
            parts.append(torch.nn.functional.embedding_bag(indices[first:last], tables[table], offsets[t * BAGS:(t + 1) * BAGS] - first, mode=pooling))
        y = torch.cat(parts, 1)
        if step in (1, 20):
            write(f"y{step}", y)
        optimizer.zero_grad()
        y.backward(numbers(2000 + step, y.numel()).view(y.shape))
        optimizer.step()
    for t, w in enumerate(tables):
        write(f"w{t}", w)
        write(f"m{t}", optimizer.state[w]["exp_avg"])
        write(f"v{t}", optimizer.state[w]["exp_avg_sq"])


for pooling in ("sum", "mean"):
    fbgemm("sgd", EmbOptimType.EXACT_SGD, "none", 0.0, pooling, features=(0, 1, 0, 1))
    fbgemm("adagrad", EmbOptimType.EXACT_ADAGRAD, "none", 0.0, pooling)
    fbgemm("rowwise_adagrad", EmbOptimType.EXACT_ROWWISE_ADAGRAD, "none", 0.0, pooling)
    fbgemm("rowwise_adagrad", EmbOptimType.EXACT_ROWWISE_ADAGRAD, "l2", 0.2, pooling, "f16")
    fbgemm("rowwise_adagrad", EmbOptimType.EXACT_ROWWISE_ADAGRAD, "decoupled", 0.2, pooling, "f16")
    adamw(0.2, pooling)
with open(sys.argv[1], "w") as out:
    out.write("\n".join(lines) + "\n")
