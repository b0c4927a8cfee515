# The libraries that every build needs, each as a target yk_dep_<name>.
#
# All come from Debian and Ubuntu packages and are found by pkg-config; one that is missing is named
# with its package. `tools/setup` installs them all.

set(YK_MISSING "")

find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR "yoke: pkg-config: not found; run tools/setup, or: sudo apt-get install pkg-config")
endif()

# yk_dependency(hwloc libhwloc-dev hwloc): target yk_dep_hwloc from pkg-config's hwloc.
function(yk_dependency name package module)
    pkg_check_modules(yk_${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(yk_${name}_FOUND)
        add_library(yk_dep_${name} ALIAS PkgConfig::yk_${name})
        set(YK_${name}_VERSION "${yk_${name}_VERSION}" PARENT_SCOPE)
    else()
        set(YK_MISSING ${YK_MISSING} ${package} PARENT_SCOPE)
    endif()
endfunction()

yk_dependency(openblas libopenblas-openmp-dev openblas)
yk_dependency(hwloc libhwloc-dev hwloc)
yk_dependency(yaml libyaml-dev yaml-0.1)
yk_dependency(jansson libjansson-dev jansson)
yk_dependency(pcre2 libpcre2-dev libpcre2-8)
yk_dependency(utf8proc libutf8proc-dev libutf8proc)
yk_dependency(xxhash libxxhash-dev libxxhash)
yk_dependency(mpi libopenmpi-dev ompi-c)
if(YK_TESTS)
    yk_dependency(cmocka libcmocka-dev cmocka)
endif()

if(YK_MISSING)
    string(REPLACE ";" " " packages "${YK_MISSING}")
    message(FATAL_ERROR "yoke: libraries are missing; run tools/setup, or: "
        "sudo apt-get install -y ${packages}")
endif()

find_package(Threads REQUIRED)
find_package(OpenMP COMPONENTS C)
if(NOT OpenMP_C_FOUND)
    message(FATAL_ERROR "yoke: OpenMP: ${CMAKE_C_COMPILER} does not offer it; use gcc, or install libomp-dev for clang")
endif()

# A product is cut into tiles over OpenMP threads, each tile one single-threaded BLAS call. Only the
# OpenMP build of OpenBLAS allows calls from several OpenMP threads at once without locks.
if(NOT YK_openblas_library)
    get_target_property(openblas_libraries PkgConfig::yk_openblas INTERFACE_LINK_LIBRARIES)
    list(GET openblas_libraries 0 openblas_first)
    get_filename_component(openblas_real "${openblas_first}" REALPATH)
    set(YK_openblas_library "${openblas_real}" CACHE INTERNAL "")
endif()
