#!/usr/bin/env bash
# tests/cmake/test_cuda.sh - what the build makes of the ways in which NVIDIA's parts lie about, out of
# files that only look like them, and of compilers that are missing or broken.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

# A project that only looks for CUDA and prints what it found.
put "$scratch/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(look LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH $YK_SOURCE/cmake)
set(PROJECT_SOURCE_DIR $YK_SOURCE)
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
include(Options)
include(Cuda)
foreach(part CUDA NCCL CUDNN)
    message(STATUS "found \${part}: \${YK_HAVE_\${part}} (\${YK_\${part}_REASON})")
endforeach()
foreach(part NCCL CUDNN CUBLASLT CUDART)
    set(CUBLASLT_MAJOR 13)
    find_package(\${part} QUIET)
    message(STATUS "\${part}: \${\${part}_VERSION} \${\${part}_LIBRARY} \${\${part}_INCLUDE_DIR}")
endforeach()
EOF

# look CMAKE_ARGUMENT...: on a machine whose /usr/local and /opt are those of $system.
system=$scratch/system
look() {
    rm -rf "$scratch/build"
    run env -u CUDA_HOME -u CUDA_PATH -u CUDACXX PATH="$scratch/bin:$PATH" ${environment-} \
        cmake -S "$scratch/project" -B "$scratch/build" -DYK_NVIDIA_SYSTEM_ROOT="$system" \
        -DYK_CUDA_KERNELS=some.cu "$@"
}

# Headers and libraries in the folders INCLUDE and LIB; SUFFIX .2 for wheels, which have libX.so.N only.
fake_nccl() {
    printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n' | put "$1/nccl.h"
    put "$2/libnccl.so$3" </dev/null
}
fake_cudnn() {
    put "$1/cudnn.h" </dev/null
    printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 19\n#define CUDNN_PATCHLEVEL 0\n' |
        put "$1/cudnn_version.h"
    put "$2/libcudnn.so$3" </dev/null
}

# The folders of wheels that python3 sees are $wheels.
mkdir -p "$scratch/bin"
put "$scratch/bin/python3" <<'EOF'
#!/bin/sh
test -n "$wheels" && echo "$wheels"
EOF
chmod +x "$scratch/bin/python3"

case_is "where there is no GPU, AUTO compiles no kernels and says how to"
look
expect_status 0
expect_text out "found CUDA: OFF (there is no GPU here; to build for one elsewhere, use -DYK_CUDA=ON)"
expect_no_text out "Trying"

case_is "for other machines AUTO asks for no GPU, only for a compiler"
look -DYK_ELSEWHERE=ON
expect_status 0
expect_text out "found CUDA: OFF (there is no nvcc)"

case_is "where there is a GPU and no nvcc, AUTO goes on without CUDA and says so"
put "$system/dev/nvidiactl" </dev/null
look
expect_status 0
expect_text out "found CUDA: OFF (there is no nvcc)"
expect_text out "found NCCL: OFF (there is no CUDA)"

case_is "where there is no nvcc, ON is an error that says what to do"
look -DYK_CUDA=ON
expect_status 1
expect_text err "yoke: YK_CUDA: ON, but there is no nvcc; put nvcc in PATH or set CUDACXX"

case_is "NCCL without CUDA is an error when asked for"
look -DYK_CUDA=OFF -DYK_NCCL=ON
expect_status 1
expect_text err "yoke: YK_NCCL: ON, but there is no CUDA"

case_is "an nvcc that is broken is no CUDA for AUTO, and an error for ON"
printf '#!/bin/sh\necho "nvcc fatal: Unsupported gpu architecture"\nexit 1\n' | put "$scratch/broken/nvcc"
chmod +x "$scratch/broken/nvcc"
environment=CUDACXX=$scratch/broken/nvcc
look
expect_status 0
expect_text out "found CUDA: OFF ($scratch/broken/nvcc cannot build an sm_89 kernel"
look -DYK_CUDA=ON
expect_status 1
expect_text err "yoke: YK_CUDA: ON, but"
environment=

case_is "OFF looks for nothing"
environment=CUDACXX=$scratch/broken/nvcc
look -DYK_CUDA=OFF
expect_status 0
expect_text out "found CUDA: OFF (YK_CUDA=OFF)"
expect_no_text out "Trying"
environment=

case_is "a word that is no choice is refused"
look -DYK_CUDA=YES
expect_status 1
expect_text err "yoke: YK_CUDA: 'YES' is not a choice; use AUTO, ON or OFF"

case_is "the newest toolkit in /usr/local is taken when none is called cuda"
for version in 9.2 12.4 13.0; do
    put "$system/usr/local/cuda-$version/include/cuda_runtime.h" </dev/null
    put "$system/usr/local/cuda-$version/lib64/libcudart_static.a" </dev/null
done
look -DYK_CUDA=OFF
expect_text out "CUDART:  $system/usr/local/cuda-13.0/lib64/libcudart_static.a $system/usr/local/cuda-13.0/include"

case_is "wheels for CUDA 12, a folder a part, libX.so.N only"
export wheels=$scratch/wheels/nvidia
fake_nccl "$wheels/nccl/include" "$wheels/nccl/lib" .2
fake_cudnn "$wheels/cudnn/include" "$wheels/cudnn/lib" .9
look -DYK_CUDA=OFF
expect_text out "NCCL: 2.28.9 $wheels/nccl/lib/libnccl.so.2 $wheels/nccl/include"
expect_text out "CUDNN: 9.19.0 $wheels/cudnn/lib/libcudnn.so.9 $wheels/cudnn/include"

case_is "wheels for CUDA 13, one folder for the toolkit, and cuBLASLt of its major version"
put "$wheels/cu13/include/cublasLt.h" </dev/null
put "$wheels/cu13/lib/libcublasLt.so.13" </dev/null
put "$wheels/cublas/include/cublasLt.h" </dev/null
put "$wheels/cublas/lib/libcublasLt.so.12" </dev/null
look -DYK_CUDA=OFF
expect_text out "CUBLASLT:  $wheels/cu13/lib/libcublasLt.so.13 $wheels/cu13/include"
unset wheels

case_is "conda"
environment=CONDA_PREFIX=$scratch/conda
fake_nccl "$scratch/conda/include" "$scratch/conda/lib" ""
look -DYK_CUDA=OFF
expect_text out "NCCL: 2.28.9 $scratch/conda/lib/libnccl.so $scratch/conda/include"
environment=

case_is "the HPC SDK"
kit=$system/opt/nvidia/hpc_sdk/Linux_x86_64/24.7/comm_libs/nccl
fake_nccl "$kit/include" "$kit/lib" ""
look -DYK_CUDA=OFF
expect_text out "NCCL: 2.28.9 $kit/lib/libnccl.so $kit/include"

case_is "what the user points at comes before all else"
for variable in NCCL_HOME NCCL_ROOT EBROOTNCCL; do
    fake_nccl "$scratch/$variable/include" "$scratch/$variable/lib" ""
    environment=$variable=$scratch/$variable
    look -DYK_CUDA=OFF
    expect_text out "NCCL: 2.28.9 $scratch/$variable/lib/libnccl.so $scratch/$variable/include"
done
environment=

passed
