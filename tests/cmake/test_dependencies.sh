#!/usr/bin/env bash
# tests/cmake/test_dependencies.sh - what is missing is named with its package, all at once, and an MPI
# of another make is not taken.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

put "$scratch/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(look LANGUAGES C)
list(APPEND CMAKE_MODULE_PATH $YK_SOURCE/cmake)
include(Options)
include(Dependencies)
message(STATUS "found hwloc \${YK_hwloc_VERSION} and \${YK_MPI_VERSION}")
EOF

# look VARIABLE=VALUE...: a configure in that environment; its error without CMake's line breaks.
look() {
    rm -rf "$scratch/build"
    run env -u PKG_CONFIG_PATH "$@" cmake -S "$scratch/project" -B "$scratch/build"
    err=$(tr -s ' \n' ' ' <<<"$err")
}

case_is "with everything here, all is found"
look
expect_status 0
expect_text out "found hwloc $(pkg-config --modversion hwloc) and Open MPI "

case_is "all that is missing is named, with the command"
mkdir "$scratch/none"
look PKG_CONFIG_LIBDIR="$scratch/none" PKG_CONFIG_PATH=
expect_status 1
expect_text err "yoke: libraries are missing; run tools/setup, or: sudo apt-get install -y libhwloc-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcmocka-dev"

case_is "a library that a user points at is taken"
put "$scratch/ours/hwloc.pc" <<'EOF'
Name: hwloc
Description: another one
Version: 9.9.9
EOF
look PKG_CONFIG_PATH="$scratch/ours"
expect_status 0
expect_text out "found hwloc 9.9.9"

case_is "an MPI that comes first in PATH and is not Open MPI is refused"
put "$scratch/other/mpicc" <<EOF
#!/usr/bin/env bash
# Compiles as Open MPI's does, but goes by another name.
[ "\$1" = --showme:version ] && echo "MPICH Version 4.0" && exit
exec $(command -v mpicc) "\$@"
EOF
put "$scratch/other/mpiexec" <<<'#!/bin/sh'
chmod +x "$scratch"/other/mpi*
look PATH="$scratch/other:$PATH"
expect_status 1
expect_text err "yoke: MPI: $scratch/other/mpicc is not Open MPI's; put Open MPI's mpicc first in PATH, or use -DMPI_C_COMPILER=/usr/bin/mpicc.openmpi"

passed
