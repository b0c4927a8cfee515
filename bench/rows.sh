# bench/rows.sh - what comparisons on GPUs have in common: options, and rows that are kept; sourced by them.
#
# A row is a line of JSON with a label, in a file of its script. It is kept as soon as it is there, so that a run
# that was cut short goes on where it was; one that failed is run again.

yoke=build/yoke out=bench/out only=. steps=10 warmup=4 compile=full list=''
faults=0

say() {
    printf '%s\n' "$*" >&2
}

# The comment at the top of the script.
usage() {
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit "$1"
}

# take_option WORD...: an option that all scripts have; $taken is how many of the words it was.
take_option() {
    taken=2
    case $1 in
    --list) list=1 taken=1 ;;
    --help) usage 0 ;;
    --yoke | --out | --only | --steps | --warmup | --compile)
        [ $# -gt 1 ] || usage 2
        printf -v "${1#--}" %s "$2"
        ;;
    *) taken=0 ;;
    esac
}

# keep_rows_in NAME: the file, once options have been taken. A row that was cut short ends in no newline, and goes.
keep_rows_in() {
    [[ '' =~ $only ]]
    [ $? -le 1 ] || { say "--only: '$only' is no regular expression" && exit 2; }
    rows=$out/$1.jsonl
    mkdir -p "$out" && touch "$rows" || exit 1
    [ -z "$(tail -c 1 "$rows")" ] || sed -i '$d' "$rows"
}

# Is a row to be run? It is not where it is there already, nor where labels are listed alone.
wanted() {
    [[ $1 =~ $only ]] || return 1
    if [ -n "$list" ]; then
        echo "$1"
        return 1
    fi
    ! grep -qF "\"label\": \"$1\"" "$rows"
}

# keep LABEL FIELDS COMMAND...: run, and keep the last line of its output that is JSON, with FIELDS before its own.
keep() {
    local label=$1 fields=$2 line status=0
    shift 2
    wanted "$label" || return 0
    say "== $label"
    line=$("$@" 2>"$out/last.err" | grep '^{' | tail -n 1 | sed 's/"label": "[^"]*", //') || status=$?
    if [ -z "$line" ]; then
        say "   failed ($status): $(tail -n 3 "$out/last.err")"
        faults=$((faults + 1))
        return 0
    fi
    printf '{"label": "%s", %s%s\n' "$label" "$fields" "${line#\{}" >>"$rows"
}
