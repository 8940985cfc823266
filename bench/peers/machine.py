"""Which kind of processor a table is from: ratios beside a library differ between kinds, because libraries choose their code by vendor and instruction set."""
import pathlib

CPUINFO = pathlib.Path("/proc/cpuinfo")

# Families of AMD's processors, the model numbers of a generation as ranges; what is not listed is named by its numbers only.
GENERATIONS = {23: [("Zen", 0x00, 0x2f), ("Zen 2", 0x30, 0xff)],
               25: [("Zen 3", 0x00, 0x0f), ("Zen 4", 0x10, 0x1f), ("Zen 3", 0x20, 0x5f), ("Zen 4", 0x60, 0x7f), ("Zen 4", 0xa0, 0xaf)],
               26: [("Zen 5", 0x00, 0x4f), ("Zen 5", 0x60, 0x7f)]}


def processor(text=None):
    """The first processor of /proc/cpuinfo: vendor, family, model and a set of flags; empty where the file has none."""
    if text is None:
        text = CPUINFO.read_text() if CPUINFO.exists() else ""
    fields = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    number = lambda key: int(fields[key]) if fields.get(key, "").isdecimal() else None
    return {"vendor": fields.get("vendor_id", ""), "family": number("cpu family"), "model": number("model"), "flags": set(fields.get("flags", "").split())}


def is_amd(text=None):
    return processor(text)["vendor"] == "AuthenticAMD"


def kind(text=None):
    """Such as "Zen 4 with AVX-512 and bf16 units (AuthenticAMD, family 25, model 17)"."""
    cpu = processor(text)
    if not cpu["vendor"]:
        return "an unknown processor"
    names = {"AuthenticAMD": next((name for name, low, high in GENERATIONS.get(cpu["family"], []) if low <= (cpu["model"] or 0) <= high), "AMD"), "GenuineIntel": "Intel"}
    flags = cpu["flags"]
    if "avx512f" in flags:
        units = [word for flag, word in (("avx512_bf16", "bf16 units"), ("amx_bf16", "AMX")) if flag in flags]
        vectors = ", ".join(["with AVX-512", *units[:-1]]) + (f" and {units[-1]}" if units else ", without bf16 units")
    else:
        vectors = "with AVX2 only" if "avx2" in flags else "without AVX2"
    return f"{names.get(cpu['vendor'], 'a processor')} {vectors} ({cpu['vendor']}, family {cpu['family']}, model {cpu['model']})"
