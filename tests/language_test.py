"""Comments are whole English sentences: fragments and idioms that readers stumbled over do not come back.

Comments of the folders below must not begin with "Of ...", "That of ..." or "Those of ...", which have no main verb, and neither
they nor the pages may use an expression of PHRASES; each stands beside what to write instead.
"""
import pathlib
import re
import sys

FOLDERS = ("tutti", "bench", "cli")
FRAGMENT = re.compile(r"^\s*// (Of|That of|Those of) ")
PHRASES = {
    r"\bwhere (it|they) (lies|lie)\b": "in place",
    r"\bfrom cheap to dear\b": "from cheapest to most expensive",
    r"\bnothing dear\b": "only what is nearly free",
    r"\bstands? down\b": "is transposed",
    r"\bmended\b": "fixed",
    r"\bNaN a NaN is\b": "NaN payloads are unspecified",
}


def faults_of(path, name):
    is_source = path.suffix in (".h", ".cpp")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if is_source and FRAGMENT.match(line):
            yield f"{name}:{number}: a comment without a main verb: {line.strip()}"
        text = line.partition("//")[2] if is_source else line
        for phrase, instead in PHRASES.items():
            if re.search(phrase, text):
                yield f"{name}:{number}: write '{instead}' instead of '{re.search(phrase, text).group(0)}'"


def main(root):
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cpp")]
    files += [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    faults = [fault for path in files for fault in faults_of(path, path.relative_to(root))]
    print("\n".join(faults) or f"{len(files)} files, no faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
