#!/usr/bin/env python3
"""Training steps of a click model (DLRM) in PyTorch, on examples drawn as those of `tutti bench dlrm`.

torch_dlrm.py THREADS TABLES MODE PROBLEM: TABLES is "sparse" (EmbeddingBag with sparse gradients and Adagrad for each table) or "fbgemm" (FBGEMM's table-batched embeddings with
row-wise Adagrad in their backward, as Tutti has it); MODE is "eager" or "compiled" (torch.compile of the layers and the loss); PROBLEM is JSON with tables, rows, dim, bottom, top, batch and skew.
Prints a line of JSON about itself, then for each number N on standard input takes N steps and prints the microseconds of each and the losses. Making the examples is not measured.
"""
import json
import pathlib
import sys
import time

import numpy as np
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from torch_about import about  # noqa: E402

threads, ways, mode, problem = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
torch.set_num_threads(threads)
torch.manual_seed(1)
T, D, B = problem["tables"], problem["dim"], problem["batch"]
least = min(10, problem["rows"])
ROWS = [max(int(least * (problem["rows"] / least) ** (1.0 if T == 1 else t / (T - 1))), 1) for t in range(T)]
DENSE = 13


def layers(sizes, ends_with_relu):
    made = []
    for i in range(1, len(sizes)):
        made.append(torch.nn.Linear(sizes[i - 1], sizes[i]))
        if i + 1 < len(sizes) or ends_with_relu:
            made.append(torch.nn.ReLU())
    return torch.nn.Sequential(*made)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = layers([DENSE, *problem["bottom"], D], True)
        self.top = layers([D + T * (T + 1) // 2, *problem["top"], 1], False)
        self.register_buffer("pairs", torch.tril_indices(T + 1, T + 1, offset=-1))

    def forward(self, dense, embedded, labels):
        x = self.bottom(dense)
        every = torch.cat([x.unsqueeze(1), embedded], 1)
        dots = torch.bmm(every, every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        logits = self.top(torch.cat([x, dots], 1)).squeeze(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


class SparseTables:
    """EmbeddingBag of one row a bag, sparse gradients, Adagrad of elements: PyTorch has none of rows."""
    def __init__(self):
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, D, mode="sum", sparse=True) for rows in ROWS)
        self.optimizer = torch.optim.Adagrad(self.tables.parameters(), lr=0.01, eps=1e-8)
        self.offsets = torch.arange(B)

    def look_up(self, categories):
        return torch.stack([table(categories[t], self.offsets) for t, table in enumerate(self.tables)], 1)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class FbgemmTables:
    def __init__(self):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
        self.tables = SplitTableBatchedEmbeddingBagsCodegen([(rows, D, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows in ROWS], optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
                                                            learning_rate=0.01, eps=1e-8)
        self.offsets = torch.arange(T * B + 1)

    def look_up(self, categories):
        return self.tables(categories.reshape(-1), self.offsets).reshape(B, T, D)

    def step(self):
        pass


def examples(rng):
    u = rng.random((T, B))
    rows = np.array(ROWS)[:, None]
    rank = u * rows if problem["skew"] == 0 else rows ** (u ** problem["skew"]) - 1
    categories = np.minimum(rank.astype(np.uint64), (rows - 1).astype(np.uint64)) * np.uint64(2654435761) % rows.astype(np.uint64)
    return torch.from_numpy(rng.random((B, DENSE), dtype=np.float32)), torch.from_numpy(categories.astype(np.int64)), torch.from_numpy((rng.random(B) < 0.25).astype(np.float32))


model = Layers()
tables = SparseTables() if ways == "sparse" else FbgemmTables()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0, fused=True)
loss_of = torch.compile(model) if mode == "compiled" else model
parameters = sum(p.numel() for p in model.parameters()) + sum(ROWS) * D
print(json.dumps(about(parameters=parameters)), flush=True)
rng = np.random.default_rng(1)
for line in sys.stdin:
    us, losses = [], []
    for _ in range(int(line)):
        dense, categories, labels = examples(rng)
        begin = time.perf_counter()
        loss = loss_of(dense, tables.look_up(categories), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tables.step()
        us.append((time.perf_counter() - begin) * 1e6)
        losses.append(loss.item())
    print(json.dumps({"us": us, "losses": losses}), flush=True)
