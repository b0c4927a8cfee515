/* runtime/storage/safetensors_layout.h - what reader and writer agree on about a file. */
#ifndef YK_RUNTIME_STORAGE_SAFETENSORS_LAYOUT_H
#define YK_RUNTIME_STORAGE_SAFETENSORS_LAYOUT_H

#include "runtime/base/arith.h"
#include "runtime/storage/safetensors.h"

#define YK_ST_PREFIX_BYTES 8         /* the header's length, little-endian */
#define YK_ST_HEADER_MAX   100000000 /* the longest header that readers of the format accept */
#define YK_ST_SINGLE_NAME  "model.safetensors"
#define YK_ST_INDEX_NAME   "model.safetensors.index.json"

/* The type with that name in a header; false if there is none. */
bool yk_st_dtype_find(const char *name, yk_st_dtype *dtype_out);

/* Elements and bytes of a tensor; false if a side is negative or the product does not fit. */
bool yk_st_info_size(const yk_st_info *info, int64_t *count_out, int64_t *bytes_out);

#endif
