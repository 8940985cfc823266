#!/usr/bin/env python3
"""The tables of docs/benchmarks.md are those of bench/results, and wrong data or markers are errors that name the file and the key:
benchmark_tables_test.py ROOT."""
import json
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
problems = []

TABLE = {
    "title": "Products",
    "machine": "a machine",
    "commands": ["tutti bench gemm"],
    "recorded": [],
    "constants": {"peak_gflops": 8},
    "ratios": {"share": {"of": "gflops", "to": "peak_gflops", "digits": 0, "unit": "%"}, "by_peer": {"of": "ours", "to": ["first", "second"], "digits": 2}},
    "columns": [
        {"title": "shape", "key": "shape", "once": True},
        {"title": "steps", "key": "steps", "thousands": True},
        {"title": "time", "cell": "{ours}[, {gflops} GFLOP/s]"},
        {"title": "share", "key": "share", "optional": True},
        {"title": "ratio", "key": "by_peer"},
    ],
    "rows": [
        {"shape": "large", "steps": 4096, "ours_ms": 2.50, "gflops": 6.0, "first_us": 1000, "second_ms": 2},
        {"shape": "large", "steps": 1, "ours_ms": 0.25, "second_ms": 0.12, "by_peer": 2.1},
    ],
}
LINES = ["| shape | steps | time | share | ratio |", "|---|---|---|---|---|", "| large | 4,096 | 2.5 ms, 6.0 GFLOP/s | 75 % | 2.50 |", "| | 1 | 0.25 ms | | 2.1 |"]
PAGE = ["# Speed", "<!-- table: products -->", *LINES, "<!-- end -->", "prose"]


def run(folder, *arguments):
    done = subprocess.run([sys.executable, str(root / "scripts/benchmark_tables.py"), "--root", str(folder), *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(title, status, words, page=PAGE, files=None, arguments=("--check",)):
    """Runs the script over a tree with this page and these files, and returns the page afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "docs").mkdir()
        (folder / "bench/results").mkdir(parents=True)
        (folder / "docs/benchmarks.md").write_text("\n".join(page) + "\n")
        for file, content in ({"products": TABLE} if files is None else files).items():
            (folder / f"bench/results/{file}.json").write_text(content if isinstance(content, str) else json.dumps(content))
        code, said = run(folder, *arguments)
        wrong = [f"exit status {code} instead of {status}"] * (code != status) + [f"no '{word}'" for word in words if word not in said]
        if wrong:
            problems.append(f"{title}: {', '.join(wrong)} in:\n{said}")
        return (folder / "docs/benchmarks.md").read_text().splitlines()


def changed(*path_and_value):
    """The table with another value at a path; without one, its last key is removed."""
    *path, last, value = path_and_value
    table = json.loads(json.dumps(TABLE))
    place = table
    for key in path:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return {"products": table}


expect("agreement", 0, ["1 tables, 0 differ"])
stale = [line.replace("75 %", "74 %") for line in PAGE]
if expect("a table that differs", 1, ["the table 'products' of docs/benchmarks.md differs from bench/results/products.json"], page=stale) != stale:
    problems.append("--check wrote the page")
if expect("rewriting", 0, ["1 rewritten"], page=stale, arguments=()) != PAGE:
    problems.append("the page was not rewritten as it should be")
transposed = expect("transposing", 0, [], files=changed("transpose", True), arguments=())
if transposed[2:5] != ["| shape | large | |", "|---|---|---|", "| steps | 4,096 | 1 |"]:
    problems.append(f"a transposed table is {transposed[2:]}")

file = "bench/results/products.json"
expect("no JSON", 2, [f"{file} is not JSON"], files={"products": "{"})
expect("no object", 2, [f"{file} is not an object"], files={"products": "[]"})
expect("a key that is missing", 2, [f"{file} has no 'machine'"], files=changed("machine", None))
expect("a key that is unknown", 2, [f"{file} has an unknown key 'machines'", "machine"], files=changed("machines", "two"))
expect("rows that are no list", 2, [f"{file}: 'rows' is not a list"], files=changed("rows", {}))
expect("a column without a key", 2, [f"{file}: column 4 'share' has no 'key'"], files=changed("columns", 3, "key", None))
expect("a column that is no object", 2, [f"{file}: column 5 is not an object"], files=changed("columns", 4, "by_peer"))
expect("a commit without a date", 2, [f"{file}: an entry of 'recorded' has no 'date'"], files=changed("recorded", [{"commit": "12345"}]))
expect("a column that no row has", 2, [f"{file}: no row has 'sizes'"], files=changed("columns", 0, "key", "sizes"))
expect("digits that are no number", 2, [f"{file}: column 2 'steps': 'digits' is not a number"], files=changed("columns", 1, "digits", "two"))
expect("a ratio without a divisor", 2, [f"{file}: ratio 'share' has no 'to'"], files=changed("ratios", "share", "to", None))
expect("a ratio of nothing", 2, [f"{file}: no row has 'tflops'"], files=changed("ratios", "share", "of", "tflops"))
expect("a ratio that nothing shows", 2, [f"{file}: no column shows the ratio 'more'"], files=changed("ratios", "more", {"of": "ours", "to": "first", "digits": 1}))
expect("a ratio by zero", 2, [f"{file}: row 1: 'share' divides by 0"], files=changed("constants", "peak_gflops", 0))
expect("a ratio of other numbers", 2, [f"{file}: row 2: 'by_peer' is 3.1, and its numbers make it 1.96 to 2.217"], files=changed("rows", 1, "by_peer", 3.1))
expect("a value that is missing", 2, [f"{file}: row 2 has no 'steps'", "the column 'steps' is not optional"], files=changed("rows", 1, "steps", None))
expect("a value that nothing uses", 2, [f"{file}: row 1 has 'our_ms', which no column and no ratio uses"], files=changed("rows", 0, "our_ms", 2))
expect("a value twice", 2, [f"{file}: row 1 has 'ours_us' and 'ours_ms'"], files=changed("rows", 0, "ours_us", 2))
expect("a value that is a list", 2, [f"{file}: row 1: 'steps' is neither a number nor a text"], files=changed("rows", 0, "steps", [1]))

name = "docs/benchmarks.md"
expect("an unknown marker", 2, [f"{name}:2: the marker names the table 'products', and there is no {file}"], files={})
expect("a file without a marker", 2, [f"bench/results/sums.json: {name} has no marker '<!-- table: sums -->'"], files={"products": TABLE, "sums": TABLE})
expect("a marker twice", 2, [f"{name}:9: the table 'products' has a marker already"], page=PAGE + PAGE[1:])
expect("a table without a marker", 2, [f"{name}:9: a table without a marker"], page=[*PAGE, *LINES])
expect("a table without an end", 2, [f"{name}:7: '<!-- end -->' is missing after the table 'products'"], page=PAGE[:6] + PAGE[7:])
expect("a page without an end", 2, [f"{name}:2: '<!-- end -->' is missing after the table 'products'"], page=PAGE[:6])
expect("an end without a table", 2, [f"{name}:2: '<!-- end -->' ends no table"], page=["# Speed", "<!-- end -->", *PAGE[1:]])

code, said = run(root, "--check")
if code != 0:
    problems.append(said)
print("\n".join(problems) or "all tables agree with their data")
sys.exit(bool(problems))
