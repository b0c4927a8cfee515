# Whether there is a CUDA to build with, and what goes with it.
#
# CMake stops dead when enable_language(CUDA) meets a compiler that refuses an architecture or the
# host compiler. So a scratch project tries one sm_89 file first, and AUTO means: if that works.
#
# The kernels take minutes to compile, so AUTO also wants a GPU on this machine, by its driver's
# files; where the program is built for other machines, YK_ELSEWHERE=ON says so, or YK_CUDA=ON.
#
# Takes YK_CUDA_KERNELS, the .cu files there are: without any, AUTO means off.
# Sets YK_HAVE_CUDA, YK_HAVE_NCCL, YK_HAVE_CUDNN, a reason for each that is off, and the libraries of
# the device and of the NCCL backend: YK_CUDA_LIBRARIES, YK_NCCL_LIBRARIES.

include(NvidiaFind)

set(YK_HAVE_CUDA OFF)
set(YK_HAVE_NCCL OFF)
set(YK_HAVE_CUDNN OFF)
set(YK_CUDA_LIBRARIES "")
set(YK_NCCL_LIBRARIES "")

# The switch is off, or its reason is told: an error where the user insisted.
macro(yk_cuda_without part fix)
    set(YK_${part}_REASON "${ARGN}")
    if(YK_${part} STREQUAL "ON")
        message(FATAL_ERROR "yoke: YK_${part}: ON, but ${ARGN}; ${fix}")
    endif()
endmacro()

# The CUDA compiler into CMAKE_CUDA_COMPILER, unless the user or an earlier configure chose it.
function(yk_cuda_find_compiler)
    if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{CUDACXX})
        find_program(CMAKE_CUDA_COMPILER $ENV{CUDACXX})
    endif()
    yk_nvidia_roots(roots CUDA cuda_nvcc)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ${roots} PATH_SUFFIXES bin)
endfunction()

# Compiles and links one kernel in a scratch project; the first line of what went wrong into `out`.
# A result is kept for as long as compiler and flags are the same.
function(yk_cuda_probe out)
    set(key "${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_HOST_COMPILER} ${CMAKE_CUDA_FLAGS}")
    if(YK_CUDA_PROBED STREQUAL key)
        set(${out} "${YK_CUDA_PROBE_ERROR}" PARENT_SCOPE)
        return()
    endif()
    message(STATUS "Trying ${CMAKE_CUDA_COMPILER} on one sm_89 kernel")
    set(scratch ${PROJECT_BINARY_DIR}/probe-cuda)
    file(REMOVE_RECURSE ${scratch})
    set(settings -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER} "-DCMAKE_CUDA_FLAGS=${CMAKE_CUDA_FLAGS}")
    if(CMAKE_CUDA_HOST_COMPILER)
        list(APPEND settings -DCMAKE_CUDA_HOST_COMPILER=${CMAKE_CUDA_HOST_COMPILER})
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -S ${PROJECT_SOURCE_DIR}/cmake/probe
            -B ${scratch} ${settings}
        OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
    if(NOT failed)
        execute_process(COMMAND ${CMAKE_COMMAND} --build ${scratch}
            OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
    endif()
    set(reason "")
    if(failed)
        file(WRITE ${scratch}/output.txt "${output}")
        set(reason "${CMAKE_CUDA_COMPILER} cannot build an sm_89 kernel (${scratch}/output.txt)")
    endif()
    set(YK_CUDA_PROBED "${key}" CACHE INTERNAL "")
    set(YK_CUDA_PROBE_ERROR "${reason}" CACHE INTERNAL "")
    set(${out} "${reason}" PARENT_SCOPE)
endfunction()

macro(yk_cuda_enable)
    # A toolkit out of pip wheels has lib/ where nvcc looks in lib64/.
    if(CUDART_LIBRARY AND NOT CMAKE_CUDA_FLAGS MATCHES "-L")
        get_filename_component(CUDAToolkit_LIBRARY_DIR ${CUDART_LIBRARY} DIRECTORY)
        string(APPEND CMAKE_CUDA_FLAGS " -L${CUDAToolkit_LIBRARY_DIR}")
    endif()
    yk_cuda_probe(problem)
    if(problem)
        yk_cuda_without(CUDA "set CUDACXX to a working nvcc, or use -DYK_CUDA=AUTO" "${problem}")
    else()
        set(CMAKE_CUDA_ARCHITECTURES ${YK_CUDA_ARCHITECTURES})
        set(CMAKE_CUDA_STANDARD 17)
        enable_language(CUDA)
        string(REGEX MATCH "^[0-9]+" CUBLASLT_MAJOR ${CMAKE_CUDA_COMPILER_VERSION})
        find_package(CUBLASLT QUIET)
        if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
            yk_cuda_without(CUDA "install CUDA 12.4 or newer"
                "${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_CUDA_COMPILER_VERSION}")
        elseif(NOT CUDART_FOUND OR NOT CUBLASLT_FOUND)
            yk_cuda_without(CUDA "install libcublas and cudart for CUDA ${CUBLASLT_MAJOR}"
                "cuBLASLt or the static CUDA runtime is missing")
        else()
            set(YK_HAVE_CUDA ON)
            set(YK_CUDA_LIBRARIES CUBLASLT::CUBLASLT CUDART::CUDART)
        endif()
    endif()
endmacro()

# Whether an NVIDIA driver runs on this machine; the last is Windows' under WSL.
function(yk_cuda_driver out)
    set(${out} OFF PARENT_SCOPE)
    foreach(file /dev/nvidiactl /proc/driver/nvidia/version /dev/dxg)
        if(EXISTS ${YK_NVIDIA_SYSTEM_ROOT}${file})
            set(${out} ON PARENT_SCOPE)
        endif()
    endforeach()
endfunction()

yk_cuda_driver(YK_CUDA_DRIVER)
if(YK_CUDA STREQUAL "OFF")
    set(YK_CUDA_REASON "YK_CUDA=OFF")
elseif(YK_CUDA STREQUAL "AUTO" AND NOT YK_CUDA_KERNELS)
    set(YK_CUDA_REASON "this version has no CUDA kernels")
elseif(YK_CUDA STREQUAL "AUTO" AND NOT YK_CUDA_DRIVER AND NOT YK_ELSEWHERE)
    set(YK_CUDA_REASON "there is no GPU here; to build for one elsewhere, use -DYK_CUDA=ON")
else()
    yk_cuda_find_compiler()
    if(CMAKE_CUDA_COMPILER)
        find_package(CUDART QUIET)
        yk_cuda_enable()
    else()
        yk_cuda_without(CUDA "put nvcc in PATH or set CUDACXX" "there is no nvcc")
    endif()
endif()

if(NOT YK_HAVE_CUDA)
    yk_cuda_without(NCCL "use -DYK_NCCL=AUTO" "there is no CUDA")
    yk_cuda_without(CUDNN "use -DYK_CUDNN=AUTO" "there is no CUDA")
else()
    foreach(part NCCL CUDNN)
        if(YK_${part} STREQUAL "OFF")
            set(YK_${part}_REASON "YK_${part}=OFF")
            continue()
        endif()
        find_package(${part} QUIET)
        if(${part}_FOUND)
            set(YK_HAVE_${part} ON)
        else()
            yk_cuda_without(${part} "install it or set ${part}_ROOT" "its header or library is missing")
        endif()
    endforeach()
    if(YK_HAVE_NCCL)
        # Its headers alone: the library is loaded when it is wanted.
        add_library(yk_dep_nccl INTERFACE IMPORTED GLOBAL)
        set_target_properties(yk_dep_nccl PROPERTIES
            INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
        set(YK_NCCL_LIBRARIES yk_dep_nccl CUDART::CUDART)
    endif()
    if(YK_HAVE_CUDNN)
        # Its headers alone: the library is loaded when it is wanted.
        add_library(yk_dep_cudnn INTERFACE IMPORTED GLOBAL)
        set_target_properties(yk_dep_cudnn PROPERTIES
            INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
        list(APPEND YK_CUDA_LIBRARIES yk_dep_cudnn)
    endif()
endif()
