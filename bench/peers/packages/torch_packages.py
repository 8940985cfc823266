"""The functions of `tutti bench package` as packages of others, for compare.py in this folder.

torch_packages.py make FOLDER NAMES THREADS: writes NAME.THREADS.pt2 (AOTInductor, whose code is for a number of threads; several with commas) and NAME.onnx of each function, as far as this interpreter can, and prints an object with what it wrote.
torch_packages.py {aoti,onnx} FOLDER NAME THREADS: opens one and calls it once; prints an object with its size and the milliseconds from before it was opened to the first result, and then answers each line,
a number of milliseconds, with the times of its calls in microseconds. Loading Python, PyTorch and ONNX Runtime is in none of these times.
"""
import glob
import json
import os
import pathlib
import sys
import time

import numpy

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

SIZES = {"mlp": (8, 64), "block": (1024, 512), "wide": (4, 2048)}


def functions():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 16, bias=False)

        def forward(self, x):
            return self.down(F.gelu(self.up(x)))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            layer = lambda i, o: nn.Linear(i, o, bias=False)
            self.norm1, self.norm2 = nn.Parameter(torch.rand(512)), nn.Parameter(torch.rand(512))
            self.q, self.k, self.v, self.o = (layer(512, 512) for _ in range(4))
            self.gate, self.up, self.down = layer(512, 1536), layer(512, 1536), layer(1536, 512)

        @staticmethod
        def normed(x, weight):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

        def forward(self, x):
            n = self.normed(x, self.norm1)
            heads = lambda y: y.view(4, 256, 8, 64).transpose(1, 2)
            seen = F.scaled_dot_product_attention(heads(self.q(n)), heads(self.k(n)), heads(self.v(n)), is_causal=True)
            h = x + self.o(seen.transpose(1, 2).reshape(1024, 512))
            m = self.normed(h, self.norm2)
            return h + self.down(F.silu(self.gate(m)) * self.up(m))

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2048, 2048, bias=False) for _ in range(12))

        def forward(self, x):
            for layer in self.layers:
                x = F.gelu(layer(x))
            return x

    torch.manual_seed(1)
    return {"mlp": Mlp, "block": Block, "wide": Wide}


def make(folder, names, threads):
    import torch
    made = {"aoti": [], "onnx": []}
    for name, module in functions().items():
        if name not in names:
            continue
        model, x = module().eval(), torch.rand(SIZES[name])
        with torch.no_grad():
            expected = model(x)
            for count in threads:
                compile_aoti(model, (x,), f"{folder}/{name}.{count}.pt2", count, freezing=True)
            numpy.save(f"{folder}/{name}.x.npy", x.numpy())
            numpy.save(f"{folder}/{name}.y.npy", expected.numpy())
            made["aoti"].append(name)
            try:
                torch.onnx.export(model, (x,), f"{folder}/{name}.onnx", dynamo=True, external_data=False)
                made["onnx"].append(name)
            except ImportError as error:
                made["missing"] = str(error)
    from torch_about import about
    print(json.dumps(about(made=made)))


def compile_aoti(model, arguments, path, threads, **settings):
    import torch
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    torch._inductor.aoti_compile_and_package(torch.export.export(model, arguments), package_path=path, inductor_configs=settings)


def answer(call, agrees, about, path, begin):
    """Calls once, tells about itself, and answers; begin: when opening the file began, beside which there may be one of weights."""
    y = call()
    first_ms = (time.perf_counter() - begin) * 1e3
    assert agrees(y), f"{path} has other results"
    print(json.dumps({**about, "bytes": sum(map(os.path.getsize, glob.glob(f"{path}*"))), "first_ms": first_ms}), flush=True)
    for line in sys.stdin:
        us, until = [], time.perf_counter() + float(line) * 1e-3
        while len(us) < 2 or time.perf_counter() < until:
            start = time.perf_counter()
            call()
            us.append((time.perf_counter() - start) * 1e6)
        print(json.dumps({"us": us}), flush=True)


def open_onnx(path, threads):
    """A session, and what to tell about it."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), {"peer": f"ONNX Runtime {onnxruntime.__version__}"}


def aoti_opener(threads):
    """A function that opens a package, and what to tell about it; what it imports takes seconds, which are none of opening a package."""
    import torch
    import torch._inductor.package
    from torch_about import about
    from torch._inductor import cpu_vec_isa
    cpu_vec_isa.pick_vec_isa()  # the first package that is opened imports 0.3 s for this
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch._inductor.aoti_load_package, about(peer="AOTInductor")


def run(which, folder, name, threads):
    x, expected = (numpy.load(f"{folder}/{name}.{what}.npy") for what in ("x", "y"))
    agrees = lambda y: numpy.allclose(y, expected, rtol=1e-3, atol=1e-4)
    if which == "onnx":
        import onnxruntime  # not in the time of the first result
        path, begin = f"{folder}/{name}.onnx", time.perf_counter()
        session, told = open_onnx(path, threads)
        feed = session.get_inputs()[0].name
        return answer(lambda: session.run(None, {feed: x})[0], agrees, told, path, begin)
    import torch
    opened, told = aoti_opener(threads)
    path, tensor, begin = f"{folder}/{name}.{threads}.pt2", torch.from_numpy(x), time.perf_counter()
    package = opened(path)
    answer(lambda: package(tensor), agrees, told, path, begin)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3].split(","), [int(count) for count in sys.argv[4].split(",")])
    else:
        run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
