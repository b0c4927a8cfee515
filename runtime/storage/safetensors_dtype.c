/* runtime/storage/safetensors_dtype.c - the element types of safetensors; see safetensors.h. */
#include <string.h>

#include "runtime/storage/safetensors.h"
#include "runtime/storage/safetensors_layout.h"

static const struct {
    const char *name;
    int64_t bytes;
} types[] = {
    [YK_ST_BOOL] = {"BOOL", 1}, [YK_ST_U8] = {"U8", 1},           [YK_ST_I8] = {"I8", 1},
    [YK_ST_I16] = {"I16", 2},   [YK_ST_F8_E5M2] = {"F8_E5M2", 1}, [YK_ST_F8_E4M3] = {"F8_E4M3", 1},
    [YK_ST_U16] = {"U16", 2},   [YK_ST_F16] = {"F16", 2},         [YK_ST_BF16] = {"BF16", 2},
    [YK_ST_I32] = {"I32", 4},   [YK_ST_U32] = {"U32", 4},         [YK_ST_F32] = {"F32", 4},
    [YK_ST_F64] = {"F64", 8},   [YK_ST_I64] = {"I64", 8},         [YK_ST_U64] = {"U64", 8},
};

int64_t yk_st_dtype_bytes(yk_st_dtype dtype)
{
    return types[dtype].bytes;
}

const char *yk_st_dtype_name(yk_st_dtype dtype)
{
    return types[dtype].name;
}

bool yk_st_dtype_find(const char *name, yk_st_dtype *dtype_out)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        *dtype_out = (yk_st_dtype)i;
        return true;
    }
    return false;
}

bool yk_st_dtype_own(yk_st_dtype dtype, yk_dtype *dtype_out)
{
    switch (dtype) {
    case YK_ST_F32:
        *dtype_out = YK_F32;
        return true;
    case YK_ST_BF16:
        *dtype_out = YK_BF16;
        return true;
    case YK_ST_F16:
        *dtype_out = YK_F16;
        return true;
    case YK_ST_I32:
        *dtype_out = YK_I32;
        return true;
    default:
        return false;
    }
}

yk_st_dtype yk_st_dtype_of(yk_dtype dtype)
{
    static const yk_st_dtype of[] = {
        [YK_F32] = YK_ST_F32, [YK_BF16] = YK_ST_BF16, [YK_F16] = YK_ST_F16, [YK_I32] = YK_ST_I32};
    return of[dtype];
}

bool yk_st_info_size(const yk_st_info *info, int64_t *count_out, int64_t *bytes_out)
{
    int64_t count = 1, bytes;
    for (int d = 0; d < info->n_dims; d++) {
        if (info->shape[d] < 0 || !yk_mul(count, info->shape[d], &count)) return false;
    }
    if (!yk_mul(count, yk_st_dtype_bytes(info->dtype), &bytes)) return false;
    *count_out = count;
    *bytes_out = bytes;
    return true;
}
