/* runtime/device/wire.h - what gradients travel as: packing, unpacking and adding in host memory, on
 * the calling thread. The same as operations of a stream, in a device's memory: ops_wire.h.
 *
 * Formats.  fp32, bf16 and fp16. fp16 values are multiplied by a power of two that all ranks agreed
 *           on, from the greatest finite gradient of any of them: so near to the top of the format
 *           that the sum over the ranks just fits. Powers of two change no digit.
 * Finite    stays finite: bf16, whose rounding could reach infinity, stops at its greatest number.
 *           Infinities and NaNs stay what they are.
 * In place. A buffer may be packed into itself, where the wire is no wider, and unpacked likewise.
 */
#ifndef YK_RUNTIME_DEVICE_WIRE_H
#define YK_RUNTIME_DEVICE_WIRE_H

#include <stdbool.h>

#include "runtime/base/dtype.h"

/* The greatest finite |x[i]|; 0 when there is none.
 *
 * x  (n) of `dtype`
 */
float yk_wire_greatest(const void *x, int64_t n, yk_dtype dtype);

/* The exponent of the scale for fp16: no finite value, and no sum of them over up to 8192 ranks, gets
 * over 2^15. 0 for greatest 0. */
int yk_wire_scale_exponent(float greatest, int n_ranks);

/* wire[i] = x[i] * 2^exponent, rounded. Returns how many x[i] != 0 became 0.
 *
 * wire  (n) of `to`; may be x, or lie below it where what it overwrites has been packed before
 * x     (n) of `from`, no narrower than `to`
 */
int64_t yk_wire_pack(void *wire, yk_dtype to, const void *x, yk_dtype from, int64_t n,
                     int exponent);

/* x[i] = wire[i] * 2^-exponent, rounded; with `accumulate` added to what is there, in fp32.
 *
 * x     (n) of `to`; may be wire, when not accumulate
 * wire  (n) of `from`, no wider than `to`
 */
void yk_wire_unpack(void *x, yk_dtype to, const void *wire, yk_dtype from, int64_t n, int exponent,
                    bool accumulate);

/* sum[i] = parts[0][i] + parts[1][i] + ..., added in fp32 in this order, and rounded.
 *
 * sum    (n) of `wire`; may be one of the parts
 * parts  (n_parts), each (n) of `wire`
 */
void yk_wire_sum(void *sum, const void *const *parts, int n_parts, int64_t n, yk_dtype wire);

#endif
