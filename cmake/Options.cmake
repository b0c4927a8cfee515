# What a person can choose at configure time, with defaults that suit most machines.

function(yk_tristate name text)
    set(${name} AUTO CACHE STRING "${text}: AUTO, ON or OFF")
    set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
    string(TOUPPER "${${name}}" value)
    if(NOT value MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "yoke: ${name}: '${${name}}' is not a choice; use AUTO, ON or OFF")
    endif()
    set(${name} ${value} PARENT_SCOPE)
endfunction()

yk_tristate(YK_CUDA "Build the CUDA device")
yk_tristate(YK_NCCL "Build the NCCL backend (needs CUDA)")
yk_tristate(YK_CUDNN "Use cuDNN's attention (needs CUDA)")
option(YK_NATIVE "Compile the CPU kernels for this very processor" ON)
option(YK_TESTS "Build the tests (needs cmocka)" ON)
option(YK_WERROR "Treat warnings as errors" OFF)
set(YK_SANITIZE "" CACHE STRING "Sanitizers to build with, such as address,undefined")
set(YK_CUDA_ARCHITECTURES "89;90" CACHE STRING "GPU architectures to compile for (80, 86, 89, 90, 120)")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
