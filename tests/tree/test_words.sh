#!/usr/bin/env bash
# tests/tree/test_words.sh - no file, source or prose, names a place of the machine that it was written
# on, points into a private network, or says that it is not finished.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

# One letter of each stands in brackets, so that this file does not name what it looks for.
places='(^|[^][A-Za-z0-9_.$}*~-])/([w]ork|[r]oot|[h]ome|[U]sers|[m]nt)/'
networks='[h]ttps?://([0-9.]+|[^]/:. "]+|[^]/: "]+\.(internal|local|lan|corp|intra))(["/: ]|$)'
unfinished='(^|[^A-Za-z_])([T]ODO|[F]IXME|[X]XX|[H]ACK|[T]BD|[W]IP)([^A-Za-z_]|$)'
unfinished="$unfinished|[Pp]laceholde[r]|[Ll]orem ipsu[m]|[Cc]oming soo[n]|[Nn]ot (yet )?implemente[d]"

# check_words ROOT: a line for each fault of a file that is text.
check_words() {
    (cd "$1" && sources . '*' | tr '\n' '\0' >"$scratch/files" &&
        for rule in "names a place of one machine:$places" \
            "points into a private network:$networks" "is not finished:$unfinished"; do
            xargs -0r grep -HnIoE "${rule#*:}" /dev/null <"$scratch/files" |
                awk -F: -v what="${rule%%:*}" '!/localhost/ { print $1 ":" $2 ": " what }' | uniq
        done)
}

bad=$scratch/bad
put "$bad/docs/good.md" <<'EOF'
Files go to `runs/` or $HOME/work/, see [the manual](https://www.open-mpi.org/doc/) and ~/root/x;
a shape is (B,T,XXXL), and a/work/b is a place in the tree. Open http://localhost:6006
when the placement of ranks is implemented.
EOF

case_is "a file in order passes"
run check_words "$bad"
[ -z "$out$err" ] || fail "a complaint"

case_is "each fault is found in every kind of file, where it stands"
printf 'fine\ncp %s/data .\n' '/wor''k' | put "$bad/tools/copy.sh"
printf 'path: %s/me/x\n' '/hom''e' | put "$bad/configs/a.yaml"
printf 'index = htt''p://%s/simple\n' 10.0.0.1:8080 | put "$bad/a.toml"
printf 'get htt''ps://packages.%s/x and htt''p://mirror/y\n' internal | put "$bad/README.md"
printf '/* %s: the rest */\n' 'TO''DO' | put "$bad/later.c"
printf 'This part is %s.\n' 'coming soo''n' | put "$bad/docs/later.md"
run check_words "$bad"
expect_text out "tools/copy.sh:2: names a place of one machine"
expect_text out "configs/a.yaml:1: names a place of one machine"
expect_text out "a.toml:1: points into a private network"
expect_text out "README.md:1: points into a private network"
expect_text out "later.c:1: is not finished"
expect_text out "docs/later.md:1: is not finished"
[ "$(wc -l <<<"$out")" -eq 6 ] || fail "more or fewer complaints than six"

case_is "this tree's files keep to what matters everywhere"
run check_words "$YK_SOURCE"
[ -z "$out$err" ] || fail "words that do not belong here"

passed
