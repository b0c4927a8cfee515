#!/usr/bin/env bash
# tests/ranks/train/test_links.sh - what ranks have measured of their links is kept, and measured again when
# what it depends on has changed or the file is no good.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
export XDG_CACHE_HOME=$scratch/cache
program=$YK_BUILD/tests/ranks/train/rank_links
kept=$scratch/cache/yoke

links() { # RANKS NODE_SIZE TUNE BYTES [KIND]: it passes
    on_ranks "$1" "$2" "$program" "${@:3}"
    expect_status 0
}
n_files() { find "$kept" -name 'links-*' | wc -l; }
is_measured() { expect_text out "; measured:"; }
is_remembered() { # with the numbers of $first
    expect_text out "; an earlier run measured:"
    [ "$(tail -n 1 <<<"$out")" = "$first" ] || fail "other numbers than were measured: $first"
}

case_is "the first run measures and keeps, the next remembers the same numbers"
links 2 2 cached 1048576
is_measured
expect_text out "all-gather        1.0 MiB     1 a step  mpi "
expect_text out "reduce-scatter    1.0 MiB     2 a step  mpi "
first=$(tail -n 1 <<<"$out")
links 2 2 cached 1048576
is_remembered
[ -z "$err" ] || fail "something was said"
[ "$(n_files)" -eq 1 ] || fail "not one file"

case_is "another size, kind, number of ranks, of nodes, or setting of NCCL is measured anew, and kept beside it"
links 2 2 cached 2097152
is_measured
links 3 3 cached 1048576
is_measured
NCCL_P2P_DISABLE=1 links 2 2 cached 1048576
is_measured
links 4 2 cached 1048576
is_measured
links 2 2 cached 1048576 all-reduce
is_measured
expect_text out "all-reduce "
[ "$(n_files)" -eq 6 ] || fail "not six files"
links 2 2 cached 1048576
is_remembered

case_is "tune: full measures again and keeps that; off neither reads nor writes"
links 2 2 full 1048576
is_measured
first=$(tail -n 1 <<<"$out")
links 2 2 off 1048576
is_measured
links 2 2 cached 1048576
is_remembered

case_is "a file that is damaged or of other ranks is a warning, once, and made again"
rm "$kept"/links-*
links 2 2 cached 1048576
file=$(find "$kept" -name 'links-*')
good=$(cat "$file")
for damage in 's/hostmem/nccl/' '2s/[^ ]*$/nan/' '2s/[^ ]*$/-1/' '$s/[^ ]*$/nan/' '$s/[^ ]*$/99/' '$s/[^ ]*$/-8/' '$s/[^ ]*$/4294967296/' '$s/ [^ ]*$//' '$s/[^ ]* \([^ ]*\)$/nan \1/' 's/gather/reduce/' '$d' '2s/$/ 7/' 's/links 3:/links 2:/' 's/links 3:.*/links 3: another/' 's/./x/'; do
    sed "$damage" <<<"$good" >"$file"
    links 2 2 cached 1048576
    is_measured
    expect_text err "links are measured again"
    [ "$(grep -c . <<<"$err")" -eq 1 ] || fail "said more than once after $damage"
done
first=$(tail -n 1 <<<"$out")
links 2 2 cached 1048576
is_remembered
for damage in : 'head -c 5000 /dev/zero'; do
    $damage >"$file"
    links 2 2 cached 1048576
    is_measured
    expect_text err "links are measured again"
done

case_is "a folder that cannot be written is said, and the run goes on"
export XDG_CACHE_HOME=$scratch/file
: >"$scratch/file"
links 2 2 cached 1048576
is_measured
[ -n "$err" ] || fail "nothing was said"

passed
