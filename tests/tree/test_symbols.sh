#!/usr/bin/env bash
# tests/tree/test_symbols.sh - what our libraries show to a linker starts with yk_, and they keep
# nothing that changes outside of objects that a caller owns.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

# File-scope variables that may change, one a line: the symbol, and why there is no other way.
mutable=''

# check_names ARCHIVE...: global symbols without our prefix. What the CUDA compiler makes out of a
# kernel has names of its own, and so have the note that a sanitizer keeps beside a variable and what
# NVTX's headers, which are all there is of it, put where they are included.
check_names() {
    nm -A --defined-only --extern-only "$@" 2>/dev/null | awk '
        NF < 3 { next }
        { symbol = $NF }
        symbol ~ /^(__odr_asan\.)?yk_/ { next }
        $0 ~ /\.cu\.o:/ && symbol ~ /^_Z|^__|^DW\.ref\./ { next }
        $0 ~ /mark_cuda\.c\.o:/ && symbol ~ /[nN]vtx/ { next }
        { n = split($1, place, ":"); print place[n - 1] ": " symbol " does not start with yk_" }'
}

# check_mutable ARCHIVE...: variables in writable memory. Tables of constant pointers are written by
# the loader alone and lie in .data.rel.ro.
check_mutable() {
    local archive
    for archive in "$@"; do
        objdump -t "$archive" 2>/dev/null | awk -v allowed="$mutable" '
            BEGIN {
                n = split(allowed, lines, "\n")
                for (i = 1; i <= n; i++) { split(lines[i], words, " "); if (words[1]) may[words[1]] }
            }
            /file format/ { object = $1; sub(/:$/, "", object); next }
            {
                symbol = $NF
                if ($0 !~ /[ \t](\.(data|bss|tdata|tbss)[^ \t]*|\*COM\*)\t/) next
                if ($0 ~ /[ \t]\.data\.rel\.ro[^ \t]*\t/ || $0 ~ / d +\./) next
                base = symbol
                sub(/\.[0-9]+$/, "", base)
                if (object ~ /\.cu\.o$/ && symbol ~ /^_Z|^__|^DW\.ref\./) next
                if (object ~ /mark_cuda\.c\.o$/ && symbol ~ /[nN]vtx/) next
                if (!(base in may)) print object ": " symbol " can change and is not on the stack or owned"
            }'
    done
}

# library NAME <SOURCE: an archive of one object.
library() {
    put "$scratch/$1.c"
    cc -std=gnu17 -O2 -fPIC -c "$scratch/$1.c" -o "$scratch/$1.o" && ar rcs "$scratch/$1.a" "$scratch/$1.o"
}

case_is "constants, tables of constants and static functions pass"
library good <<'EOF'
static const char *const words[] = {"a", "b"};
const int yk_table[] = {1, 2, 3};
static int pick(int i) { return yk_table[i % 3]; }
const char *yk_word(int i) { static const int last = 1; return words[pick(i) & last]; }
EOF
run check_names "$scratch/good.a"
[ -z "$out$err" ] || fail "a complaint about names"
run check_mutable "$scratch/good.a"
[ -z "$out$err" ] || fail "a complaint about variables"

case_is "a global without the prefix is found, be it function or data"
library names <<'EOF'
int pick(void) { return 1; }
const int table[] = {1, 2};
EOF
run check_names "$scratch/names.a"
expect_text out "names.o: pick does not start with yk_"
expect_text out "names.o: table does not start with yk_"

case_is "each kind of variable that can change is found"
library changing <<'EOF'
int yk_zeroed;
int yk_set = 3;
static int hidden = 4;
static _Thread_local int mine;
static const char *pointer = "may point elsewhere";
int yk_next(void) { static int count; return count++ + hidden++ + mine++ + *pointer++; }
EOF
run check_mutable "$scratch/changing.a"
for symbol in yk_zeroed yk_set hidden mine pointer count; do
    expect_text out "changing.o: $symbol"
done
library common <<<'int yk_tentative;'
cc -fcommon -c "$scratch/common.c" -o "$scratch/common.o" && ar rcs "$scratch/common.a" "$scratch/common.o"
run check_mutable "$scratch/common.a"
expect_text out "common.o: yk_tentative"

case_is "a variable with a reason is let through"
mutable='count  counts calls, for this test'
run check_mutable "$scratch/changing.a"
expect_no_text out ": count "
expect_text out ": hidden "
mutable=''

shopt -s nullglob
archives=("$YK_BUILD"/lib/libyk_*.a)
[ ${#archives[@]} -gt 0 ] || { case_is "libraries" && fail "no library in $YK_BUILD/lib"; }
ours=()
for archive in "${archives[@]}"; do
    case $archive in
    */libyk_testing.a | */libyk_oracle.a) ;;
    *) ours+=("$archive") ;;
    esac
done

case_is "this build's globals start with yk_"
run check_names "${ours[@]}"
[ -z "$out$err" ] || fail "names without the prefix"

# Sanitizers keep their own notes beside the program's.
if [ -z "${YK_SANITIZE-}" ]; then
    case_is "this build's libraries keep nothing that changes"
    run check_mutable "${ours[@]}"
    [ -z "$out$err" ] || fail "variables that can change"
fi

passed
