# cuBLASLt of the toolkit's major version, CUBLASLT_MAJOR: makes the target CUBLASLT::CUBLASLT.
include(NvidiaFind)
include(FindPackageHandleStandardArgs)

yk_nvidia_find(CUBLASLT WHEEL cublas HEADER cublasLt.h
    LIBRARIES libcublasLt.so.${CUBLASLT_MAJOR} cublasLt)
find_package_handle_standard_args(CUBLASLT REQUIRED_VARS CUBLASLT_LIBRARY CUBLASLT_INCLUDE_DIR)
yk_nvidia_target(CUBLASLT::CUBLASLT CUBLASLT)
