# Whether there is a CUDA to build with.
set(YK_HAVE_CUDA OFF)
set(YK_CUDA_REASON "switched off")
