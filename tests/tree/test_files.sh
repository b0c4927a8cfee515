#!/usr/bin/env bash
# tests/tree/test_files.sh - a source file can be held in the head: not too long, named for what it
# does, and opened by a line that says so.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

max_lines=700

# check_files ROOT: a line for each fault of a source file.
check_files() {
    (cd "$1" && sources . '*.c' '*.h' '*.cu' '*.cuh' | xargs -r awk -v max="$max_lines" '
        function close_file() {
            if (n > max) print name ": " n " lines, more than " max
        }
        FNR == 1 {
            close_file()
            name = FILENAME
            file = name
            sub(/^.*\//, "", file)
            if (file ~ /^(utils?|common|misc|helpers?)[._]|_(utils?|common|misc|helpers?)[._]/)
                print name ": is named for no job in particular"
            if (index($0, "/* " name " - ") != 1)
                print name ":1: does not begin with \"/* " name " - what it is\""
        }
        { n = FNR }
        /^[ \t]*\*?[ \t]*-----+[ \t]*(\*\/)?$/ {
            print name ":" FNR ": a line of dashes alone: a heading is one line"
        }
        /[ \t\r]$/ { print name ":" FNR ": white space at the end of the line" }
        END { close_file() }')
}

bad=$scratch/bad
put "$bad/runtime/base/good.c" <<'EOF'
/* runtime/base/good.c - does what it says. */
int yk_good(void) { return 1; }
EOF

case_is "a file in order passes"
run check_files "$bad"
[ -z "$out$err" ] || fail "a complaint"

case_is "each fault is found, where it stands"
{ echo "/* long.c - too much. */" && seq -f '/* %g */' 700; } | put "$bad/long.c"
{ echo "/* just.c - enough. */" && seq -f '/* %g */' 699; } | put "$bad/just.c"
put "$bad/file_utils.h" <<<'/* file_utils.h - this and that. */'
put "$bad/common.c" <<<'/* common.c - this and that. */'
put "$bad/models/uncommon.c" <<<'/* models/uncommon.c - a rare thing. */'
put "$bad/bare.c" <<<'int yk_bare;'
put "$bad/moved.c" <<<'/* runtime/base/moved.c - was elsewhere. */'
printf '/* broken.c - has a heading. */\n/* ---- sums\n * --------- */\n/* ---- rest ---- */\n' | put "$bad/broken.c"
printf '/* wide.c - ends late. */\nint yk_wide; \n' | put "$bad/wide.c"
run check_files "$bad"
expect_text out "long.c: 701 lines, more than 700"
expect_no_text out "just.c"
expect_text out "file_utils.h: is named for no job in particular"
expect_text out "common.c: is named for no job in particular"
expect_no_text out "uncommon.c"
expect_text out 'bare.c:1: does not begin with "/* bare.c - what it is"'
expect_text out 'moved.c:1: does not begin with "/* moved.c - what it is"'
expect_text out "wide.c:2: white space at the end of the line"
expect_text out "broken.c:3: a line of dashes alone: a heading is one line"
[ "$(wc -l <<<"$out")" -eq 7 ] || fail "more or fewer complaints than seven"

case_is "this tree's files are in order"
run check_files "$YK_SOURCE"
[ -z "$out$err" ] || fail "files with faults"

passed
