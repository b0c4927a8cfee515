#!/usr/bin/env bash
# tests/tree/test_headers.sh - every header compiles alone, twice over, and has the guard of its path.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

compiler=${YK_CC:-cc}
# Folders of other people's headers that are not in the compiler's own path.
read -ra flags <<<"${YK_CFLAGS-}"

# check_header ROOT HEADER: what is wrong with one header.
check_header() {
    local guard message
    guard=YK_$(tr 'a-z/.-' 'A-Z___' <<<"$2")
    grep -q "^#define $guard\$" "$1/$2" || echo "$2: has no guard called $guard"
    message=$(printf '#include "%s"\n#include "%s"\ntypedef int yk_not_empty;\n' "$2" "$2" |
        "$compiler" -std=gnu17 -D_GNU_SOURCE= -Wall -Wextra -Werror -fsyntax-only -I"$1" "${flags[@]}" \
            -x c - 2>&1) || echo "$2: does not compile alone: $(head -n 3 <<<"$message")"
}

# check_headers ROOT: every header of the tree. What needs CUDA's headers is for a build that has them.
check_headers() {
    local header
    for header in $(sources "$1" '*.h'); do
        [ -z "${YK_HAVE_CUDA-}" ] && grep -qE '#include <(cu|nccl)' "$1/$header" && continue
        [ -z "${YK_HAVE_CUDNN-}" ] && grep -qE '#include (<cudnn|".*cudnn_(graph|library))' "$1/$header" && continue
        check_header "$1" "$header"
    done
}

bad=$scratch/bad
put "$bad/runtime/base/good.h" <<'EOF'
#ifndef YK_RUNTIME_BASE_GOOD_H
#define YK_RUNTIME_BASE_GOOD_H
#include <stdint.h>
typedef struct yk_good { int64_t n; } yk_good;
#endif
EOF

case_is "a header in order passes"
run check_headers "$bad"
[ -z "$out$err" ] || fail "a complaint"

case_is "a header that needs another one first is found"
put "$bad/runtime/base/needy.h" <<'EOF'
#ifndef YK_RUNTIME_BASE_NEEDY_H
#define YK_RUNTIME_BASE_NEEDY_H
int64_t yk_needy(void);
#endif
EOF
run check_headers "$bad"
expect_text out "runtime/base/needy.h: does not compile alone"
expect_no_text out "good.h"

case_is "a header without a guard, or with another's, is found"
put "$bad/runtime/base/open.h" <<<'typedef struct yk_open { int n; } yk_open;'
sed 's/GOOD/GOOD2/' "$bad/runtime/base/good.h" | put "$bad/runtime/base/copied.h"
run check_headers "$bad"
expect_text out "runtime/base/open.h: does not compile alone"
expect_text out "runtime/base/open.h: has no guard called YK_RUNTIME_BASE_OPEN_H"
expect_text out "runtime/base/copied.h: has no guard called YK_RUNTIME_BASE_COPIED_H"

case_is "this tree's headers compile alone"
run check_headers "$YK_SOURCE"
[ -z "$out$err" ] || fail "headers with faults"

passed
