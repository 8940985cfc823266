#!/usr/bin/env python3
"""Writes tutti/io/bert_data.cpp: the classes of characters that the normalizer of BERT's tokenizers goes by.

Run as: scripts/make_bert_data.py > tutti/io/bert_data.cpp

The tables are those of the package tokenizers (pip install tokenizers), asked for each character: its marks and
punctuation are of an older version of Unicode than its lower case, and ids must agree with it.
"""
import tokenizers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

NOTHING = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
clean = BertNormalizer(**{**NOTHING, "clean_text": True})
accents = BertNormalizer(**{**NOTHING, "strip_accents": True})
lower = BertNormalizer(**{**NOTHING, "lowercase": True})
words = BertPreTokenizer()


def rows(entries):
    lines, line = [], " "
    for entry in entries:
        if len(line) + len(entry) + 2 > 118:
            lines.append(line)
            line = " "
        line += f" {entry},"
    return "\n".join(lines + [line])


def ranges(members):
    found = []
    for c in members:
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return [f"{{0x{a:X}, 0x{b:X}}}" for a, b in found]


def lower_ranges(pairs):
    """[first, last, step, change] of runs with the same distance between neighbours and to their lower case."""
    found = []
    for c, small in pairs:
        if found:
            first, last, step, change = found[-1]
            if change == small - c and c - last in (1, 2) and (first == last or c - last == step):
                found[-1] = [first, c, c - last, change]
                continue
        found.append([c, c, 1, small - c])
    return [f"{{0x{a:X}, 0x{b:X}, {step}, {change}}}" for a, b, step, change in found]


characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
removed = [c for c in characters if clean.normalize_str(chr(c)) == ""]
marks = [c for c in characters if accents.normalize_str(chr(c)) == ""]
punctuation = [c for c in characters if len(words.pre_tokenize_str(f"a{chr(c)}a")) == 3]
pairs, expanded = [], []
for c in characters:
    small = lower.normalize_str(chr(c))
    if len(small) > 1:
        expanded.append((c, small))
    elif small != chr(c):
        pairs.append((c, ord(small)))
# The only one, for which the normalizer has a line.
assert expanded == [(0x130, "i\u0307")], expanded

tables = {
    "CharacterRange kBertRemoved": ranges(removed),
    "CharacterRange kBertMarks": ranges(marks),
    "CharacterRange kBertPunctuation": ranges(punctuation),
    "LowercaseRange kLowercase": lower_ranges(pairs),
}
print(f"""// Made by scripts/make_bert_data.py from the package tokenizers {tokenizers.__version__}; do not edit.
#include "tutti/io/bert_data.h"

namespace tutti::io {{

// clang-format off""")
for name, entries in tables.items():
    print(f"const {name}[] = {{\n{rows(entries)}\n}};\nconst int64_t {name.split()[1]}Count = {len(entries)};\n")
print("""// clang-format on

}  // namespace tutti::io""")
