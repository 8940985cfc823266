#!/usr/bin/env python3
"""Writes the tables of docs/benchmarks.md from bench/results/*.json, whose format bench/results/README.md explains.

benchmark_tables.py [--check] [--root ROOT]: the table of bench/results/NAME.json replaces the lines between <!-- table: NAME --> and the next
<!-- end -->. With --check nothing is written; the exit status is 1 when a table on the page differs from its data, and the first one is named.
Wrong data or markers end with status 2 and a message that names the file and the key.
"""
import argparse
import json
import pathlib
import re
import sys
from decimal import Decimal

PAGE = "docs/benchmarks.md"
RESULTS = "bench/results"
MARKER = re.compile(r"<!-- table: (.+) -->")
END = "<!-- end -->"
FIELD = re.compile(r"\{(\w+)\}")
GROUP = re.compile(r"\[([^\]]*)\]")

# Endings of keys that say a unit, and how the unit is printed.
UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "gbps": "GB/s", "gflops": "GFLOP/s", "mib": "MiB"}
SECONDS = {"ns": Decimal("1e-9"), "us": Decimal("1e-6"), "ms": Decimal("1e-3")}

# The type of each key, and the keys that an entry must have and may have.
TYPES = {
    "a text": (str, "title", "machine", "commit", "date", "key", "cell", "unit"),
    "a number": (Decimal, "digits"),
    "a list": (list, "commands", "recorded", "columns", "rows"),
    "an object": (dict, "constants", "ratios"),
    "true or false": (bool, "transpose", "thousands", "optional", "once"),
    "a name or a list of names": ((str, list), "of", "to"),
}
TABLE_KEYS = {"title", "machine", "commands", "recorded", "columns", "rows"}, {"constants", "ratios", "transpose"}
RECORD_KEYS = {"commit", "date"}, set()
KEY_COLUMN_KEYS = {"title", "key"}, {"unit", "digits", "thousands", "optional", "once"}
CELL_COLUMN_KEYS = {"title", "cell"}, {"optional", "once"}
RATIO_KEYS = {"of", "to", "digits"}, {"unit"}


class Fault(Exception):
    """What is wrong with a file of results, or with the markers of the page."""


def check_keys(where, entry, keys):
    required, optional = keys
    if not isinstance(entry, dict):
        raise Fault(f"{where} is not an object")
    for key in sorted(required - entry.keys()):
        raise Fault(f"{where} has no '{key}'")
    for key in sorted(entry.keys() - required - optional):
        raise Fault(f"{where} has an unknown key '{key}'; expected {', '.join(sorted(required | optional))}")
    for words, (kind, *names) in TYPES.items():
        for key in names:
            if key in entry and not isinstance(entry[key], kind):
                raise Fault(f"{where}: '{key}' is not {words}")


def as_list(value):
    return value if isinstance(value, list) else [value]


def fields_of(column):
    """The keys of the values that a column shows."""
    return [column["key"]] if "key" in column else FIELD.findall(column["cell"])


def value_keys(name):
    """A value is stored under its name, or under its name followed by a unit."""
    return [name, *(f"{name}_{unit}" for unit in UNITS)]


def check_values(where, rows, needed, known):
    """Some row has each value that is needed, and no row has one that nothing uses; `rows` are pairs of a place and its values."""
    for place, values in rows:
        if not isinstance(values, dict):
            raise Fault(f"{place} is not an object")
    present = {key for _, values in rows for key in values}
    for name in needed:
        if present.isdisjoint(value_keys(name)):
            raise Fault(f"{where}: no row has '{name}', which a column or a ratio uses")
    known = {key for name in known for key in value_keys(name)}
    for place, values in rows:
        for key, value in values.items():
            if key not in known:
                raise Fault(f"{place} has '{key}', which no column and no ratio uses")
            if not isinstance(value, (str, Decimal)):
                raise Fault(f"{place}: '{key}' is neither a number nor a text")


def check_table(where, table):
    """The columns and ratios name values that rows have, and rows have no others."""
    check_keys(where, table, TABLE_KEYS)
    for entry in table["recorded"]:
        check_keys(f"{where}: an entry of 'recorded'", entry, RECORD_KEYS)
    for number, column in enumerate(table["columns"], 1):
        name = column.get("title") if isinstance(column, dict) else None
        check_keys(f"{where}: column {number}" + (f" '{name}'" if name else ""), column, CELL_COLUMN_KEYS if "cell" in column else KEY_COLUMN_KEYS)
    ratios = table.get("ratios", {})
    for name, rule in ratios.items():
        check_keys(f"{where}: ratio '{name}'", rule, RATIO_KEYS)
    shown = [name for column in table["columns"] for name in fields_of(column)]
    terms = [name for rule in ratios.values() for name in as_list(rule["of"]) + as_list(rule["to"])]
    rows = [(f"{where}: constants", table.get("constants", {})), *((f"{where}: row {number}", row) for number, row in enumerate(table["rows"], 1))]
    check_values(where, rows, [name for name in shown + terms if name not in ratios], shown + terms)
    for name in sorted(ratios.keys() - set(shown)):
        raise Fault(f"{where}: no column shows the ratio '{name}'")


def load(path, root):
    """The table of a file, checked, its numbers as they are written there."""
    where = path.relative_to(root)
    try:
        table = json.loads(path.read_text(), parse_float=Decimal, parse_int=Decimal)
    except json.JSONDecodeError as error:
        raise Fault(f"{where} is not JSON: {error}") from None
    check_table(where, table)
    return table


def rounding(number):
    """Half a unit of the last digit that a number is written with."""
    return Decimal((0, (5,), number.as_tuple().exponent - 1))


class Row:
    """The values of one row; what it lacks may be a constant of the table."""

    def __init__(self, where, values, table):
        self.where, self.values = where, {**table.get("constants", {}), **values}
        self.ratios = table.get("ratios", {})

    def find(self, name):
        """The key of a value, or None."""
        keys = [key for key in value_keys(name) if key in self.values]
        if len(keys) > 1:
            raise Fault(f"{self.where} has '{keys[0]}' and '{keys[1]}'; one of them is too many")
        return keys[0] if keys else None

    def term(self, names):
        """The least of the numbers with these names and its rounding, times in seconds; None where there is none."""
        numbers = []
        for key in filter(None, map(self.find, as_list(names))):
            scale = SECONDS.get(key.rsplit("_", 1)[-1], 1)
            if isinstance(self.values[key], Decimal):
                numbers.append((self.values[key] * scale, rounding(self.values[key]) * scale))
        return min(numbers, default=None)

    def ratio(self, name):
        """A ratio as the row has it, else computed; None where a number is missing. One that the row has must agree with its numbers."""
        rule, stored = self.ratios[name], self.values.get(name)
        of, to = self.term(rule["of"]), self.term(rule["to"])
        if isinstance(stored, str) or of is None or to is None:
            return stored
        if to[0] <= to[1]:
            raise Fault(f"{self.where}: '{name}' divides by {to[0]}")
        scale = 100 if rule.get("unit") == "%" else 1
        if stored is None:
            return round(scale * of[0] / to[0], int(rule["digits"]))
        low, high = scale * (of[0] - of[1]) / (to[0] + to[1]), scale * (of[0] + of[1]) / (to[0] - to[1])
        if not low - rounding(stored) <= stored <= high + rounding(stored):
            raise Fault(f"{self.where}: '{name}' is {stored}, and its numbers make it {low:.4g} to {high:.4g}")
        return stored

    def text(self, name, column):
        """A value with its unit, or None where the row lacks it. Numbers have the digits of the column, else those of the file."""
        key = self.find(name)
        if name in self.ratios:
            value, unit = self.ratio(name), self.ratios[name].get("unit")
        else:
            value, unit = self.values.get(key), UNITS[key.removeprefix(f"{name}_")] if key not in (None, name) else column.get("unit")
        if value is None or isinstance(value, str):
            return value
        if "digits" in column:
            value = round(value, int(column["digits"]))
        return format(value, ",f" if column.get("thousands") else "f") + (f" {unit}" if unit else "")

    def cell(self, column):
        """A cell: `[...]` in its text is left out where a value in it is missing, and an optional cell is empty where another is missing."""
        def fill(text):
            texts = {name: self.text(name, column) for name in FIELD.findall(text)}
            missing = next((name for name, value in texts.items() if value is None), None)
            return (missing, "") if missing else (None, FIELD.sub(lambda match: texts[match[1]], text))

        text = GROUP.sub(lambda match: fill(match[1])[1], column["cell"]) if "cell" in column else "{%s}" % column["key"]
        missing, text = fill(text)
        if missing and not column.get("optional"):
            raise Fault(f"{self.where} has no '{missing}'; the column '{column['title']}' is not optional")
        return text


def without_repeats(columns, rows):
    """Cells of columns with `once` are blank where they and all such cells to their left are as in the row above."""
    above = None
    for row in rows:
        same, blank = True, list(row)
        for i, column in enumerate(columns):
            same = same and (not column.get("once") or (above is not None and row[i] == above[i]))
            if column.get("once") and same:
                blank[i] = ""
        above = row
        yield blank


def line_of(cells):
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def render(where, table):
    """The lines of a table in Markdown."""
    columns = table["columns"]
    rows = [[Row(f"{where}: row {number}", row, table).cell(column) for column in columns] for number, row in enumerate(table["rows"], 1)]
    lines = [[column["title"] for column in columns], *without_repeats(columns, rows)]
    if table.get("transpose"):
        lines = list(zip(*lines))
    return [line_of(lines[0]), "|" + "---|" * len(lines[0]), *map(line_of, lines[1:])]


def rewrite(page, tables):
    """The lines of the page with the tables of the data, and the names of those that differed."""
    lines, differing, seen = [], [], set()
    name, begin = None, 0
    for number, line in enumerate(page, 1):
        marker = MARKER.fullmatch(line)
        if name is None and marker:
            name, begin = marker[1], number
            if name not in tables:
                raise Fault(f"{PAGE}:{number}: the marker names the table '{name}', and there is no {RESULTS}/{name}.json")
            if name in seen:
                raise Fault(f"{PAGE}:{number}: the table '{name}' has a marker already")
            seen.add(name)
            lines += [line, *tables[name]]
        elif name is None:
            if line.startswith("|"):
                raise Fault(f"{PAGE}:{number}: a table without a marker; put its data into {RESULTS}/NAME.json")
            if line == END:
                raise Fault(f"{PAGE}:{number}: '{END}' ends no table")
            lines.append(line)
        elif line == END:
            if page[begin:number - 1] != tables[name]:
                differing.append(name)
            lines.append(line)
            name = None
        elif not line.startswith("|"):
            raise Fault(f"{PAGE}:{number}: '{END}' is missing after the table '{name}'")
    if name is not None:
        raise Fault(f"{PAGE}:{begin}: '{END}' is missing after the table '{name}'")
    for unused in sorted(tables.keys() - seen):
        raise Fault(f"{RESULTS}/{unused}.json: {PAGE} has no marker '<!-- table: {unused} -->'")
    return lines, differing


def main():
    flags = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    flags.add_argument("--check", action="store_true", help="write nothing; fail when a table differs from its data")
    flags.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1], help="the root of the tree")
    args = flags.parse_args()
    page = args.root / PAGE
    try:
        tables = {path.stem: render(path.relative_to(args.root), load(path, args.root)) for path in sorted((args.root / RESULTS).glob("*.json"))}
        lines, differing = rewrite(page.read_text().splitlines(), tables)
    except Fault as fault:
        print(f"benchmark_tables.py: {fault}", file=sys.stderr)
        return 2
    if args.check and differing:
        print(f"benchmark_tables.py: the table '{differing[0]}' of {PAGE} differs from {RESULTS}/{differing[0]}.json; run scripts/benchmark_tables.py", file=sys.stderr)
        return 1
    if not args.check:
        page.write_text("\n".join(lines) + "\n")
    print(f"{len(tables)} tables, {len(differing)} {'differ' if args.check else 'rewritten'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
