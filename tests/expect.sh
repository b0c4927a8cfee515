# tests/expect.sh - what shell tests are written with; sourced by them.
#
# `run COMMAND...` keeps its output in $out and $err and its exit status in $status; the expect_
# functions look at those, say what is wrong on the first mismatch, and end the test.
#
# However a test ends, all that it has started ends with it, in whatever group and session, stopped or not:
# each of its processes has YK_TEST_PROCESS in its environment, so that they can be found.
#
# YK_SOURCE and YK_BUILD come from ctest; by hand they are the checkout and its build/.

set -u
if [ "${YK_TEST_PROCESS-}" != $$ ]; then
    export YK_TEST_PROCESS=$$
    exec bash "$0" "$@"
fi
YK_SOURCE=${YK_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
YK_BUILD=${YK_BUILD:-$YK_SOURCE/build}
scratch=$(mktemp -d)
case_name=
n_cases=0

# SIGKILL to all processes of this test but its own and the caller's; twice, for some may have been about to
# start others.
end_processes() {
    local turn pid
    for turn in 1 2; do
        for pid in $(grep -lzsx "YK_TEST_PROCESS=$$" /proc/[0-9]*/environ | tr -dc '0-9\n'); do
            [ "$pid" -eq $$ ] || [ "$pid" -eq $BASHPID ] || kill -KILL "$pid"
        done 2>/dev/null
    done
}

# What a test does last: a trap of its own ends in this.
end_test() {
    end_processes
    awk -v mine="$scratch/" 'index($2, mine) == 1 { print $2 }' /proc/mounts | xargs -r umount -l
    rm -rf "$scratch"
}
trap end_test EXIT

# Bash heeds Ctrl-C when what it runs has ended, and nobody heeds SIGKILL; so a process that is no child of
# this one looks whether it, and the ctest that started it, are still there.
guard() {
    local never asked='' parent=$$
    trap asked=1 INT TERM HUP
    echo "it looks"
    exec </dev/null >/dev/null 2>&1
    [ "$(cat "/proc/$PPID/comm" 2>/dev/null)" != ctest ] || parent=$PPID
    exec {never}<> <(:)
    while [ -z "$asked" ] && [ -d /proc/$$ ] && [ -d "/proc/$parent" ]; do
        read -r -t 0.5 -u "$never"
    done
    kill -KILL $$
    end_test
}
read -r _ < <(guard &) # from here on a signal is heard

# What follows belongs to the case of this name.
case_is() {
    case_name=$1
    n_cases=$((n_cases + 1))
}

fail() {
    printf 'FAILED: %s: %s\n' "$case_name" "$1"
    printf -- '--- stdout\n%s\n--- stderr\n%s\n' "${out-}" "${err-}"
    exit 1
}

run() {
    "$@" >"$scratch/.out" 2>"$scratch/.err" </dev/null
    status=$?
    out=$(tr -d '\0' <"$scratch/.out")
    err=$(tr -d '\0' <"$scratch/.err")
}

expect_status() {
    [ "$status" -eq "$1" ] || fail "exit status $status, not $1"
}

# expect_text WHERE TEXT: the text stands somewhere in $out or $err.
expect_text() {
    case ${!1} in
    *"$2"*) ;;
    *) fail "no '$2' in $1" ;;
    esac
}

expect_no_text() {
    case ${!1} in
    *"$2"*) fail "'$2' in $1" ;;
    esac
}

# expect_refusal TEXT: the command was refused: exit status 2, one line of ours that says TEXT, no more.
expect_refusal() {
    expect_status 2
    expect_text err "$1"
    [ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line on stderr"
    [ "${err#yoke: }" != "$err" ] || fail "the line does not begin with 'yoke: '"
    [ -z "$out" ] || fail "words on stdout"
}

# refused TEXT WORD...: the command that the test tries, which stands in the array `tried`, is refused with these
# words behind it.
refused() {
    run "${tried[@]}" "${@:2}"
    expect_refusal "$1"
}

# limit SECONDS: the time limit, on this machine, of what is allowed SECONDS on a quiet one.
limit() {
    echo $(($1 * ${YK_PATIENCE:-1}))
}

passed() {
    echo "$n_cases cases passed"
}
