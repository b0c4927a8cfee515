#!/usr/bin/env bash
# tests/tools/test_bundle.sh - a bundle runs with the libraries that lie in it and leaves the machine's
# own alone.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

bundle() {
    run env BUILD="$1" "$YK_SOURCE/tools/bundle.sh" "$scratch/bundle"
}

case_is "without a program there is nothing to bundle"
bundle "$scratch/nowhere"
expect_status 2
expect_text err "run make first"

case_is "the program finds each library in the bundle, and the C library outside"
mkdir -p "$scratch/build"
put "$scratch/yoke.c" <<'EOF'
#include <math.h>
#include <stdio.h>
#include <yaml.h>
int main(int argc, char **argv) { return printf("%s %s\n", yaml_get_version_string(), argv[argc - 1]) < 0; }
EOF
cc "$scratch/yoke.c" -o "$scratch/build/yoke" -lyaml
bundle "$scratch/build"
expect_status 0
[ ! -e "$scratch/bundle/lib/libc.so.6" ] || fail "the C library is in the bundle"
run "$scratch/bundle/yoke" "one word"
expect_status 0
expect_text out "one word"
run env LD_DEBUG=libs "$scratch/bundle/yoke"
expect_text err "calling init: $scratch/bundle/lib/libyaml-0.so.2"

case_is "a library that cannot be found is an error"
printf 'int yk_gone(void) { return 1; }\n' | put "$scratch/gone.c"
cc -shared -fPIC "$scratch/gone.c" -o "$scratch/libgone.so"
printf 'int yk_gone(void);\nint main(void) { return yk_gone(); }\n' | put "$scratch/yoke.c"
cc "$scratch/yoke.c" -o "$scratch/build/yoke" -L"$scratch" -lgone
bundle "$scratch/build"
expect_status 1
expect_text err "not found: libgone.so"

if [ -x "$YK_BUILD/yoke" ] && [ -z "${YK_SANITIZE-}" ]; then
    case_is "this build's program runs out of its bundle"
    bundle "$YK_BUILD"
    expect_status 0
    run env LD_DEBUG=libs "$scratch/bundle/yoke" --version
    expect_status 0
    expect_text err "calling init: $scratch/bundle/lib/libhwloc.so"
fi

passed
