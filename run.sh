#!/usr/bin/env bash
# Builds the program and trains the quickstart: a small Qwen3 on English text, over several local ranks.
#   ./run.sh                        train on the dictionary that Debian ships (dict-gcide)
#   ./run.sh --data PATH...         train on your own text
#   ./run.sh --fresh, --section.key=value, ...   anything `tutti train` takes
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)
cd "$root"
source cmake/packages.sh
tutti_install_packages "$root"
cmake --preset release -DTUTTI_BUILD_TESTS=OFF > /dev/null
cmake --build --preset release --target tutti_program
ranks=$(nproc)
[ "$ranks" -ge 4 ] && ranks=4
[ "$ranks" -eq 3 ] && ranks=2
exec build/release/tutti train configs/quickstart.toml -n "${TUTTI_RANKS:-$ranks}" "$@"
