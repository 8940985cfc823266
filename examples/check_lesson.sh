#!/usr/bin/env bash
# Runs PROGRAM and compares its last line with the one that SOURCE states.
set -euo pipefail
program=$1 source=$2
expected=$(sed -n 's|^// Last line of output: ||p' "$source")
[ -n "$expected" ] || { echo "$source does not say '// Last line of output: ...'"; exit 1; }
output=$("$program")
echo "$output"
last=${output##*$'\n'}
[ "$last" = "$expected" ] || { echo "expected last line: $expected"; exit 1; }
