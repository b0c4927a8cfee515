# NCCL: sets NCCL_FOUND and NCCL_VERSION, and makes the target NCCL::NCCL.
# NCCL_ROOT, NCCL_HOME or EBROOTNCCL point at one that lies elsewhere.
include(NvidiaFind)
include(FindPackageHandleStandardArgs)

yk_nvidia_find(NCCL WHEEL nccl HEADER nccl.h LIBRARIES nccl libnccl.so.2)
if(NCCL_INCLUDE_DIR)
    yk_header_number(major ${NCCL_INCLUDE_DIR}/nccl.h NCCL_MAJOR)
    yk_header_number(minor ${NCCL_INCLUDE_DIR}/nccl.h NCCL_MINOR)
    yk_header_number(patch ${NCCL_INCLUDE_DIR}/nccl.h NCCL_PATCH)
    set(NCCL_VERSION ${major}.${minor}.${patch})
endif()
find_package_handle_standard_args(NCCL
    REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
yk_nvidia_target(NCCL::NCCL NCCL)
