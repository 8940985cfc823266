#!/usr/bin/env bash
# Installs BUILD_DIR into a temporary prefix, builds EXAMPLE against it with find_package(Tutti) and runs it.
set -euo pipefail
build=$1 example=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix/root" > "$prefix/install.log"
cmake -S "$example" -B "$prefix/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix/root" > "$prefix/configure.log"
cmake --build "$prefix/build" > "$prefix/build.log" || { cat "$prefix/build.log"; exit 1; }
"$prefix/build/example"
