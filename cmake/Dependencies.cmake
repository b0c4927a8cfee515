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

# A product is cut into tiles over OpenMP threads, each tile one single-threaded BLAS call. Only the
# OpenMP build of OpenBLAS knows that it is called from such a thread. Several builds can be installed
# side by side, and which one plain -lopenblas means is then the administrator's choice; so the folder
# of the OpenMP build is tried before the default one, and linked by path.
file(GLOB openmp_builds /usr/lib/*/openblas-openmp/pkgconfig)
list(JOIN openmp_builds ":" openmp_builds)
set(saved_path "$ENV{PKG_CONFIG_PATH}")
set(ENV{PKG_CONFIG_PATH} "${saved_path}:${openmp_builds}")
yk_dependency(openblas libopenblas-openmp-dev openblas)
set(ENV{PKG_CONFIG_PATH} "${saved_path}")

if(missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR
        "yoke: libraries are missing; run tools/setup, or: sudo apt-get install -y ${missing}")
endif()

include(CheckCSourceRuns)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::YK_openblas)
set(CMAKE_REQUIRED_QUIET ON)
check_c_source_runs("
    #include <cblas.h>
    int main(void) { return openblas_get_parallel() == OPENBLAS_OPENMP ? 0 : 1; }"
    YK_OPENBLAS_IS_OPENMP)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_QUIET)
list(GET YK_openblas_LINK_LIBRARIES 0 YK_OPENBLAS_LIBRARY)
if(NOT YK_OPENBLAS_IS_OPENMP)
    unset(YK_OPENBLAS_IS_OPENMP CACHE)
    message(FATAL_ERROR "yoke: OpenBLAS: ${YK_OPENBLAS_LIBRARY} is not the OpenMP build; "
        "run tools/setup, or: sudo apt-get install -y libopenblas-openmp-dev")
endif()
