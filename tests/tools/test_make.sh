#!/usr/bin/env bash
# tests/tools/test_make.sh - what the Makefile hands on.
. "$(dirname "$0")/../expect.sh" || exit 1

cd "$YK_SOURCE" || exit 1
unset MAKEFLAGS MFLAGS BUILD JOBS CMAKE_ARGS WITH WITHOUT # of the make that runs this

case_is "a regular expression reaches the tests in one piece"
run make -n test "TESTS=tree|cli .*"
expect_text out "tools/test.sh 'tree|cli .*'"

case_is "without one all tests are run"
run make -n test
expect_text out "tools/test.sh"
expect_no_text out "test.sh '"

case_is "a bundle is built apart, for other machines, and its options are handed on"
run make -n bundle WITH=tests "WITHOUT=cudnn nccl" CMAKE_ARGS=-DYK_NATIVE=OFF
expect_text out "-B build-bundle"
expect_text out "-DYK_ELSEWHERE=ON -DYK_NATIVE=OFF"
expect_text out "tools/bundle.sh --with tests --without cudnn --without nccl"

case_is "a bundle of a build that is named is of that build as it is"
run make -n bundle BUILD=build-mine
expect_text out "BUILD='build-mine' tools/bundle.sh"
expect_no_text out "ELSEWHERE"

case_is "a GPU is tested and then timed"
run make -n gpu-check "GPU_CHECK=--only yoke gpt2-124m"
expect_text out "tests/gpu/check.sh build-cuda --only yoke gpt2-124m"

case_is "tools/test.sh tells what it takes, and takes no option for a pattern"
run "$YK_SOURCE/tools/test.sh" --help
expect_status 0
expect_text out "tools/test.sh [REGEX]"
run "$YK_SOURCE/tools/test.sh" --verbose
expect_refusal "'--verbose' is no option; give a pattern of tests' names"

passed
