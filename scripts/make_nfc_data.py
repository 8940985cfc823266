#!/usr/bin/env python3
"""Writes tutti/io/nfc_data.cpp from Python's copy of the Unicode character database.

Run as: scripts/make_nfc_data.py > tutti/io/nfc_data.cpp
"""
import unicodedata


def rows(entries):
    lines, line = [], " "
    for entry in entries:
        if len(line) + len(entry) + 2 > 118:
            lines.append(line)
            line = " "
        line += f" {entry},"
    return "\n".join(lines + [line])


characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
decompositions, excluded = [], []
for c in characters:
    text = unicodedata.decomposition(chr(c))
    if not text or text.startswith("<"):
        continue
    parts = [int(part, 16) for part in text.split()]
    decompositions.append(f"{{0x{c:X}, 0x{parts[0]:X}, {hex(parts[1]).upper().replace('X', 'x') if len(parts) > 1 else 0}}}")
    if len(parts) == 2 and unicodedata.normalize("NFC", "".join(map(chr, parts))) != chr(c):
        excluded.append(f"0x{c:X}")

classes = []
for c in characters:
    value = unicodedata.combining(chr(c))
    if not value:
        continue
    if classes and classes[-1][1] == c - 1 and classes[-1][2] == value:
        classes[-1][1] = c
    else:
        classes.append([c, c, value])

print(f"""// Made by scripts/make_nfc_data.py from the Unicode character database {unicodedata.unidata_version}; do not edit.
#include "tutti/io/nfc_data.h"

namespace tutti::io {{

const char* const kNfcUnicodeVersion = "{unicodedata.unidata_version}";

// clang-format off
const CanonicalDecomposition kCanonicalDecompositions[] = {{
{rows(decompositions)}
}};
const int64_t kCanonicalDecompositionCount = {len(decompositions)};

const uint32_t kCompositionExclusions[] = {{
{rows(excluded)}
}};
const int64_t kCompositionExclusionCount = {len(excluded)};

const CombiningClassRange kCombiningClasses[] = {{
{rows(f"{{0x{a:X}, 0x{b:X}, {value}}}" for a, b, value in classes)}
}};
const int64_t kCombiningClassCount = {len(classes)};
// clang-format on

}}  // namespace tutti::io""")
