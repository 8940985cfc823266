#!/usr/bin/env python3
"""Writes tutti/io/chat_template/letter_case_data.cpp from Python's copy of the Unicode character database.

Run as: scripts/make_letter_case_data.py > tutti/io/chat_template/letter_case_data.cpp
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


def ranges(mapped):
    """Runs of characters 1 or 2 apart that change by the same."""
    runs = []
    for first, change in mapped:
        last = runs[-1] if runs else None
        if last and last[3] == change and first - last[1] in ((1, 2) if last[0] == last[1] else (last[2],)):
            last[2], last[1] = first - last[1], first
        else:
            runs.append([first, first, 1, change])
    return [f"{{0x{a:X}, 0x{b:X}, {step}, {change}}}" for a, b, step, change in runs]


characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
upper = [(c, ord(chr(c).upper()) - c) for c in characters if len(chr(c).upper()) == 1 and chr(c).upper() != chr(c)]
lower = [(c, ord(chr(c).lower()) - c) for c in characters if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
expansions = []
for c in characters:
    text = chr(c).upper()
    if len(text) > 1:
        parts = [f"0x{ord(part):X}" for part in text] + ["0"] * (3 - len(text))
        expansions.append(f"{{0x{c:X}, {{{', '.join(parts)}}}}}")

print(f"""// Made by scripts/make_letter_case_data.py from the Unicode character database {unicodedata.unidata_version}; do not edit.
#include "tutti/io/chat_template/letter_case_data.h"

namespace tutti::jinja {{

// clang-format off
const CaseRange kUppercase[] = {{
{rows(ranges(upper))}
}};

const CaseRange kLowercase[] = {{
{rows(ranges(lower))}
}};

const UpperExpansion kUpperExpansions[] = {{
{rows(expansions)}
}};
// clang-format on
const int64_t kUppercaseCount = std::ssize(kUppercase);
const int64_t kLowercaseCount = std::ssize(kLowercase);
const int64_t kUpperExpansionCount = std::ssize(kUpperExpansions);

}}  // namespace tutti::jinja""")
