#!/usr/bin/env bash
# tests/cli/test_main.sh - the program before any subcommand: examples, help, version, a word that is
# none of them; and what becomes of a full standard output.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke

case_is "alone it prints examples that it understands, five at most"
run "$yoke"
expect_status 0
[ -z "$err" ] || fail "a word on stderr"
[ "$(grep -c . <<<"$out")" -le 5 ] || fail "more than five lines"
while read -r program subcommand _; do
    [ "$program" = yoke ] || fail "not an example: $program"
    "$yoke" "$subcommand" --help >/dev/null 2>&1 || fail "$subcommand --help fails"
done <<<"$out"

case_is "--help lists each subcommand, which has help of its own"
for word in --help -h help; do
    run "$yoke" "$word"
    expect_status 0
    expect_text out "usage: yoke COMMAND"
    expect_text out "  config [KEY] "
done
for subcommand in $("$yoke" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    run "$yoke" "$subcommand" --help
    expect_status 0
    expect_text out "usage: yoke $subcommand"
    run "$yoke" "$subcommand" --version
    expect_status 0
    expect_text out "yoke "
    run "$yoke" "$subcommand" --no-such-option
    expect_status 2
    expect_text err "--no-such-option"
    [ "$(wc -l <<<"$err")" -eq 1 ] || fail "more than one line"
done

case_is "--version is that of the tree"
for word in --version version; do
    run "$yoke" $word
    expect_status 0
    [ "$out" = "yoke $(sed -n 's/^#define YK_VERSION "\(.*\)"/\1/p' "$YK_SOURCE/runtime/base/version.h")" ] ||
        fail "another version"
done

case_is "an unknown subcommand names the nearest"
run "$yoke" confg
expect_status 2
[ "$err" = 'yoke: "confg": there is no such command; the nearest is `yoke config` (`yoke --help` lists all)' ] ||
    fail "another message"
[ -z "$out" ] || fail "a word on stdout"
run "$yoke" ""
expect_status 2

case_is "a standard output that takes nothing is a failure"
if [ -w /dev/full ]; then
    for arguments in "" "--help" "--version" "config" "config --markdown" "config --help"; do
        err=$("$yoke" $arguments 2>&1 >/dev/full)
        status=$?
        expect_status 1
        expect_text err "No space left on device"
        [ "$(wc -l <<<"$err")" -eq 1 ] || fail "more than one line"
    done
fi

passed
