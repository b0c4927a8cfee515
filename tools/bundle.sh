#!/usr/bin/env bash
# tools/bundle.sh - the program and the libraries it needs, as a folder for a machine that has neither
# them nor a way to install them; what `make bundle` does.
#
#   [BUILD=build] tools/bundle.sh [OPTION]... [FOLDER]    FOLDER is bundle/ unless said otherwise
#
#   --with tests      what tests/gpu/run.sh and bench/gpu.sh need, too: FOLDER/gpu-test, FOLDER/gpu-check
#   --without cudnn   leave cuDNN out: attention runs on our own kernels
#   --without nccl    leave NCCL out: ranks on GPUs of one machine meet in host memory
#   --without cuda    leave all of NVIDIA's out, for machines that have the toolkit of this version
#
# What belongs to the machine stays out: the C library and the loader, and the driver's libraries. All
# else of NVIDIA's goes along, what is opened by name too: NCCL, cuDNN with its parts, and NVRTC, which
# cuDNN and cuBLASLt open. Run FOLDER/yoke.
set -euo pipefail
cd "$(dirname "$0")/.."

stays='^(ld-linux.*|linux-vdso|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nss_.*)|libcuda|libnvidia-.*)\.so'
nvidia='^lib(cublas.*|cudart|cudnn.*|nccl|nvrtc.*|nvJitLink)\.so'
folder=bundle with='' without=''

complain() { # STATUS TEXT
    echo "yoke: bundle: $2" >&2
    exit "$1"
}

while [ $# -gt 0 ]; do
    case "$1 ${2-}" in
    '--with tests') with+=" $2" && shift ;;
    '--without cudnn' | '--without nccl' | '--without cuda') without+=" $2" && shift ;;
    --help*)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
    -*) complain 2 "'$1${2:+ $2}' is no option; use --with tests, --without cudnn, nccl or cuda" ;;
    *) folder=$1 ;;
    esac
    shift
done
build=${BUILD:-build}
program=$build/yoke

# has WORD LIST
has() {
    [[ " $2 " == *" $1 "* ]]
}

# What a library is called by those who need it.
name_of() {
    local name
    name=$(objdump -p "$1" 2>/dev/null | sed -n 's/^ *SONAME *//p') || name=
    echo "${name:-$(basename "$1")}"
}

# take FILE [NAME]: the library FILE, unless it stays out or is there.
take() {
    local name=${2:-$(name_of "$1")}
    ! [[ $name =~ $stays ]] || return 0
    ! has cuda "$without" || ! [[ $name =~ $nvidia ]] || return 0
    [ -e "$folder/lib/$name" ] || cp -L "$1" "$folder/lib/$name"
}

# take_needs FILE: the libraries that the loader finds for FILE.
take_needs() {
    local missing name path
    missing=$(ldd "$1" | sed -n 's/^[[:space:]]*\(.*\) => not found$/\1/p' | grep -vE "$stays" | tr '\n' ' ' || true)
    [ -z "$missing" ] || complain 1 "$1: not found: $missing; run tools/setup"
    while read -r name path; do
        take "$path" "$name"
    done < <(ldd "$1" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\).*/\1 \2/p')
}

# The path by which the program opens libNAME.so, if it does.
opened() {
    tr -c '[:graph:]' '\n' <"$program" | grep -aoE "/[^\"]*/lib$1\.so[.0-9]*" | head -n 1 || true
}

# take_opened NAME: libNAME.so, its parts libNAME_*.so, and what they need.
take_opened() {
    local path real file
    path=$(opened "$1")
    if [ -z "$path" ] || has "$1" "$without" || has cuda "$without"; then return 0; fi
    [ -e "$path" ] || complain 1 "$path, which the program opens, is not there; --without $1 leaves it out"
    real=$(readlink -f "$path")
    for file in "$real" "$(dirname "$real")/lib$1"_*.so.[0-9]*; do
        [ -e "$file" ] || continue
        take "$file"
        take_needs "$file"
    done
}

# take_nvrtc: from where cuBLASLt lies, or where cuDNN looks for it.
take_nvrtc() {
    local lt dir file
    lt=$(ldd "$program" | sed -n 's/.*libcublasLt\.so[^ ]* => \(\/[^ ]*\).*/\1/p')
    [ -n "$lt" ] || return 0
    dir=$(dirname "$(readlink -f "$lt")")
    for file in "$dir"/libnvrtc{,-builtins}.so.[0-9]* "$dir"/../../cuda_nvrtc/lib/libnvrtc{,-builtins}.so.[0-9]*; do
        [ ! -e "$file" ] || take "$file"
    done
}

wrapped='# What lies in this folder, with the libraries that lie in it.'

# wrapper NAME COMMAND: FOLDER/NAME runs COMMAND of the folder, with the libraries beside it.
wrapper() {
    cat >"$folder/$1" <<END
#!/bin/sh
$wrapped
here=\$(cd "\$(dirname "\$0")" && pwd)
LD_LIBRARY_PATH=\$here/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec "\$here"/$2 "\$@"
END
    chmod +x "$folder/$1"
}

# The tests that can run on a GPU and the measurements, as a small tree with a build in it.
take_tests() {
    local tree=$folder/check test
    mkdir -p "$tree/build-cuda" "$tree/bench"
    tar c --exclude='*.pyc' tests | tar x -C "$tree"
    cp bench/gpu.sh bench/rows.sh bench/floor.py bench/torch_gpu.py "$tree/bench/"
    cp "$program" "$tree/build-cuda/yoke"
    while read -r test; do
        [ -x "$build/$test" ] || complain 2 "$build/$test is not there; build all of $build first"
        mkdir -p "$tree/build-cuda/$(dirname "$test")"
        cp "$build/$test" "$tree/build-cuda/$test"
        take_needs "$build/$test"
    done < <(tests/gpu/run.sh --list)
    wrapper gpu-test "check/tests/gpu/run.sh build-cuda"
    wrapper gpu-check "check/tests/gpu/check.sh build-cuda"
}

# A line for each large library and one for the rest; then what might be left out.
print_sizes() {
    local name
    find "$folder/lib" -type f -printf '%s %f\n' | sort -rn | awk '
        $1 >= 10 * 1048576 { printf "%6d MiB  %s\n", $1 / 1048576, $2; next }
        { rest += $1 }
        END { printf "%6d MiB  smaller libraries\n", rest / 1048576 }'
    for name in cudnn nccl; do
        find "$folder/lib" -name "lib$name*" -printf '%s\n' | awk -v name=$name '
            { all += $1 }
            END { if (NR) printf "%6d MiB less with --without %s\n", all / 1048576, name }'
    done
    echo "yoke: $folder/ holds the program and $(find "$folder/lib" -type f | wc -l) libraries, $(du -sh "$folder" | cut -f 1)"
}

[ -n "$folder" ] || complain 2 "the folder's name is empty; leave it out for bundle/"
[ -x "$program" ] || complain 2 "$program is not there; run make first"
# What is removed has to be a bundle: others have a bin/yoke, too, where it is installed.
[ ! -e "$folder" ] || grep -qsF "$wrapped" "$folder/yoke" || rmdir "$folder" 2>/dev/null ||
    complain 2 "$folder is there and no bundle; name another folder"
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
wrapper yoke bin/yoke
cp "$program" "$folder/bin/yoke"
take_needs "$program"
take_opened nccl
take_opened cudnn
take_nvrtc
! has tests "$with" || take_tests

print_sizes
