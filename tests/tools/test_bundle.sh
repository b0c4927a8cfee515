#!/usr/bin/env bash
# tests/tools/test_bundle.sh - a bundle runs with the libraries that lie in it and leaves the machine's
# own alone.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

# bundle BUILD OPTION...
bundle() {
    run env BUILD="$1" "$YK_SOURCE/tools/bundle.sh" "${@:2}" "$scratch/bundle"
}

case_is "without a program there is nothing to bundle"
bundle "$scratch/nowhere"
expect_status 2
expect_text err "run make first"

case_is "the program finds each library in the bundle, and the C library outside"
mkdir -p "$scratch/build"
put "$scratch/yoke.c" <<'EOF'
#include <math.h>
#include <stdio.h>
#include <yaml.h>
int main(int argc, char **argv) { return printf("%s %s\n", yaml_get_version_string(), argv[argc - 1]) < 0; }
EOF
cc "$scratch/yoke.c" -o "$scratch/build/yoke" -lyaml
bundle "$scratch/build"
expect_status 0
[ ! -e "$scratch/bundle/lib/libc.so.6" ] || fail "the C library is in the bundle"
run "$scratch/bundle/yoke" "one word"
expect_status 0
expect_text out "one word"
run env LD_DEBUG=libs "$scratch/bundle/yoke"
expect_text err "calling init: $scratch/bundle/lib/libyaml-0.so.2"

case_is "a folder where a program is installed is no bundle, and a name that is empty none"
mkdir -p "$scratch/prefix/bin" "$scratch/prefix/share"
cp "$scratch/build/yoke" "$scratch/prefix/bin/yoke"
run env BUILD="$scratch/build" "$YK_SOURCE/tools/bundle.sh" "$scratch/prefix"
expect_status 2
expect_text err "prefix is there and no bundle"
[ -d "$scratch/prefix/share" ] || fail "it was removed"
run env BUILD="$scratch/nowhere" "$YK_SOURCE/tools/bundle.sh" "" # nothing that might be copied to /
expect_status 2
expect_text err "the folder's name is empty"

case_is "a library that cannot be found is an error"
printf 'int yk_gone(void) { return 1; }\n' | put "$scratch/gone.c"
cc -shared -fPIC "$scratch/gone.c" -o "$scratch/libgone.so"
printf 'int yk_gone(void);\nint main(void) { return yk_gone(); }\n' | put "$scratch/yoke.c"
cc "$scratch/yoke.c" -o "$scratch/build/yoke" -L"$scratch" -lgone
bundle "$scratch/build"
expect_status 1
expect_text err "not found: libgone.so"

# library NAME: a stand-in of that name in the folder $into.
library() {
    mkdir -p "$into"
    printf 'int yk_%s(void) { return 1; }\n' "$(tr -c '[:alnum:]\n' _ <<<"$1")" | put "$scratch/library.c"
    "${YK_CC:-cc}" -shared -fPIC "$scratch/library.c" -o "$into/$1" -Wl,-soname,"$1"
}

# A toolkit, NCCL and cuDNN with links to their versions, and a driver.
into=$scratch/cuda/lib
for name in libcublasLt.so.13 libcudart.so.13 libnvrtc.so.13 libnvrtc-builtins.so.13.0; do library $name; done
into=$scratch/wheels/nccl/lib
library libnccl.so.2
mv "$into/libnccl.so.2" "$into/libnccl.so.2.28"
ln -s libnccl.so.2.28 "$into/libnccl.so.2"
ln -s libnccl.so.2 "$into/libnccl.so"
into=$scratch/wheels/cudnn/lib
for name in libcudnn.so.9 libcudnn_graph.so.9 libcudnn_engines_precompiled.so.9; do library $name; done
into=$scratch/driver
for name in libcuda.so.1 libnvidia-ml.so.1; do library $name; done

put "$scratch/yoke.c" <<EOF
#include <dlfcn.h>
#include <stdio.h>
#define NCCL "$scratch/wheels/nccl/lib/libnccl.so"
int yk_libcublasLt_so_13(void), yk_libcudart_so_13(void), yk_libcuda_so_1(void);
/* Whether no stand-in is found: this machine may have the library itself. */
static int lacks(const char *name, const char *path, const char *function)
{
    void *library = dlopen(name, RTLD_NOW);
    if (!library) library = dlopen(path, RTLD_NOW);
    return !library || !dlsym(library, function);
}
int main(void)
{
    int n = lacks("libnccl.so.2", NCCL, "yk_libnccl_so_2");
    n += lacks("libcudnn.so.9", "$scratch/wheels/cudnn/lib/libcudnn.so.9", "yk_libcudnn_so_9");
    n += lacks("libcudnn_graph.so.9", "none", "yk_libcudnn_graph_so_9");
    n += lacks("libnvrtc.so.13", "none", "yk_libnvrtc_so_13");
    n += lacks("libnvidia-ml.so.1", "none", "yk_libnvidia_ml_so_1");
    printf("%d linked, %d missing\n", yk_libcublasLt_so_13() + yk_libcudart_so_13() + yk_libcuda_so_1(), n);
    if (n < 0) puts("neither libnccl.so.2 nor " NCCL " can be loaded");
    return 0;
}
EOF
"${YK_CC:-cc}" "$scratch/yoke.c" -o "$scratch/build/yoke" -ldl "$scratch/cuda/lib/libcublasLt.so.13" \
    "$scratch/cuda/lib/libcudart.so.13" "$scratch/driver/libcuda.so.1" -Wl,-rpath,"$scratch/cuda/lib"

# on_node COMMAND...: on a machine that has only the driver.
on_node() {
    mkdir "$scratch/away"
    mv "$scratch/cuda" "$scratch/wheels" "$scratch/away/"
    run env LD_LIBRARY_PATH="$scratch/driver" "$@"
    mv "$scratch/away/cuda" "$scratch/away/wheels" "$scratch/"
    rmdir "$scratch/away"
}

case_is "a program built with CUDA starts on a machine that has only the driver"
bundle "$scratch/build"
expect_status 0
for name in libcublasLt.so.13 libcudart.so.13 libnccl.so.2 libcudnn.so.9 libcudnn_graph.so.9 \
    libcudnn_engines_precompiled.so.9 libnvrtc.so.13 libnvrtc-builtins.so.13.0; do
    [ -f "$scratch/bundle/lib/$name" ] || fail "$name is not in the bundle"
done
for name in libcuda.so.1 libnvidia-ml.so.1; do
    [ ! -e "$scratch/bundle/lib/$name" ] || fail "$name, which is the driver's, is in the bundle"
done
expect_text out "MiB less with --without cudnn"
on_node "$scratch/bundle/yoke"
expect_status 0
expect_text out "3 linked, 0 missing"

case_is "cuDNN and NCCL can be left out"
bundle "$scratch/build" --without cudnn --without nccl
expect_status 0
left=$(ls "$scratch/bundle/lib")
case $left in *cudnn* | *nccl*) fail "they are in the bundle" ;; esac
on_node "$scratch/bundle/yoke"
expect_text out "3 linked, 3 missing"

case_is "all of NVIDIA's can be left out"
bundle "$scratch/build" --without cuda
expect_status 0
left=$(ls "$scratch/bundle/lib")
[ -z "$left" ] || fail "there is $left"

case_is "what the program opens and is not there is an error that says how to do without"
mv "$scratch/wheels/nccl" "$scratch/wheels/gone"
bundle "$scratch/build"
expect_status 1
expect_text err "libnccl.so, which the program opens, is not there; --without nccl leaves it out"
bundle "$scratch/build" --without nccl
expect_status 0
mv "$scratch/wheels/gone" "$scratch/wheels/nccl"

case_is "the tests of a GPU go along when asked for"
bundle "$scratch/build" --with tests
expect_status 2
expect_text err "is not there; build all"
for program in $("$YK_SOURCE/tests/gpu/run.sh" --list); do
    mkdir -p "$(dirname "$scratch/build/$program")"
    cp "$scratch/build/yoke" "$scratch/build/$program"
done
bundle "$scratch/build" --with tests
expect_status 0
run "$scratch/bundle/check/bench/gpu.sh" --out "$scratch/rows" --list gpt2-124m
expect_status 0
expect_text out "yoke gpt2-124m fp32 states"
if [ ! -e /dev/nvidiactl ]; then
    on_node "$scratch/bundle/gpu-test"
    expect_status 0
    expect_text out "0 failed"
    on_node "$scratch/bundle/gpu-check"
    expect_status 1
    expect_text err "there is no GPU"
fi

case_is "a folder that is no bundle is left alone, and what is no option is named"
echo years | put "$scratch/mine/thesis.txt"
run env BUILD="$scratch/build" "$YK_SOURCE/tools/bundle.sh" "$scratch/mine"
expect_status 2
expect_text err "is there and no bundle"
[ -e "$scratch/mine/thesis.txt" ] || fail "it is gone"
bundle "$scratch/build" --without python
expect_status 2
expect_text err "'--without python' is no option"

if [ -x "$YK_BUILD/yoke" ] && [ -z "${YK_SANITIZE-}" ]; then
    case_is "this build's program runs out of its bundle"
    bundle "$YK_BUILD"
    expect_status 0
    run env LD_DEBUG=libs "$scratch/bundle/yoke" --version
    expect_status 0
    expect_text err "calling init: $scratch/bundle/lib/libhwloc.so"
fi

passed
