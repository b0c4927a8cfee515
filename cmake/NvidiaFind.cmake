# Where NVIDIA's files lie, however they came: its own packages, the HPC SDK, conda, environment
# modules, or pip wheels (site-packages/nvidia/<part>/{include,lib}, where only libX.so.N exists).

# yk_nvidia_roots(out NCCL nccl): folders to look in for the part named NCCL, whose folder among the
# wheels is nccl. What the user points at comes first, then the toolkit in use, then the rest.
function(yk_nvidia_roots out name wheel)
    set(roots "")
    foreach(variable ${name}_ROOT ${name}_HOME ${name}_PATH ${name}_DIR EBROOT${name})
        list(APPEND roots ${${variable}} $ENV{${variable}})
    endforeach()
    list(APPEND roots ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT})
    if(CMAKE_CUDA_COMPILER)
        get_filename_component(bin ${CMAKE_CUDA_COMPILER} DIRECTORY)
        get_filename_component(toolkit ${bin} DIRECTORY)
        list(APPEND roots ${toolkit})
    endif()
    list(APPEND roots $ENV{CUDA_HOME} $ENV{CUDA_PATH})
    list(APPEND roots ${YK_NVIDIA_SYSTEM_ROOT}/usr/local/cuda)
    file(GLOB versions ${YK_NVIDIA_SYSTEM_ROOT}/usr/local/cuda-*)
    list(SORT versions COMPARE NATURAL ORDER DESCENDING)
    list(APPEND roots ${versions})
    if(DEFINED ENV{CONDA_PREFIX})
        list(APPEND roots $ENV{CONDA_PREFIX} $ENV{CONDA_PREFIX}/targets/x86_64-linux)
    endif()
    yk_nvidia_wheels(wheels)
    foreach(folder IN LISTS wheels)
        list(APPEND roots ${folder}/${wheel} ${folder}/cu13 ${folder}/cuda_runtime ${folder}/cublas)
    endforeach()
    file(GLOB kits ${YK_NVIDIA_SYSTEM_ROOT}/opt/nvidia/hpc_sdk/Linux_x86_64/*)
    list(SORT kits COMPARE NATURAL ORDER DESCENDING)
    foreach(kit $ENV{NVHPC_ROOT} ${kits})
        list(APPEND roots ${kit}/comm_libs/${wheel} ${kit}/cuda ${kit}/math_libs)
    endforeach()
    list(REMOVE_DUPLICATES roots)
    set(${out} ${roots} PARENT_SCOPE)
endfunction()

# The folders called nvidia that python3 sees; asked once a configure.
function(yk_nvidia_wheels out)
    get_property(asked GLOBAL PROPERTY YK_NVIDIA_WHEELS SET)
    if(NOT asked)
        execute_process(COMMAND python3 -c "import nvidia; print(';'.join(nvidia.__path__))"
            OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
            RESULT_VARIABLE failed)
        if(failed)
            set(folders "")
        endif()
        set_property(GLOBAL PROPERTY YK_NVIDIA_WHEELS "${folders}")
    endif()
    get_property(folders GLOBAL PROPERTY YK_NVIDIA_WHEELS)
    set(${out} ${folders} PARENT_SCOPE)
endfunction()

# yk_nvidia_find(NCCL WHEEL nccl HEADER nccl.h LIBRARIES nccl libnccl.so.2): fills the cache entries
# NCCL_INCLUDE_DIR and NCCL_LIBRARY.
function(yk_nvidia_find name)
    cmake_parse_arguments(arg "" "WHEEL;HEADER" "LIBRARIES" ${ARGN})
    yk_nvidia_roots(roots ${name} ${arg_WHEEL})
    find_library(${name}_LIBRARY NAMES ${arg_LIBRARIES} HINTS ${CUDAToolkit_LIBRARY_DIR} ${roots}
        PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
    # The header that came with the library, before any other.
    get_filename_component(folder "${${name}_LIBRARY}" DIRECTORY)
    find_path(${name}_INCLUDE_DIR ${arg_HEADER} HINTS ${folder}/.. ${roots}
        PATH_SUFFIXES include targets/x86_64-linux/include)
    mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
endfunction()

# The number that `#define <macro> N` gives in `header`, or nothing.
function(yk_header_number out header macro)
    set(number "")
    if(EXISTS ${header})
        file(STRINGS ${header} lines REGEX "^[ \t]*#[ \t]*define[ \t]+${macro}[ \t]+[0-9]+")
        if(lines)
            list(GET lines 0 line)
            string(REGEX MATCH "[0-9]+[ \t]*(/|$)" number "${line}")
            string(REGEX MATCH "[0-9]+" number "${number}")
        endif()
    endif()
    set(${out} "${number}" PARENT_SCOPE)
endfunction()

# An imported target for what yk_nvidia_find() found.
function(yk_nvidia_target target name)
    if(${name}_FOUND AND NOT TARGET ${target})
        add_library(${target} UNKNOWN IMPORTED GLOBAL)
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${name}_LIBRARY}
            INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
    endif()
endfunction()
