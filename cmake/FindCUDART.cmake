# The CUDA runtime, linked statically, so that the program asks the machine it runs on for nothing but
# the driver: makes the target CUDART::CUDART.
include(NvidiaFind)
include(FindPackageHandleStandardArgs)

yk_nvidia_find(CUDART WHEEL cuda_runtime HEADER cuda_runtime.h LIBRARIES libcudart_static.a)
find_package_handle_standard_args(CUDART REQUIRED_VARS CUDART_LIBRARY CUDART_INCLUDE_DIR)
yk_nvidia_target(CUDART::CUDART CUDART)
if(TARGET CUDART::CUDART)
    set_target_properties(CUDART::CUDART PROPERTIES INTERFACE_LINK_LIBRARIES "rt;pthread;dl")
endif()
