#!/usr/bin/env bash
# Builds everything and runs all tests. Arguments go to ctest: ./test.sh -L ops; ./test.sh -L nightly runs the long ones.
#   PRESET=asan ./test.sh     the same under AddressSanitizer and UBSan (tsan: ThreadSanitizer)
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)
cd "$root"
source cmake/packages.sh
tutti_install_packages "$root"
preset=${PRESET:-release}
cmake --preset "$preset" -DTUTTI_BUILD_TESTS=ON -DTUTTI_WERROR="${CI:+ON}" > /dev/null
cmake --build --preset "$preset"
arguments=("$@")
[ $# -eq 0 ] && arguments=(-LE nightly)
exec ctest --preset "$preset" --output-on-failure -j "$(nproc)" "${arguments[@]}"
