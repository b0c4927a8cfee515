# The language and the flags.
#
# Floating point: bits are a promise (DESIGN.md, "every reduction has one order"), so every flag here
# leaves IEEE arithmetic as it is written.
#   -ffp-contract=off      a*b+c is two roundings, in a vector body and in its tail alike; otherwise the
#                          bits of an element would depend on where a shard or a thread's share begins.
#                          Where fused arithmetic pays, a kernel says so with fmaf().
#   -fno-math-errno        sqrtf() becomes an instruction; no result changes.
#   -fno-trapping-math     comparisons may become selects; no result changes.
# Never -ffast-math or -fassociative-math: they let the compiler choose the order of a sum.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O3 -g")
set(CMAKE_C_FLAGS_RELEASE "-O3")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -g")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")

# Linux and glibc, everywhere; empty, so that a file that defines it itself does no harm.
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>)
add_compile_options($<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>)
add_compile_options(
    "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wvla;-Wstrict-prototypes;-Wmissing-prototypes>")
if(YK_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(YK_SANITIZE)
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:-fsanitize=${YK_SANITIZE};-fno-omit-frame-pointer>")
    add_compile_options($<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>)
    add_link_options(-fsanitize=${YK_SANITIZE})
endif()

# The processor that the CPU kernels are compiled for.
if(YK_NATIVE)
    set(YK_MARCH -march=native)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(YK_MARCH -march=x86-64-v2)
else()
    set(YK_MARCH "")
endif()
