#!/usr/bin/env bash
# tests/cmake/test_dependencies.sh - what is missing is named with its package, all at once, and an
# OpenBLAS of the wrong kind is not taken.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

put "$scratch/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(look LANGUAGES C)
list(APPEND CMAKE_MODULE_PATH $YK_SOURCE/cmake)
include(Options)
include(Dependencies)
message(STATUS "found \${YK_OPENBLAS_LIBRARY}")
EOF

# look VARIABLE=VALUE...: a configure in that environment; its error without CMake's line breaks.
look() {
    rm -rf "$scratch/build"
    run env -u PKG_CONFIG_PATH "$@" cmake -S "$scratch/project" -B "$scratch/build"
    err=$(tr -s ' \n' ' ' <<<"$err")
}

# openblas NAME PARALLEL: a library that says that it is of this kind (1 pthread, 2 OpenMP).
openblas() {
    local folder=$scratch/$1
    put "$folder/cblas.h" <<<'#define OPENBLAS_OPENMP 2
int openblas_get_parallel(void);'
    put "$folder/blas.c" <<<"int openblas_get_parallel(void) { return $2; }"
    cc -shared -fPIC "$folder/blas.c" -o "$folder/libopenblas.so"
    put "$folder/openblas.pc" <<EOF
Name: openblas
Description: an OpenBLAS of kind $2
Version: 9.9.9
Libs: -L$folder -lopenblas
Cflags: -I$folder
EOF
}

case_is "with everything here, the OpenMP build is linked by path"
look
expect_status 0
expect_text out "openblas-openmp/libopenblas.so"

case_is "all that is missing is named, with the command"
mkdir "$scratch/none"
look PKG_CONFIG_LIBDIR="$scratch/none" PKG_CONFIG_PATH=
expect_status 1
expect_text err "yoke: libraries are missing; run tools/setup, or: sudo apt-get install -y libhwloc-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcmocka-dev"

case_is "an OpenBLAS that a user points at is taken when it is the OpenMP build"
openblas ours 2
look PKG_CONFIG_PATH="$scratch/ours"
expect_status 0
expect_text out "found $scratch/ours/libopenblas.so"

case_is "an OpenBLAS with threads of its own is refused"
openblas pthread 1
look PKG_CONFIG_PATH="$scratch/pthread"
expect_status 1
expect_text err "yoke: OpenBLAS: $scratch/pthread/libopenblas.so is not the OpenMP build; run tools/setup, or: sudo apt-get install -y libopenblas-openmp-dev"

passed
