"""What is compared: each case as the peers read it, its arithmetic and bytes, and where `tutti bench` prints it."""
import dataclasses


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    label: str          # in the table
    line: str           # for the peers, see peer.h
    flops: float        # as the op is defined, whatever a program computes: a multiply-add is two, exp and tanh one
    nbytes: float       # operands and results once
    tutti: tuple        # arguments of `tutti bench`, which may print several cases
    rows: dict          # column -> keys and values of the line that it prints
    short: str = ""     # on the plot; "" leaves it out


def product(m, n, k, dtype, layout, short=""):
    size = {"f32": 4, "bf16": 2, "i8": 1}[dtype]
    command = ("gemm", "--m", str(m), "--n", str(n), "--k", str(k), "--dtype", dtype) + {"kn": (), "nk": ("--b-transposed",), "packed": ("--b-packed",)}[layout]
    nbytes = size * (m * k + k * n) + (4 if dtype == "i8" else size) * m * n
    there = dtype != "i8" or layout != "packed"  # pack_weight() takes floats
    return Case(f"product {m} x {n} x {k}, {dtype}, {dict(kn='[K, N]', nk='[N, K]', packed='packed')[layout]}", f"gemm {m} {n} {k} {dtype} {layout}",
                2.0 * m * n * k, nbytes, command if there else (), {"Tutti": {}} if there else {}, short)


def compiled(label, line, elements, flops, tensors, what, shape, short):
    rows = {column: {"what": what, "shape": shape, "mode": mode} for column, mode in (("Tutti", "eager"), ("Tutti, compiled", "compiled"))}
    return Case(label, line, flops * elements, 4.0 * tensors * elements, ("compile",), rows, short)


def indexed(label, line, flops, nbytes, op, shape, short=""):
    return Case(label, line, float(flops), float(nbytes), ("ops", "--only", op), {"Tutti": {"op": op, "shape": shape}}, short)


def eager(label, op, n, tensors, short):
    return Case(label, f"{op} {n} f32", float(n), 4.0 * tensors * n, ("ops", "--only", op), {"Tutti": {"op": op, "shape": f"[{n}]"}}, short)


M1, M16 = 1 << 20, 1 << 24
BAG_ELEMENTS = 4096 * 20 * 64
PAIRS = 4 * 8 * 1024 * 1025 / 2
CASES = [
    product(1024, 1024, 1024, "f32", "kn", "1024³ f32"), product(1024, 1024, 1024, "f32", "nk"), product(1024, 1024, 1024, "f32", "packed"),
    product(2048, 2048, 2048, "f32", "kn", "2048³ f32"), product(2048, 2048, 2048, "f32", "nk"), product(2048, 2048, 2048, "f32", "packed"),
    *(product(m, 2048, 2048, "f32", layout, f"{m} row{'s' * (m > 1)} f32" if layout == "nk" else "") for m in (1, 4, 16, 32) for layout in ("kn", "nk", "packed")),
    product(1024, 1024, 1024, "bf16", "kn"), product(1024, 1024, 1024, "bf16", "nk", "1024³ bf16"),
    product(2048, 2048, 2048, "bf16", "kn"), product(2048, 2048, 2048, "bf16", "nk"),
    *(product(m, 4096, 4096, "bf16", layout) for m in (1, 4, 16) for layout in ("kn", "nk", "packed")),
    product(1024, 1024, 1024, "i8", "kn"), product(1024, 1024, 1024, "i8", "nk", "1024³ i8"), product(1024, 1024, 1024, "i8", "packed"),
    compiled("softmax, 16384 rows of 1024", "softmax 16384 1024 f32", M16, 4, 2, "softmax", "[16384, 1024]", "softmax"),
    compiled("layer_norm, 16384 rows of 1024", "layer_norm 16384 1024 f32", M16, 7, 2, "layer_norm", "[16384, 1024]", "layer_norm"),
    eager("exp, 1 M", "exp", M1, 2, ""), eager("exp, 16 M", "exp", M16, 2, "exp 16 M"),
    compiled("gelu(a * b + c), tanh, 1 M", f"chain {M1} f32", M1, 12, 4, "chain a*b+c, gelu(tanh)", f"[{M1}]", "gelu chain 1 M"),
    compiled("gelu(a * b + c), tanh, 16 M", f"chain {M16} f32", M16, 12, 4, "chain a*b+c, gelu(tanh)", f"[{M16}]", "gelu chain 16 M"),
    eager("add, 16 elements", "add", 16, 3, ""), eager("add, 16 M", "add", M16, 3, "add 16 M"),
    Case("attention, causal, 4 x 8 x 1024 x 64", "attention 4 8 1024 64 f32", 4.0 * 64 * PAIRS, 16.0 * 4 * 8 * 1024 * 64,
         ("attention", "--batch", "4", "--heads", "8", "--length", "1024", "--dim", "64"), {"Tutti": {"op": "sdpa", "pass": "forward"}}, "attention"),
    indexed("softmax of columns, 16384 rows of 1024", "softmax_columns 16384 1024 f32", 4 * M16, 8 * M16, "softmax of columns", "[16384, 1024]"),
    indexed("embedding, gradient, 4096 of 512 to 32000", "embedding_gradient 4096 512 32000 f32", 4096 * 512, 4 * (4096 + 32000) * 512, "embedding, gradient", "[4096, 512]"),
    indexed("scatter_add, 1 M", f"scatter_add {M1} f32", M1, 20 * M1, "scatter_add", f"[{M1}]"),
    indexed("scatter_add of rows, 65536 x 64", "scatter_add 65536 64 f32", 65536 * 64, 20 * 65536 * 64, "scatter_add", "[65536, 64]"),
    *(indexed(f"embedding_bag, 1 M x 64, 4096 bags of 20, forward + sparse gradient{what}", f"embedding_bag{more} {M1} 64 4096 20 f32", 2 * BAG_ELEMENTS, 8 * BAG_ELEMENTS,
              "embedding_bag forward+backward in rows", "[4096, 20, 64]", short) for what, more, short in (("", "", "embedding_bag"), (", rows once", "_unique", ""))),
    compiled("AdamW, 16 M", f"adamw {M16} f32", M16, 14, 7, "adamw", f"[{M16}]", "AdamW"),
]
