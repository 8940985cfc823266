"""Runs a package from Python through ctypes alone: run_package.py LIBRARY FILE, where LIBRARY is libtutti_runtime.so.

Declared sizes have their least value, and element i of an argument, of f32, is (i % 7 - 3) / 4. Prints as run_package.c does.
"""
import ctypes as c
import math
import sys


def struct(name, **fields):
    return type(name, (c.Structure,), {"_fields_": list(fields.items())})


def call(name, *arguments):
    if getattr(library, name)(*arguments) != 0:
        error = library.tutti_last_error().contents
        sys.exit(f"{name}: error {error.code}: {error.text.decode()}")


def give_memory(tensor, values):
    memory = (c.c_float * max(len(values), 1))(*values)
    tensor.data = c.addressof(memory)
    return memory


# These are the beginnings of the structs in tutti_runtime.h: the library fills in what struct_size says.
Error = struct("Error", code=c.c_int, text=c.c_char_p)
Tensor = struct("Tensor", data=c.c_void_p, dtype=c.c_int, ndim=c.c_int32, sizes=c.c_int64 * 8)
Info = struct("Info", struct_size=c.c_size_t, function=c.c_char_p, made_by=c.c_char_p, inputs=c.c_int32, outputs=c.c_int32, combinations=c.c_int64)
Input = struct("Input", struct_size=c.c_size_t, dtype=c.c_int, ndim=c.c_int32, least=c.c_int64 * 8)
library = c.CDLL(sys.argv[1])
library.tutti_last_error.restype = c.POINTER(Error)

package, about = c.c_void_p(), Info(c.sizeof(Info))
call("tutti_package_open", sys.argv[2].encode(), None, c.byref(package))
call("tutti_package_describe", package, c.byref(about))
print(f"{about.function.decode()}, made by Tutti {about.made_by.decode()}: {about.inputs} inputs, {about.outputs} outputs, {about.combinations} combinations of sizes")
inputs, outputs, memory = (Tensor * about.inputs)(), (Tensor * about.outputs)(), []
for i, tensor in enumerate(inputs):
    declared = Input(c.sizeof(Input))
    call("tutti_package_input", package, i, c.byref(declared))
    tensor.dtype, tensor.ndim, tensor.sizes = declared.dtype, declared.ndim, declared.least
    memory.append(give_memory(tensor, [(k % 7 - 3) / 4 for k in range(math.prod(tensor.sizes[:tensor.ndim]))]))
call("tutti_package_outputs", package, inputs, len(inputs), outputs, len(outputs))
memory += [give_memory(tensor, [0.0] * math.prod(tensor.sizes[:tensor.ndim])) for tensor in outputs]
call("tutti_package_run", package, inputs, len(inputs), outputs, len(outputs))
for k, tensor in enumerate(outputs):
    digest = 14695981039346656037
    for byte in bytes(memory[len(inputs) + k]):
        digest = (digest ^ byte) * 1099511628211 % 2**64
    print(f"result {k}:", *tensor.sizes[:tensor.ndim], f"hash {digest:016x}")
library.tutti_package_close(package)
