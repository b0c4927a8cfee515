#!/usr/bin/env bash
# tests/tree/test_expect.sh - tests leave nothing behind, no process and no file, however they end.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1

# A test that has a child, one in another session and one that is stopped, and then does what it is told.
cat >"$scratch/test_inner.sh" <<'END'
. "$YK_SOURCE/tests/expect.sh" || exit 1
echo "$scratch" >"$1/scratch"
for command in "sleep" "setsid sleep" "sleep"; do
    $command "300.$2" &
done
kill -STOP $!
(while :; do sleep "300.$2"; done) &
touch "$1/up"
case $3 in
fails) fail "so it is told" ;;
waits) timeout 300 sleep "300.$2" ;;
esac
END

is_up() { [ -e "$scratch/up" ]; }
is_gone() { ! pgrep -f "sleep 300.$$" >/dev/null && [ ! -e "$(cat "$scratch/scratch")" ]; }

# begin COMMAND...: in a group of its own, as on a terminal.
begin() {
    rm -f "$scratch/up"
    set -m
    "$@" >/dev/null 2>&1 </dev/null &
    set +m
    until_true is_up
}

for way in ends fails; do
    case_is "a test that $way takes its processes along"
    run bash "$scratch/test_inner.sh" "$scratch" $$ $way
    expect_status $([ $way = ends ]; echo $?)
    is_gone || fail "something is left"
done

for signal in INT TERM HUP KILL; do
    case_is "a test that gets SIG$signal while it waits for a program ends at once, and the program with it"
    begin bash "$scratch/test_inner.sh" "$scratch" $$ waits
    if [ $signal = INT ]; then kill -INT -- -$!; else kill -$signal $!; fi
    { wait $!; } 2>/dev/null
    until_true is_gone
done

case_is "a test whose ctest is killed ends"
printf '#!/usr/bin/env bash\n"$@"\n' >"$scratch/ctest"
chmod +x "$scratch/ctest"
begin "$scratch/ctest" bash "$scratch/test_inner.sh" "$scratch" $$ waits
kill -KILL $!
{ wait $!; } 2>/dev/null
until_true is_gone

case_is "a file system that a test has mounted goes with it"
if [ "$(id -u)" -eq 0 ]; then
    cat >"$scratch/test_mount.sh" <<'END'
. "$YK_SOURCE/tests/expect.sh" || exit 1
mkdir "$scratch/disk"
mount -t tmpfs tmpfs "$scratch/disk" || exit 77
echo "$scratch" >"$1/scratch"
END
    run bash "$scratch/test_mount.sh" "$scratch"
    [ "$status" -eq 77 ] || [ ! -e "$(cat "$scratch/scratch")" ] || fail "it is still there"
fi

passed
