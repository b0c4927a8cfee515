#!/usr/bin/env bash
# tests/cli/test_config.sh - `yoke config`, and that the documentation page is what it prints.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke

case_is "a key, a section and everything"
run "$yoke" config optim.lr
expect_status 0
[ "$(head -n 1 <<<"$out")" = "optim.lr  (real; 0 to 100; default 3e-4)" ] || fail "another first line"
run "$yoke" config precision.loss_scale
expect_status 0
expect_text out "precision.loss_scale.floor"
expect_no_text out "precision.compute "
run "$yoke" config
expect_status 0
expect_text out "run.dir"
expect_text out "device  ("

case_is "an unknown key names the nearest"
run "$yoke" config optim.learning_rate
expect_status 2
[ "$err" = 'yoke: config: there is no key "optim.learning_rate"; the nearest is optim.lr' ] ||
    fail "another message"

case_is "docs/configuration.md is up to date"
run "$yoke" config --markdown
expect_status 0
diff -u "$YK_SOURCE/docs/configuration.md" "$scratch/.out" >"$scratch/difference" || {
    out=$(head -n 30 "$scratch/difference")
    fail "run: $YK_BUILD/yoke config --markdown >docs/configuration.md"
}

passed
