#!/usr/bin/env python3
"""Replaces the rows of bench/results/NAME.json by those of a Markdown table, such as the comparisons in bench/peers print.

benchmark_rows.py NAME FILE [--root ROOT]: takes the first table of FILE that has the columns of NAME. Ratios that follow from the other numbers
are not stored. Run scripts/benchmark_tables.py afterwards; title, machine, commands, recorded and constants are left to be edited.
"""
import argparse
import json
import pathlib
import re
import sys
from decimal import Decimal

from benchmark_tables import FIELD, RESULTS, UNITS, Fault, Row, check_table, load, render

NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
ENDINGS = {printed: ending for ending, printed in UNITS.items()}
UNIT = "|".join(map(re.escape, ENDINGS))
QUANTITY = re.compile(f"({NUMBER})(?: ({UNIT}))?")


def markdown_tables(text):
    """The tables of a text as lists of lists of cells, without the line below the titles."""
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines()]
        yield [lines[0], *lines[2:]]


def pattern_of(cell, ratios):
    """The regular expression of a cell with several values."""
    def expression(token):
        if token in ("[", "]"):
            return "(?:" if token == "[" else ")?"
        field = FIELD.fullmatch(token)
        if not field:
            return re.escape(token)
        unit = ratios.get(field[1], {}).get("unit")
        return f"(?P<{field[1]}>{NUMBER} {re.escape(unit)})" if unit else f"(?P<{field[1]}>{NUMBER}(?: (?:{UNIT}))?)"

    return re.compile("".join(map(expression, re.split(r"(\[|\]|\{\w+\})", cell))))


def stored(name, text, unit):
    """The key and the JSON of a value: numbers with the digits they are printed with."""
    quantity = QUANTITY.fullmatch(text.removesuffix(f" {unit}"))
    if not quantity:
        return name, json.dumps(text, ensure_ascii=False)
    return name + (f"_{ENDINGS[quantity[2]]}" if quantity[2] else ""), quantity[1].replace(",", "")


def row_of(where, cells, table):
    """The values of a row, key -> JSON."""
    ratios, row = table.get("ratios", {}), {}
    for column, text in zip(table["columns"], cells):
        if "key" in column:
            texts = {column["key"]: text}
        else:
            match = pattern_of(column["cell"], ratios).fullmatch(text)
            if text and not match:
                raise Fault(f"{where}: '{text}' in the column '{column['title']}' is not of the form '{column['cell']}'")
            texts = match.groupdict() if text else {}
        row.update(stored(name, value, ratios.get(name, column).get("unit")) for name, value in texts.items() if value)
    values = json.loads("{%s}" % ", ".join(f"{json.dumps(key)}: {value}" for key, value in row.items()), parse_float=Decimal, parse_int=Decimal)
    for name in ratios:
        computed = Row(where, {key: value for key, value in values.items() if key not in ratios}, table).ratio(name)
        if name in row and computed is not None and str(computed) == row[name]:
            del row[name]
    return row


def rows_of(name, text, table):
    """The rows of the first table in a text that has the columns of `table`."""
    titles = [column["title"] for column in table["columns"]]
    for lines in markdown_tables(text):
        if table.get("transpose"):
            lines = list(zip(*lines))
        if list(lines[0]) != titles:
            continue
        filled = []
        for number, cells in enumerate(lines[1:], 1):
            if len(cells) != len(titles):
                raise Fault(f"{name}: row {number} has {len(cells)} cells, expected {len(titles)}")
            above = filled[-1] if filled else cells
            filled.append([above[i] if column.get("once") and not cells[i] else cells[i] for i, column in enumerate(table["columns"])])
        return [row_of(f"{name}: row {number}", cells, table) for number, cells in enumerate(filled, 1)]
    raise Fault(f"no table has the columns of '{name}': {', '.join(titles)}")


def replaced(text, rows):
    """The text of a file of results with other rows, one per line."""
    lines = ",\n".join("    {" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in row.items()) + "}" for row in rows)
    head, _, _ = text.partition('  "rows": [')
    return f'{head}  "rows": [\n{lines}\n  ]\n}}\n'


def main():
    flags = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    flags.add_argument("name", help="a table of docs/benchmarks.md")
    flags.add_argument("file", type=pathlib.Path, help="a text with a Markdown table")
    flags.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1], help="the root of the tree")
    args = flags.parse_args()
    path = args.root / RESULTS / f"{args.name}.json"
    try:
        if not path.exists():
            raise Fault(f"there is no {RESULTS}/{args.name}.json")
        text = replaced(path.read_text(), rows_of(args.name, args.file.read_text(), load(path, args.root)))
        table = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        check_table(args.name, table)
        render(args.name, table)
    except Fault as fault:
        print(f"benchmark_rows.py: {fault}", file=sys.stderr)
        return 2
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
