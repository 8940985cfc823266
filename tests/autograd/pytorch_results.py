"""Results and gradients of PyTorch for tests/autograd/pytorch_results_test.cpp: `pytorch_results.py tests/golden/pytorch_ops.txt`.

A case is a line `case NAME ties|distinct NUMBER...`, where the numbers are the arguments of the call, and then the tensors `x`, `out`
(one or two) and, for f64 without ties, `grad`: that of the sum of the first result times 1, 2, ..., 7, 1, 2, ... A tensor is a line `NAME
DTYPE NDIM SIZE... VALUE...`. `ties` means that an index may be that of another element of the same value.
"""
import sys

import torch
import torch.nn.functional as F

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32",
          torch.uint8: "u8", torch.int8: "i8"}
NAN, INF = float("nan"), float("inf")
lines = []


def tensor(name, t):
    values = [str(v) for v in t.detach().reshape(-1).tolist()]
    lines.append(" ".join([name, DTYPES[t.dtype], str(t.ndim), *map(str, t.shape), *values]))


def case(name, function, x, numbers=(), ties=False):
    """Records function(x), a tensor or a pair of them."""
    lines.append(" ".join(["case", name, "ties" if ties else "distinct", *map(str, numbers)]))
    x = x.clone().requires_grad_(x.dtype == torch.float64 and not ties)
    results = function(x)
    results = tuple(results) if isinstance(results, tuple) else (results,)
    tensor("x", x)
    for result in results:
        tensor("out", result)
    if x.requires_grad:
        weights = (torch.arange(results[0].numel(), dtype=torch.float64) % 7 + 1).reshape(results[0].shape)
        tensor("grad", torch.autograd.grad((results[0] * weights).sum(), x)[0])


def distinct(*sizes, dtype=torch.float64):
    """Different multiples of 1/4 in any order."""
    count = torch.Size(sizes).numel()
    return ((torch.randperm(count) - count // 2).double() / 4).reshape(sizes).to(dtype)


def few(*sizes, dtype=torch.float64, high=4):
    return torch.randint(-1 if dtype != torch.uint8 else 0, high, sizes).to(dtype)


def selections():
    of_lines = {"median_dim": torch.median, "nanmedian_dim": torch.nanmedian, "mode": torch.mode}
    for name, function in of_lines.items():
        for dim, keepdim in ((0, 0), (1, 1), (2, 0)):
            call = lambda x: function(x, dim, bool(keepdim))
            case(name, call, distinct(4, 5, 3), (dim, keepdim))
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8):
                case(name, call, few(4, 5, 3, dtype=dtype), (dim, keepdim), ties=True)
        case(name, lambda x: function(x, 0), torch.tensor([2**63 - 1, -2**63, 2**63 - 1, 0, -2**63]), (0, 0), ties=True)
        case(name, lambda x: function(x, 0), torch.tensor(2.5, dtype=torch.float64), (0, 0))
    special = torch.tensor([[3, NAN, 1, 2], [NAN, NAN, NAN, NAN], [INF, -INF, 0, 5], [NAN, INF, NAN, -INF]], dtype=torch.float64)
    for name in ("median_dim", "nanmedian_dim"):
        for dim in (0, 1):
            case(name, lambda x: of_lines[name](x, dim), special, (dim, 0), ties=name == "nanmedian_dim")
    for k, dim, keepdim in ((1, 0, 0), (4, 0, 1), (3, 1, 0), (2, 2, 1)):
        call = lambda x: torch.kthvalue(x, k, dim, bool(keepdim))
        case("kthvalue", call, distinct(4, 5, 3), (k, dim, keepdim))
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
            case("kthvalue", call, few(4, 5, 3, dtype=dtype), (k, dim, keepdim), ties=True)
    for k in (1, 2, 3, 4):
        case("kthvalue", lambda x: torch.kthvalue(x, k), special, (k, 1, 0), ties=True)
    for name, function in {"median": torch.median, "nanmedian": torch.nanmedian}.items():
        for x in (distinct(4, 5), few(3, 4, 5), torch.tensor([3, NAN, 1, NAN, 2], dtype=torch.float64), torch.tensor(NAN, dtype=torch.float64),
                  distinct(33, dtype=torch.float32), few(40, dtype=torch.bfloat16), few(40, dtype=torch.int64), few(40, dtype=torch.uint8),
                  torch.zeros(0), torch.tensor(1.5, dtype=torch.float64)):
            case(name, function, x)


def scans():
    infinite = torch.tensor([[1, -INF, 2, 0.5], [-INF, 3, 3, -INF], [0, 1, INF, 2]], dtype=torch.float64)
    for dim in (0, 1):
        for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
            function = getattr(torch, name)
            for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
                case(name, lambda x: function(x, dim), distinct(5, 6, dtype=dtype), (dim,))
            if name != "logcumsumexp":
                case(name, lambda x: function(x, dim), few(5, 6, dtype=torch.int64), (dim,), ties=True)
        case("cumprod", lambda x: torch.cumprod(x, dim), few(5, 6, high=3), (dim,))  # with any number of zeros
        case("logcumsumexp", lambda x: torch.logcumsumexp(x, dim), 40 * distinct(5, 6), (dim,))
    # The gradient of an empty sum is NaN in PyTorch, so no line begins with -inf where there is a gradient.
    case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), infinite[:1], (1,))
    case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), infinite.float(), (1,))
    case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), torch.tensor([[1, NAN, 2, 3], [-INF, -INF, NAN, 1]]), (1,))
    case("logcumsumexp", lambda x: torch.logcumsumexp(x, 0), torch.tensor(0.25, dtype=torch.float64), (0,))


SIZES = {1: (11,), 2: (7, 6), 3: (4, 5, 3)}


def pools():
    max_pools = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
    avg_pools = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
    adaptive_max = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    adaptive_avg = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
    for d in (1, 2, 3):
        for lead in ((2, 2), (3,)):  # with and without a dim of images
            sizes = lead + SIZES[d]
            for dtype in (torch.float64, torch.float32, torch.bfloat16):
                for kernel, stride, padding, dilation, ceil in ((2, 2, 0, 1, 0), (3, 2, 1, 1, 1), (2, 1, 1, 2, 0), (3, 3, 1, 1, 1)):
                    if dtype != torch.float64 and (lead == (3,) or kernel == 2):
                        continue
                    case("max_pool", lambda x: max_pools[d](x, kernel, stride, padding, dilation, bool(ceil), return_indices=True),
                         distinct(*sizes, dtype=dtype), (d, kernel, stride, padding, dilation, ceil), ties=dtype == torch.bfloat16)
                for kernel, stride, padding, ceil, include, divisor in ((2, 2, 0, 0, 1, 0), (3, 2, 1, 1, 1, 0), (3, 2, 1, 1, 0, 0), (3, 1, 1, 0, 1, 5),
                                                                        (2, 3, 1, 1, 0, -2)):
                    if divisor and d == 1 or dtype != torch.float64 and (lead == (3,) or kernel == 2 or d == 3):
                        continue
                    extra = (divisor,) if divisor else ()
                    case("avg_pool", lambda x: avg_pools[d](x, kernel, stride, padding, bool(ceil), bool(include), *extra),
                         distinct(*sizes, dtype=dtype), (d, kernel, stride, padding, ceil, include, divisor))
            for output in (1, 3, 4):
                case("adaptive_max_pool", lambda x: adaptive_max[d](x, output, return_indices=True), distinct(*sizes), (d, output))
                case("adaptive_avg_pool", lambda x: adaptive_avg[d](x, output), distinct(*sizes), (d, output))


torch.manual_seed(1)
selections()
scans()
pools()
with open(sys.argv[1], "w") as file:
    file.write(f"# PyTorch {torch.__version__.split('+')[0]}, made by tests/autograd/pytorch_results.py\n" + "\n".join(lines) + "\n")
