#!/usr/bin/env python3
"""Links between the pages lead somewhere, and C++ on a page stands in the example that it names, which is compiled and run.

A snippet is named by the line before it: <!-- examples/01_fit_a_line.cpp -->
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
problems = []
for page in [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "tests").rglob("*.md"))]:
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
print("\n".join(problems) or "all pages agree with the tree")
sys.exit(bool(problems))
