# cuDNN: sets CUDNN_FOUND and CUDNN_VERSION, and makes the target CUDNN::CUDNN.
# CUDNN_ROOT, CUDNN_HOME or EBROOTCUDNN point at one that lies elsewhere.
include(NvidiaFind)
include(FindPackageHandleStandardArgs)

yk_nvidia_find(CUDNN WHEEL cudnn HEADER cudnn.h LIBRARIES cudnn libcudnn.so.9)
if(CUDNN_INCLUDE_DIR)
    yk_header_number(major ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN_MAJOR)
    yk_header_number(minor ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN_MINOR)
    yk_header_number(patch ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN_PATCHLEVEL)
    set(CUDNN_VERSION ${major}.${minor}.${patch})
endif()
find_package_handle_standard_args(CUDNN
    REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
yk_nvidia_target(CUDNN::CUDNN CUDNN)
