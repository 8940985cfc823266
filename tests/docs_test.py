#!/usr/bin/env python3
"""Pages agree with the tree: links lead somewhere, C++ on a page stands in the example that it names, which is compiled and run, and
tests that a table names exist.

A snippet is named by the line before it: <!-- examples/01_fit_a_line.cpp -->
A table whose last columns are `state`, `test` and `command` (docs/coverage.md) says what there is: each row has one of three states, and
one that is not planned names a test and a command that runs it, and one that is planned what the tree would have if it had landed. Other
pages say that something is planned only with a link to that page.
"""
import pathlib
import re
import sys

STATES = ("works", "stand-in", "planned")
TEST_MACRO = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def tables(text):
    """The tables of a page: of each the names of its columns and its rows, a row as a dict."""
    columns, rows = None, []
    for line, following in zip(text.splitlines(), text.splitlines()[1:] + [""]):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            if columns is not None:
                yield columns, rows
            columns, rows = None, []
        elif columns is None and re.match(r"\|[-| :]+$", following):
            columns = cells
        elif columns is not None and not re.match(r"\|[-| :]+$", line):
            rows.append(dict(zip(columns, cells)) if len(cells) == len(columns) else {"": line})
    if columns is not None:
        yield columns, rows


def faults_of_command(command, programs):
    """Examples and verbs in a command that do not exist; `programs` are the names of both."""
    example = re.search(r"build/release/(example_\w+)", command)
    words = re.search(r"build/release/tutti (\w+)(?: (\w+))?", command)
    named = ([example.group(1)] if example else []) + ([words.group(1)] if words else [])
    if words and words.group(1) in ("bench", "checkpoint", "package", "tokenizer", "trace"):
        named.append(words.group(2))
    return [f"{command} starts {name}, which does not exist" for name in named if name not in programs]


def plain(text):
    """Letters and digits of a text: `table_batched` is TableBatched."""
    return text.lower().replace("_", "")


class Landed:
    """What the tree has, by the names that planned rows give: a path, a configuration key with more than one value (`section.key > 1`), or a
    part of a word in headers, the program and the changelog."""

    def __init__(self, root):
        self.root = root
        self.configuration = (root / "docs/config.md").read_text()
        sources = [*(root / "tutti").rglob("*.h"), *(root / "cli").glob("*.cpp"), root / "CHANGELOG.md"]
        self.words = plain("\n".join(source.read_text() for source in sources))

    def has(self, name):
        if "/" in name:
            return (self.root / name).exists()
        key = re.fullmatch(r"\w+\.(\w+) > 1", name)
        if key:
            row = re.search(rf"^\| `{key.group(1)}` .*$", self.configuration, re.M)
            return row is None or "1 in this version" not in row.group()
        return plain(name) in self.words


def faults_of_plan(row, landed):
    """What is wrong with a row whose state is `planned`."""
    title = next(iter(row.values()))
    names = re.findall(r"`([^`]+)`", row["test"])
    if not re.fullmatch(r"without `[^`]+`(, `[^`]+`)*", row["test"]) or row["command"] != "-":
        return [f"'{title}' is planned: its test should be 'without' and what it will bring in backquotes, and its command '-'"]
    return [f"'{title}' is planned, and the tree has {name}" for name in names if landed.has(name)]


def faults_of_row(row, tests, programs, landed):
    """What is wrong with a row that has a column `test`."""
    if "" in row:
        return [f"a row has another number of cells than its table: {row['']}"]
    named = re.findall(r"`(\w+)\.(\w+|\*)`", row["test"])
    faults = [f"there is no test {suite}.{name}" for suite, name in named if name not in tests.get(suite, ()) and (name != "*" or suite not in tests)]
    if "state" not in row:
        return faults
    title = next(iter(row.values()))
    if row["state"] not in STATES:
        faults.append(f"the state of '{title}' is '{row['state']}', expected one of {', '.join(STATES)}")
    elif row["state"] == "planned":
        faults += faults_of_plan(row, landed)
    elif not named:
        faults.append(f"the state of '{title}' is '{row['state']}', and it names no test")
    elif not re.fullmatch(r"`[^`]+`", row["command"]):
        faults.append(f"the state of '{title}' is '{row['state']}', and it has no command")
    else:
        faults += faults_of_command(row["command"], programs)
    pattern = re.search(r"ctest .*-R '([^']+)'", row["command"])
    whole = [f"{suite}.{test}" for suite, name in named for test in tests.get(suite, ()) if name in ("*", test)]
    if pattern and whole and not any(re.search(pattern.group(1), name) for name in whole):
        faults.append(f"'{title}': {row['command']} runs none of its tests")
    return faults


def main(root):
    tests = {}
    for source in sorted((root / "tests").rglob("*.cpp")):
        for suite, name in TEST_MACRO.findall(re.sub(r"//[^\n]*", "", source.read_text())):
            tests.setdefault(suite, set()).add(name)
    programs = {f"example_{source.stem}" for source in (root / "examples").glob("[0-9]*.cpp")}
    for source in (root / "cli").glob("*.cpp"):
        programs.update(re.findall(r'add_subcommand\(\s*"(\w+)"', source.read_text()))
    landed = Landed(root)
    problems = []
    for page in [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md")), *sorted((root / "tests").rglob("*.md"))]:
        text = page.read_text()
        name = page.relative_to(root)
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in target and not (page.parent / target).exists():
                problems.append(f"{name}: the link {target} leads nowhere")
        for source, snippet in re.findall(r"(?:<!-- (\S+) -->\n)?```cpp\n(.*?)```", text, re.S):
            if not source:
                problems.append(f"{name}: a C++ snippet does not say which example it is from")
            elif snippet not in (root / source).read_text():
                problems.append(f"{name}: the snippet from {source} does not stand in it")
        with_tests = [rows for columns, rows in tables(text) if "test" in columns]
        problems += [f"{name}: {fault}" for rows in with_tests for row in rows for fault in faults_of_row(row, tests, programs, landed)]
        if name != pathlib.Path("docs/coverage.md"):
            cells = [cell for _, rows in tables(text) for row in rows for cell in row.values()]
            problems += [f"{name}: the cell '{cell}' should link to the row of coverage.md that is planned" for cell in cells if re.match("Planned(?! and )", cell)]
        elif not with_tests:
            problems.append(f"{name}: no table has a column 'test'")
    print("\n".join(problems) or "all pages agree with the tree")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
