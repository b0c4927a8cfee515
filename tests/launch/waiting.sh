# tests/launch/waiting.sh - waiting for what happens soon; sourced after tests/expect.sh.

# until_true COMMAND...: return when the command succeeds; fail when it has not within $patience seconds,
# which is long, since the machine may have other things to do.
patience=$(limit 30)
until_true() {
    local i
    for ((i = 0; i < patience * 50; i++)); do
        "$@" && return 0
        sleep 0.02
    done
    fail "not within $patience seconds: $*"
}
