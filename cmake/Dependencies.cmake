# The libraries that every build needs, each as a target yk_dep_<name>.
#
# All come from packages of Debian and Ubuntu, which `tools/setup` installs; what is missing is named
# with its package, all of it at once.

find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR
        "yoke: pkg-config: not found; run tools/setup, or: sudo apt-get install -y pkg-config")
endif()

set(missing "")

# yk_dependency(hwloc libhwloc-dev hwloc): target yk_dep_hwloc from pkg-config's module hwloc.
macro(yk_dependency name package module)
    pkg_check_modules(YK_${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(YK_${name}_FOUND)
        add_library(yk_dep_${name} ALIAS PkgConfig::YK_${name})
    else()
        list(APPEND missing ${package})
    endif()
endmacro()

yk_dependency(hwloc libhwloc-dev hwloc)
yk_dependency(yaml libyaml-dev yaml-0.1)
yk_dependency(jansson libjansson-dev jansson)
yk_dependency(pcre2 libpcre2-dev libpcre2-8)
yk_dependency(utf8proc libutf8proc-dev libutf8proc)
yk_dependency(xxhash libxxhash-dev libxxhash)
if(YK_TESTS)
    yk_dependency(cmocka libcmocka-dev cmocka)
endif()

find_package(Threads REQUIRED)
find_package(OpenMP COMPONENTS C)
if(NOT OpenMP_C_FOUND)
    message(FATAL_ERROR
        "yoke: OpenMP: ${CMAKE_C_COMPILER} does not offer it; use gcc, or install libomp-dev for clang")
endif()

# The MPI whose mpicc comes first in PATH, so that a cluster's environment module is heeded.
find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
    add_library(yk_dep_mpi INTERFACE)
    target_link_libraries(yk_dep_mpi INTERFACE MPI::MPI_C)
    execute_process(COMMAND ${MPI_C_COMPILER} --showme:version OUTPUT_VARIABLE version ERROR_QUIET)
    if(version MATCHES "Open MPI ([0-9.]+)")
        set(YK_MPI_VERSION "Open MPI ${CMAKE_MATCH_1}, ${MPI_C_COMPILER}")
    else()
        message(FATAL_ERROR "yoke: MPI: ${MPI_C_COMPILER} is not Open MPI's; put Open MPI's mpicc first "
            "in PATH, or use -DMPI_C_COMPILER=/usr/bin/mpicc.openmpi")
    endif()
else()
    list(APPEND missing libopenmpi-dev)
endif()

if(missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR
        "yoke: libraries are missing; run tools/setup, or: sudo apt-get install -y ${missing}")
endif()
