"""What a PyTorch tells about itself: its version and those of the libraries in it, and whether MKL was told the truth about the processor (programs.py)."""
import ctypes
import re

import torch


def mkl_is_told():
    """Preloaded symbols are those of the whole process; the ones of torch's own libraries are not visible there."""
    try:
        return ctypes.CDLL(None).mkl_serv_intel_cpu_true() == 1
    except AttributeError:
        return False


def about(**more):
    config = torch.__config__.show()
    version = lambda pattern: next(iter(re.findall(pattern, config)), "of an unknown version")
    return {"version": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability(), "mkl": version(r"Math Kernel Library Version (\S+?)-"), "onednn": version(r"MKL-DNN v(\S+)"),
            "mkl_told": mkl_is_told(), **more}
