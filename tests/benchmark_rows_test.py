#!/usr/bin/env python3
"""Rows read from a Markdown table give that table again, and a table that does not fit is an error: benchmark_rows_test.py ROOT."""
import json
import pathlib
import subprocess
import sys
import tempfile
from decimal import Decimal

root = pathlib.Path(sys.argv[1]).resolve()
sys.path.append(str(root / "scripts"))
from benchmark_rows import replaced, rows_of  # noqa: E402
from benchmark_tables import RESULTS, load, render  # noqa: E402

problems = []


def numbers_of(text):
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def has_text_for_a_ratio(table):
    return any(isinstance(row.get(name), str) for row in table["rows"] for name in table.get("ratios", {}))


for path in sorted((root / RESULTS).glob("*.json")):
    table, text = load(path, root), path.read_text()
    if has_text_for_a_ratio(table):
        continue
    lines = render(path.stem, table)
    rows = rows_of(path.stem, "\n".join(lines), table)
    if render(path.stem, numbers_of(replaced(text, rows))) != lines:
        problems.append(f"the rows read from the table '{path.stem}' give another table")
    if replaced(text, rows).partition('  "rows"')[0] != text.partition('  "rows"')[0]:
        problems.append(f"reading rows of '{path.stem}' changes more than rows")

TABLE = """{
  "title": "Products", "machine": "a machine", "commands": [], "recorded": [],
  "ratios": {"by_peer": {"of": "ours", "to": ["first", "second"], "digits": 2}},
  "columns": [
    {"title": "shape", "key": "shape", "once": true},
    {"title": "time", "cell": "{ours}[, {gflops} GFLOP/s]"},
    {"title": "first", "key": "first", "optional": true},
    {"title": "second", "key": "second", "optional": true},
    {"title": "ratio", "key": "by_peer"}
  ],
  "rows": [
    {"shape": "small", "ours_ms": 1, "gflops": 3, "first_ms": 1, "second_ms": 1}
  ]
}
"""
HEAD = "prose\n\n| other |\n|---|\n| 1 |\n\n| shape | time | first | second | ratio |\n|---|---|---|---|---|\n"
ROWS = """    {"shape": "large", "ours_ms": 2.50, "gflops": 6.0, "first_us": 1000, "second_ms": 2},
    {"shape": "large", "ours_us": 25, "second_us": 12, "by_peer": 2.1}
"""


def expect(title, status, word, lines, rows=None, name="products"):
    """Reads lines into the table; rows are what the file has afterwards, and without them it is left as it was."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / RESULTS / "products.json"
        file.parent.mkdir(parents=True)
        file.write_text(TABLE)
        (file.parent / "lines").write_text(lines)
        done = subprocess.run([sys.executable, str(root / "scripts/benchmark_rows.py"), name, str(file.parent / "lines"), "--root", folder], capture_output=True, text=True)
        said, found = done.stdout + done.stderr, file.read_text()
    if done.returncode != status or word not in said or found != (TABLE if rows is None else TABLE[:TABLE.index("    {\"shape\"")] + rows + "  ]\n}\n"):
        problems.append(f"{title}: exit status {done.returncode}, it said '{said}' and left:\n{found}")


expect("a ratio is stored where its rounded terms give another one", 0, "", HEAD + "| large | 2.50 ms, 6.0 GFLOP/s | 1000 us | 2 ms | 2.50 |\n| | 25 us | | 12 us | 2.1 |\n", ROWS)
expect("other columns", 2, "no table has the columns of 'products': shape, time, first, second, ratio", HEAD.replace("time", "times"))
expect("an unknown table", 2, "there is no bench/results/sums.json", HEAD, name="sums")
expect("a cell of another form", 2, "products: row 1: '2 to 3 ms' in the column 'time' is not of the form '{ours}", HEAD + "| large | 2 to 3 ms | 1 ms | | 2.5 |\n")
expect("a ratio of other numbers", 2, "products: row 1: 'by_peer' is 3.5, and its numbers make it", HEAD + "| large | 2.50 ms, 1 GFLOP/s | 1000 us | 2 ms | 3.5 |\n")
expect("too few cells", 2, "products: row 1 has 2 cells, expected 5", HEAD + "| large | 2.50 ms |\n")
print("\n".join(problems) or "all rows agree with their tables")
sys.exit(bool(problems))
