#!/usr/bin/env bash
# tests/tools/test_make.sh - what the Makefile hands on.
. "$(dirname "$0")/../expect.sh" || exit 1

cd "$YK_SOURCE" || exit 1

case_is "a regular expression reaches the tests in one piece"
run make -n test "TESTS=tree|cli .*"
expect_text out "tools/test.sh 'tree|cli .*'"

case_is "without one all tests are run"
run make -n test
expect_text out "tools/test.sh"
expect_no_text out "test.sh '"
passed
