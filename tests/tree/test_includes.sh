#!/usr/bin/env bash
# tests/tree/test_includes.sh - the folders include each other in the one order of the house, and the
# link lines of CMake say the same.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

# A folder and what it may include besides itself.
house='
runtime:
comm: runtime
models: runtime
optim: runtime comm
engine: runtime comm models optim
launch: runtime
cli: runtime comm models optim engine launch
bench: runtime comm models optim engine launch
tests: runtime comm models optim engine launch cli
'
# The rooms of runtime/: each may include those before it.
rooms='base machine storage device memory text data observe'
# A header and the only folder that may include it.
private='
runtime/device/backend.h: runtime/device
'

# check_includes ROOT: a line for each include that is out of order.
check_includes() {
    local root=$1
    (cd "$root" && sources . '*.c' '*.h' '*.cu' '*.cuh' |
        xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' /dev/null) |
        awk -F'"' -v house="$house" -v rooms="$rooms" -v private="$private" -v root="$root" '
        function split_table(text, table,   lines, n, i, at) {
            n = split(text, lines, "\n")
            for (i = 1; i <= n; i++) {
                at = index(lines[i], ":")
                if (at) table[substr(lines[i], 1, at - 1)] = substr(lines[i], at + 1) " "
            }
        }
        BEGIN {
            split_table(house, may)
            split_table(private, only)
            n_rooms = split(rooms, room_names, " ")
            for (i = 1; i <= n_rooms; i++) room[room_names[i]] = i
        }
        {
            split($1, place, ":")
            file = place[1]
            where = file ":" place[2] ": \"" $2 "\": "
            n = split(file, from, "/")
            split($2, to, "/")
            if (system("test -f \"" root "/" $2 "\"") != 0)
                print where "is no path from the root of the tree"
            else if (n > 1 && !(from[1] in may))
                print where "folder " from[1] " is not in the table of the house"
            else if (from[1] != to[1] && index(may[from[1]], " " to[1] " ") == 0)
                print where from[1] "/ may not include " to[1] "/"
            else if (from[1] == "runtime" && !(from[2] in room))
                print where "runtime/" from[2] " is not in the order of rooms"
            else if (from[1] == "runtime" && room[to[2]] > room[from[2]])
                print where "runtime/" from[2] " comes before runtime/" to[2]
            else if (from[1] != "tests" && ($2 in only)) {
                keeper = only[$2]
                gsub(" ", "", keeper)
                if (index(file, keeper "/") != 1) print where "is for " keeper "/ alone"
            }
        }'
}

# check_links ROOT: a line for each folder whose library sees others than it may include.
check_links() {
    local folder sees may
    for folder in runtime comm models optim engine launch; do
        sees=$(tr '\n' ' ' <"$1/$folder/CMakeLists.txt" | sed -n 's/.*SEES\([a-z_ ]*\).*/\1/p' |
            tr ' ' '\n' | sed -n 's/^yk_//p' | sort | tr '\n' ' ')
        may=$(sed -n "s/^$folder: *//p" <<<"$house" | tr ' ' '\n' | sed '/^$/d' | sort | tr '\n' ' ')
        [ "$sees" = "$may" ] || echo "$folder/CMakeLists.txt sees '$sees', may include '$may'"
    done
}

bad=$scratch/bad
put "$bad/runtime/base/status.h" </dev/null
put "$bad/runtime/data/batch.h" </dev/null
put "$bad/runtime/device/backend.h" </dev/null
put "$bad/runtime/device/ops.c" <<<'#include "runtime/device/backend.h"'
put "$bad/models/model.h" <<<'#include "runtime/base/status.h"'
put "$bad/engine/step.c" <<<'#include "models/model.h"'

case_is "a tree in order passes"
run check_includes "$bad"
[ -z "$out$err" ] || fail "a complaint"

case_is "each include that is out of order is found, where it stands"
put "$bad/runtime/base/status.c" <<<'#include "runtime/data/batch.h"'
put "$bad/runtime/data/read.c" <<<'#include "models/model.h"'
put "$bad/runtime/attic/a.c" <<<'#include "runtime/base/status.h"'
put "$bad/models/decoder.c" <<<'  #  include   "engine/step.c"'
put "$bad/models/rope.c" <<<'#include "model.h"'
put "$bad/optim/adamw.c" <<<'#include "runtime/device/backend.h"'
put "$bad/launch/hosts.c" <<<'#include "models/model.h"'
put "$bad/attic/a.c" <<<'#include "runtime/base/status.h"'
run check_includes "$bad"
expect_text out 'runtime/base/status.c:1: "runtime/data/batch.h": runtime/base comes before runtime/data'
expect_text out 'runtime/data/read.c:1: "models/model.h": runtime/ may not include models/'
expect_text out 'runtime/attic/a.c:1: "runtime/base/status.h": runtime/attic is not in the order of rooms'
expect_text out 'models/decoder.c:1: "engine/step.c": models/ may not include engine/'
expect_text out 'models/rope.c:1: "model.h": is no path from the root of the tree'
expect_text out 'optim/adamw.c:1: "runtime/device/backend.h": is for runtime/device/ alone'
expect_text out 'launch/hosts.c:1: "models/model.h": launch/ may not include models/'
expect_text out 'attic/a.c:1: "runtime/base/status.h": folder attic is not in the table of the house'
[ "$(wc -l <<<"$out")" -eq 8 ] || fail "more or fewer complaints than eight"

case_is "a link line that sees too much is found"
for folder in runtime comm models optim engine launch; do
    put "$bad/$folder/CMakeLists.txt" <"$YK_SOURCE/$folder/CMakeLists.txt"
done
run check_links "$bad"
[ -z "$out$err" ] || fail "a complaint"
sed -i 's/SEES yk_runtime/SEES yk_comm yk_runtime/' "$bad/models/CMakeLists.txt"
run check_links "$bad"
expect_text out "models/CMakeLists.txt sees 'comm runtime ', may include 'runtime '"

case_is "this tree's includes are in order"
run check_includes "$YK_SOURCE"
[ -z "$out$err" ] || fail "includes out of order"

case_is "this tree's link lines repeat the order"
run check_links "$YK_SOURCE"
[ -z "$out$err" ] || fail "link lines out of order"

passed
