"""Embedding bags of many tables in FBGEMM or PyTorch, for compare.py in this folder: torch_embedding.py {fbgemm,torch} THREADS FOLDER, where FOLDER has what
`tutti bench embedding --write-batch` wrote. Prints an object about itself, and answers each line, a JSON list [kind, variant, milliseconds], with the times of
its calls in microseconds: at least two, until the milliseconds are over. {"kinds": ...} in what it tells about itself are the variants of each kind.
"""
import json
import pathlib
import sys
import time

import numpy
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from torch_about import about  # noqa: E402

RATE, EPS = 1e-6, 1e-8


def read_batch(folder):
    indices, offsets, tables = (torch.from_numpy(numpy.load(f"{folder}/{name}.npy")) for name in ("indices", "offsets", "tables"))
    return indices, offsets, tables.tolist()


def expect_sums(y, offsets, tables):
    """All elements of all tables are 0.5."""
    bags = (offsets.numel() - 1) // len(tables)
    lengths = torch.diff(offsets).view(len(tables), bags)
    at = 0
    for t, (_, width) in enumerate(tables):
        wrong = y[:, at:at + width].float() - 0.5 * lengths[t].view(-1, 1)
        assert wrong.abs().max() < 1e-2 * max(1, int(lengths[t].max())), f"table {t} has wrong sums"
        at += width


class Fbgemm:
    """One module of all tables for each optimizer; both share no memory, as the optimizer is part of the module."""

    def __init__(self, indices, offsets, tables):
        import fbgemm_gpu
        self.version = f"fbgemm-gpu-cpu {fbgemm_gpu.__version__}"
        self.tables, self.inputs, self.modules = tables, {"i64": (indices, offsets), "i32": (indices.int(), offsets.int())}, {}
        self.grad = torch.full(((offsets.numel() - 1) // len(tables), sum(w for _, w in tables)), 1e-3)
        self.kinds = {kind: ["i64", "i32"] for kind in ("forward", "int8", "int4", "sgd", "rowwise_adagrad")}

    def module(self, optimizer):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
        if optimizer not in self.modules:
            self.modules.clear()  # tables of one module at a time
            kind = {"sgd": EmbOptimType.EXACT_SGD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}[optimizer]
            module = SplitTableBatchedEmbeddingBagsCodegen([(rows, width, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows, width in self.tables], optimizer=kind, learning_rate=RATE,
                                                           eps=EPS, bounds_check_mode=BoundsCheckMode.NONE, pooling_mode=PoolingMode.SUM)
            for w in module.split_embedding_weights():
                w.data.fill_(0.5)
            self.modules[optimizer] = module
        return self.modules[optimizer]

    def codes(self, kind):
        """The inference module, which takes as many threads as FBGEMM_TBE_MAX_NUM_THREADS says. All bytes are 0x38, so scale and bias are f16 of about 0.5."""
        from fbgemm_gpu.split_embedding_configs import SparseType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen
        if kind not in self.modules:
            self.modules.clear()
            dtype = {"int8": SparseType.INT8, "int4": SparseType.INT4}[kind]
            module = IntNBitTableBatchedEmbeddingBagsCodegen([("", rows, width, dtype, EmbeddingLocation.HOST) for rows, width in self.tables], device="cpu", row_alignment=16,
                                                             output_dtype=SparseType.FP32, bounds_check_mode=BoundsCheckMode.NONE)
            module.initialize_weights()
            module.weights_host.fill_(0x38)
            self.modules[kind] = module
        return self.modules[kind]

    def call(self, kind, variant):
        if kind in ("int8", "int4"):
            inputs = self.inputs[variant]
            return lambda: self.codes(kind)(*inputs)
        module, (indices, offsets) = self.module("rowwise_adagrad" if kind == "forward" else kind), self.inputs[variant]
        if kind == "forward":
            def forward():
                with torch.no_grad():
                    return module(indices, offsets)
            return forward
        return lambda: module(indices, offsets).backward(self.grad)


class Torch:
    """An EmbeddingBag for each table. Its optimizers have no row-wise Adagrad: here it is written with the sparse gradient, whose equal rows are summed."""

    def __init__(self, indices, offsets, tables):
        self.version = f"PyTorch {torch.__version__}"
        self.tables = tables
        bags = (offsets.numel() - 1) // len(tables)
        ends = [int(offsets[t * bags]) for t in range(len(tables) + 1)]
        split = lambda dtype: [(indices[ends[t]:ends[t + 1]].to(dtype), (offsets[t * bags:(t + 1) * bags] - ends[t]).to(dtype)) for t in range(len(tables))]
        self.inputs = {"i64": split(torch.int64), "i32": split(torch.int32)}
        self.modules = [torch.nn.EmbeddingBag(rows, width, mode="sum", sparse=True, _weight=torch.full((rows, width), 0.5)) for rows, width in tables]
        self.weights = [m.weight for m in self.modules]
        self.grads = [torch.full((bags, width), 1e-3) for _, width in tables]
        self.means = [torch.zeros(rows) for rows, _ in tables]
        self.sgd = torch.optim.SGD(self.weights, lr=RATE)
        lookup = lambda inputs: [m(i, o) for m, (i, o) in zip(self.modules, inputs)]
        self.lookups = {"eager": lookup, "compiled": torch.compile(lookup)}
        self.kinds = {"forward": ["eager i64", "eager i32", "compiled i64"], "sgd": ["eager i64", "eager i32"], "rowwise_adagrad": ["eager i64", "eager i32"]}

    def call(self, kind, variant):
        way, index = variant.split()
        lookup, inputs = self.lookups[way], self.inputs[index]
        if kind == "forward":
            def forward():
                with torch.no_grad():
                    return lookup(inputs)
            return forward

        def step():
            torch.autograd.backward(lookup(inputs), self.grads)
            with torch.no_grad():
                if kind == "sgd":
                    self.sgd.step()
                else:
                    for w, h in zip(self.weights, self.means):
                        g = w.grad.coalesce()
                        rows, values = g.indices()[0], g.values()
                        h.index_add_(0, rows, values.square().mean(1))
                        w.index_add_(0, rows, values * (-RATE / (h[rows].sqrt() + EPS)).unsqueeze(1))
            for w in self.weights:
                w.grad = None
        return step


def main():
    which, threads, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    indices, offsets, tables = read_batch(folder)
    peer = {"fbgemm": Fbgemm, "torch": Torch}[which](indices, offsets, tables)
    y = peer.call("forward", peer.kinds["forward"][0])()
    expect_sums(torch.cat(y, 1) if isinstance(y, list) else y, offsets, tables)
    print(json.dumps(about(kinds=peer.kinds, peer=peer.version)), flush=True)
    for line in sys.stdin:
        kind, variant, milliseconds = json.loads(line)
        call = peer.call(kind, variant)
        call()  # warms memory, and compiles
        us, until = [], time.perf_counter() + milliseconds * 1e-3
        while len(us) < 2 or time.perf_counter() < until:
            begin = time.perf_counter()
            call()
            us.append((time.perf_counter() - begin) * 1e6)
        print(json.dumps({"us": us}), flush=True)


if __name__ == "__main__":
    main()
