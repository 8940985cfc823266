#!/usr/bin/env bash
# Formats the C++ sources that git knows as .clang-format says; with --check it only says which are not.
#   scripts/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-19) || { echo "scripts/format.sh: clang-format-19 is missing: apt-get install clang-format-19" >&2; exit 1; }
case "${1:-}" in
  '') options=(-i) ;;
  --check) options=(--dry-run --Werror) ;;
  *) echo "scripts/format.sh: no option $1; the only one is --check" >&2; exit 1 ;;
esac
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' |
  while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
  xargs -0 -n 64 -P "$(nproc)" "$formatter" "${options[@]}"
