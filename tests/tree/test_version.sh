#!/usr/bin/env bash
# tests/tree/test_version.sh - the header, the build, the change log and the program name one version.
. "$(dirname "$0")/../expect.sh" || exit 1

header=$(sed -n 's/^#define YK_VERSION "\(.*\)"$/\1/p' "$YK_SOURCE/runtime/base/version.h")

case_is "the header's version is three numbers"
grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$' <<<"$header" || fail "it is '$header'"

case_is "the build has the header's version"
built=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$YK_BUILD/CMakeCache.txt")
[ "$built" = "$header" ] || fail "it has '$built', not '$header'"

case_is "the change log's first entry is about the header's version"
logged=$(sed -n 's/^## \([^ ]*\).*/\1/p' "$YK_SOURCE/CHANGELOG.md" | head -n 1)
[ "$logged" = "$header" ] || fail "it is about '$logged', not '$header'"

if [ -x "$YK_BUILD/yoke" ]; then
    case_is "the program says the header's version"
    run "$YK_BUILD/yoke" --version
    expect_status 0
    expect_text out "$header"
fi

passed
