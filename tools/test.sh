#!/usr/bin/env bash
# tools/test.sh - build what is needed and run every test; what `make test` does.
#
#   [BUILD=build] [JOBS=N] [CMAKE_ARGS=...] tools/test.sh [REGEX]
#
# REGEX picks tests by name, as ctest -R does.
set -euo pipefail
case ${1-} in
-h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
-*)
    echo "yoke: test: '$1' is no option; give a pattern of tests' names, or nothing for all" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."

build=${BUILD:-build}
jobs=${JOBS:-$(nproc)}

tools/setup build
make --no-print-directory configure BUILD="$build" CMAKE_ARGS="${CMAKE_ARGS-}"
cmake --build "$build" -j "$jobs"
exec ctest --test-dir "$build" --no-tests=error --output-on-failure -j "$jobs" ${1:+-R "$1"}
