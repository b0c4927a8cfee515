/* tests/engine/tensor_files.h - Hugging Face directories as a test wants them, right or wrong.
 *
 *     tensor_files f = tensor_files_of(model, values, YK_F32);
 *     tensor_files_drop(&f, "model.norm.weight");
 *     tensor_files_write(&f, dir, 0);
 */
#ifndef YK_TESTS_ENGINE_TENSOR_FILES_H
#define YK_TESTS_ENGINE_TENSOR_FILES_H

#include "models/hf.h"
#include "runtime/storage/safetensors.h"

typedef struct tensor_file {
    yk_st_info info;
    char name[YK_HF_NAME_MAX];
    void *data; /* owned */
} tensor_file;

typedef struct tensor_files {
    tensor_file *items; /* owned */
    int n;
} tensor_files;

/* Every tensor of the model as transformers lays it out, from (n_params) arrays of our parameters,
 * rounded to `dtype`. */
tensor_files tensor_files_of(const yk_model *model, double *const *values, yk_dtype dtype);

/* The entry of that name; aborts when there is none. Borrowed until one is added or dropped. */
tensor_file *tensor_files_find(const tensor_files *f, const char *name);

void tensor_files_drop(tensor_files *f, const char *name);

/* Add a tensor of one dimension whose data are `n` numbers rounded to `dtype`. */
void tensor_files_add(tensor_files *f, const char *name, yk_dtype dtype, const double *values,
                      int64_t n);

/* Write them into `dir`; more than max_shard_bytes of them (0: no limit) into several files. */
void tensor_files_write(const tensor_files *f, const char *dir, int64_t max_shard_bytes);

void tensor_files_release(tensor_files *f);

#endif
