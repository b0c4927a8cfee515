#!/usr/bin/env bash
# tests/tools/test_setup.sh - tools/setup on machines where everything, something or nothing can be
# had. Every program that it asks is a fake in a PATH of its own; nothing is installed.
. "$(dirname "$0")/../expect.sh" || exit 1

bin=$scratch/bin

# A machine with a shell and nothing else, whose user is `$1` (0 is root).
bare_machine() {
    rm -rf "$bin"
    mkdir -p "$bin"
    local program
    for program in bash env sed grep cat dirname; do
        ln -s "$(command -v $program)" "$bin/$program"
    done
    fake id "echo $1"
    fake dpkg-query "exit 1"
    : >"$scratch/log"
}

# fake NAME SCRIPT: a program that runs SCRIPT.
fake() {
    printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

fake_apt() {
    fake apt-get "echo \"apt-get \$*\" >>$scratch/log; $1"
}

setup() {
    run env -i PATH="$bin" "$bin/bash" "$YK_SOURCE/tools/setup" "$@"
    log=$(cat "$scratch/log")
}

case_is "root on a bare machine gets every package, each with its reason first"
bare_machine 0
fake_apt "exit 0"
setup
expect_status 0
expect_text out "libhwloc-dev             where cores, memory and GPUs lie"
expect_text out "make                     the front door"
expect_text log "apt-get -q -o DPkg::Lock::Timeout=120 update"
for package in build-essential cmake make ninja-build pkg-config libopenmpi-dev openmpi-bin \
    libhwloc-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev \
    libcmocka-dev; do
    expect_text log " $package"
done
expect_no_text log "bible-kjv"

case_is "an ordinary user's packages come through sudo"
bare_machine 1000
fake_apt "exit 0"
fake sudo "echo \"sudo \$*\" >>$scratch/log; [ \"\$1\" = -n ] && shift; exec \"\$@\""
setup
expect_status 0
expect_text log "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"
expect_text log "install -y --no-install-recommends git make"

case_is "without sudo the exact command is printed, and nothing was tried"
bare_machine 1000
fake_apt "exit 0"
setup build demo
expect_status 2
expect_text err "yoke: setup: installing needs root, and there is no sudo; run this, then try again:"
expect_text err "  sudo apt-get update && sudo apt-get install -y --no-install-recommends git make build-essential"
expect_text err " bible-kjv"
[ -z "$log" ] || fail "apt-get was called: $log"

case_is "a sudo that wants a password nobody can type is a failure with the command"
bare_machine 1000
fake_apt "exit 0"
fake sudo "exit 1"
setup
expect_status 2
expect_text err "yoke: setup: apt-get update failed; run this, then try again:"
expect_text err "  sudo apt-get update && sudo apt-get install -y"
[ -z "$log" ] || fail "apt-get was called: $log"

case_is "where apt-get update fails, so does setup, with the command"
bare_machine 0
fake_apt "exit 100"
setup
expect_status 2
expect_text err "yoke: setup: apt-get update failed; run this, then try again:"
expect_text err "  apt-get update && apt-get install -y --no-install-recommends git make"
expect_no_text err sudo

case_is "where apt-get install fails, so does setup, with the command"
bare_machine 0
fake_apt "case \$* in *install*) exit 100 ;; esac"
setup
expect_status 2
expect_text err "yoke: setup: apt-get install failed; run this, then try again:"

case_is "where there is no apt-get, the packages are still named"
bare_machine 0
setup
expect_status 2
expect_text err "yoke: setup: there is no apt-get on this machine"
expect_text err "libhwloc-dev"

case_is "an optional package that cannot be had is one line and exit status 1"
bare_machine 0
fake_apt "exit 100"
setup --optional demo
expect_status 1
[ "$err" = "yoke: setup: bible-kjv: apt-get update failed; going on without" ] || fail "other words"

case_is "what is there is not asked for, and when all is there nothing is said or called"
bare_machine 0
fake_apt "exit 0"
fake git "exit 0"
fake dpkg-query "[ \"\$4\" = libhwloc-dev ] && printf 'install ok installed'"
setup --check
expect_status 2
expect_no_text out "  git "
expect_no_text out "  libhwloc-dev "
expect_text out "  libyaml-dev "
[ -z "$log" ] || fail "--check called apt-get: $log"
fake dpkg-query "printf 'install ok installed'"
setup --check
expect_status 0
[ "$out" = "yoke: setup: everything is here" ] || fail "other words"
setup build demo
expect_status 0
[ -z "$out$err$log" ] || fail "something was said or called: $log"

case_is "a removed package whose configuration stayed counts as missing"
fake dpkg-query "printf 'deinstall ok config-files'"
setup --check
expect_status 2
expect_text out "  libyaml-dev "

case_is "an argument that means nothing is refused"
setup --chekc
expect_status 2
expect_text err "'--chekc' is not a group or option"

passed
