"""A published model's two calls (decoder.py) as packages of others, for compare.py in this folder.

torch_decoder.py make FOLDER CALLS THREADS: writes CALL.THREADS.pt2 (AOTInductor) and CALL.onnx of the model in FOLDER/model, as far as this interpreter can, and the cache before each call, and prints an object with what it wrote.
torch_decoder.py {aoti,onnx} FOLDER CALL THREADS: opens one and answers as torch_packages.py does; its logits must be those of Tutti, FOLDER/CALL.logits, to 1e-3, and its cache that of PyTorch.

Each peer runs at the fastest of the settings that were tried on 6 layers of SmolLM2 with one and two threads of a Zen 5. AOTInductor: with and without `freezing`, with and without `max_autotune` over its own products and MKL's, attention as
products or as scaled_dot_product_attention with and without the heads of a group as rows, and projections apart or together; the fastest is `freezing`, heads as rows, projections together, and `max_autotune` for writing, whereas for reading it may choose worse
products than MKL's, so each file is made with and without it, and the faster one counts. ONNX Runtime: plain ops whose new keys
are results, GroupQueryAttention with q, k and v apart and together, norms as one op, sizes of the call fixed and open, prepacking on and off; the fastest is GroupQueryAttention with q, k and v together over a cache that is bound in place, fixed sizes,
prepacking on. Its weights are in a file beside the model, CALL.onnx.data, which is read in half the time.
"""
import json
import os
import pathlib
import sys
import time

import numpy
import torch
import torch._inductor.package

from decoder import CALLS, Grouped, Read, Write, tokens_of
from torch_packages import answer, aoti_opener, compile_aoti, open_onnx

AOTI = {"freezing": {"freezing": True}, "freezing, max_autotune": {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}}


def arguments_of(call, which, vocab, cache):
    first, count = CALLS[call]
    tokens, one = tokens_of(first, count, vocab), lambda value: torch.tensor([value], dtype=torch.int32)
    if which == "onnx":
        return tokens, one(first + count - 1), one(first + count), cache
    return (tokens, cache) if call == "read" else (tokens, torch.tensor([first]), cache)


def make_fastest_aoti(module, arguments, path, threads):
    """Makes the package with each of the settings and keeps the one with the fastest call; returns the name of its settings."""
    times, attempt = {}, f"{path}.attempt.pt2"
    for name, settings in AOTI.items():
        compile_aoti(module, arguments, attempt, threads, **settings)
        package, us, until = torch._inductor.aoti_load_package(attempt), [], time.perf_counter() + 2
        while len(us) < 10 or time.perf_counter() < until:
            start = time.perf_counter()
            package(*arguments)
            us.append(time.perf_counter() - start)
        if all(min(us) < other for other in times.values()):
            os.replace(attempt, path)
            best = name
        times[name] = min(us)
        pathlib.Path(attempt).unlink(missing_ok=True)
    return best


def make(folder, calls, threads):
    made, model = {"aoti": [], "onnx": [], "settings": {}}, f"{folder}/model"
    for call in calls:
        module = {"read": Read, "write": Write}[call](model).eval()
        cache, first = module.new_cache(), CALLS[call][0]
        with torch.no_grad():
            if first > 0:
                Read(model)(tokens_of(0, first, module.vocab), cache)
            numpy.save(f"{folder}/{call}.before.npy", torch.stack(cache).numpy())
            arguments = arguments_of(call, "aoti", module.vocab, cache)
            for count in threads:
                made["settings"][f"{call}, threads: {count}"] = make_fastest_aoti(module, arguments, f"{folder}/{call}.{count}.pt2", count)
            module(*arguments)
            numpy.save(f"{folder}/{call}.after.npy", torch.stack(cache).numpy())
            made["aoti"].append(call)
            del module
            names = ["tokens", "last_key", "keys"] + [f"cache_{i}" for i in range(len(cache))]
            results = ["logits"] + [f"new_{i}" for i in range(len(cache))]
            try:
                grouped = Grouped(model).eval()
                torch.onnx.export(grouped, arguments_of(call, "onnx", grouped.vocab, cache), f"{folder}/{call}.onnx", dynamo=True, external_data=True, input_names=names, output_names=results)
                made["onnx"].append(call)
            except ImportError as error:
                made["missing"] = str(error)
    from torch_about import about
    print(json.dumps(about(made=made)))


def run(which, folder, call, threads):
    expected, after = numpy.fromfile(f"{folder}/{call}.logits", dtype="f4"), numpy.load(f"{folder}/{call}.after.npy")
    cache = [torch.from_numpy(part) for part in numpy.load(f"{folder}/{call}.before.npy")]
    *given, cache = arguments_of(call, which, len(expected), cache)
    if which == "aoti":
        opened, told = aoti_opener(threads)
        path, begin = f"{folder}/{call}.{threads}.pt2", time.perf_counter()
        package = opened(path)
        run_once, cache_now = lambda: package(*given, cache), lambda: torch.stack(cache).numpy()
    else:
        import onnxruntime
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        tensors, caches = [value(tensor.numpy()) for tensor in given], [value(tensor.numpy()) for tensor in cache]
        path, begin = f"{folder}/{call}.onnx", time.perf_counter()
        session, told = open_onnx(path, threads)
        binding = session.io_binding()
        for argument, tensor in zip(session.get_inputs(), tensors + caches):
            binding.bind_ortvalue_input(argument.name, tensor)
        binding.bind_output(session.get_outputs()[0].name)
        for result, tensor in zip(session.get_outputs()[1:], caches):
            binding.bind_ortvalue_output(result.name, tensor)

        def run_once():
            session.run_with_iobinding(binding)
            return binding.get_outputs()[0].numpy()
        cache_now = lambda: numpy.stack([tensor.numpy() for tensor in caches])
    agrees = lambda y: numpy.abs(numpy.asarray(y)[0] - expected).max() < 1e-3 and numpy.abs(cache_now() - after).max() < 1e-3
    answer(run_once, agrees, told, path, begin)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3].split(","), [int(count) for count in sys.argv[4].split(",")])
    else:
        run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
