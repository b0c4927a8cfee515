# One folder, one static library.

# The .c files under `folder`, as absolute paths; a file that appears or goes makes the next build
# configure again.
function(yk_folder_sources out folder)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${folder}/*.c)
    list(SORT found)
    set(${out} ${found} PARENT_SCOPE)
endfunction()

# yk_library(yk_comm SOURCES ... SEES yk_runtime USES yk_dep_mpi)
#
# SEES  our libraries whose headers the folder may include, as DESIGN.md section 2 has it
# USES  other people's libraries, not visible to those who include our headers
#
# A folder that has no source yet is an interface library, so that link lines can name it.
function(yk_library name)
    cmake_parse_arguments(arg "" "" "SOURCES;SEES;USES" ${ARGN})
    if(arg_SOURCES)
        add_library(${name} STATIC ${arg_SOURCES})
        target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
        target_link_libraries(${name} PUBLIC ${arg_SEES} PRIVATE ${arg_USES})
        set_target_properties(${name} PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
    else()
        add_library(${name} INTERFACE)
        target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
        target_link_libraries(${name} INTERFACE ${arg_SEES} ${arg_USES})
    endif()
endfunction()
