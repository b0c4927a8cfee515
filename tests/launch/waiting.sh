# tests/launch/waiting.sh - waiting for what happens soon; sourced after tests/expect.sh.

# until_true COMMAND...: return when the command succeeds; fail when it has not within ten seconds.
until_true() {
    local i
    for ((i = 0; i < 500; i++)); do
        "$@" && return 0
        sleep 0.02
    done
    fail "not within ten seconds: $*"
}
