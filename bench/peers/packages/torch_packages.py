"""The functions of `tutti bench package` as packages of others, for compare.py in this folder.

torch_packages.py make FOLDER THREADS: writes NAME.pt2 (AOTInductor) and NAME.onnx of each function, as far as this interpreter can, and prints an object with what it wrote.
torch_packages.py {aoti,onnx} FOLDER NAME THREADS: opens one and calls it once; prints an object with its size and the milliseconds from before it was opened to the first result, and then answers each line,
a number of milliseconds, with the times of its calls in microseconds. Loading Python, PyTorch and ONNX Runtime is in none of these times.
"""
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


def make(folder, threads):
    import torch
    torch.set_num_threads(threads)
    made = {"aoti": [], "onnx": []}
    for name, module in functions().items():
        model, x = module().eval(), torch.rand(SIZES[name])
        with torch.no_grad():
            expected = model(x)
            exported = torch.export.export(model, (x,))
            torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/{name}.pt2", inductor_configs={"freezing": True})
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


def answer(call, x, expected, about, path, begin):
    y = call(x)
    first_ms = (time.perf_counter() - begin) * 1e3
    assert numpy.allclose(y, expected, rtol=1e-3, atol=1e-4), f"{path} has other results"
    print(json.dumps({**about, "bytes": os.path.getsize(path), "first_ms": first_ms}), flush=True)
    for line in sys.stdin:
        us, until = [], time.perf_counter() + float(line) * 1e-3
        while len(us) < 2 or time.perf_counter() < until:
            start = time.perf_counter()
            call(x)
            us.append((time.perf_counter() - start) * 1e6)
        print(json.dumps({"us": us}), flush=True)


def run(which, folder, name, threads):
    x, expected = (numpy.load(f"{folder}/{name}.{what}.npy") for what in ("x", "y"))
    if which == "onnx":
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        path, begin = f"{folder}/{name}.onnx", time.perf_counter()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feed = session.get_inputs()[0].name
        return answer(lambda v: session.run(None, {feed: v})[0], x, expected, {"peer": f"ONNX Runtime {onnxruntime.__version__}"}, path, begin)
    import torch
    import torch._inductor.package  # takes seconds, which are none of opening a package
    from torch_about import about
    torch.set_num_threads(threads)
    path, begin = f"{folder}/{name}.pt2", time.perf_counter()
    package = torch._inductor.aoti_load_package(path)
    told = about(peer=f"AOTInductor of PyTorch {torch.__version__}")
    tensor = torch.from_numpy(x)
    with torch.no_grad():
        answer(package, tensor, expected, told, path, begin)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
    else:
        run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
