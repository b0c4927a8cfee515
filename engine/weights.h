/* engine/weights.h - the weights of a model between the parameter store and a Hugging Face
 * directory.
 *
 * Model.    What transformers reads and writes, with no step between: config.json and
 *           model.safetensors, or several files and their index. Tensors pass through host memory
 *           in chunks of a few MiB, so a model that fills the machine can be read and written.
 * Types.    Files hold fp32, bf16 or fp16; the store is read and written in fp32.
 * Failure.  Everything a file says is checked before the store is touched. A write that fails
 *           leaves what was there before.
 */
#ifndef YK_ENGINE_WEIGHTS_H
#define YK_ENGINE_WEIGHTS_H

#include "models/hf.h"
#include "optim/store/store.h"

/* All zeros is one file of fp32 without a tokenizer. */
typedef struct yk_weights_save_options {
    yk_dtype dtype; /* of the files: YK_F32, YK_BF16 or YK_F16 */
    const char
        *tokenizer; /* tokenizer.json, or its directory, to copy beside the weights; or NULL */
    bool only_read; /* on ranks that write no files: take part in reading the store */
    int64_t max_shard_bytes; /* the most data in one file; 0: 5 GB, as transformers has it */
} yk_weights_save_options;

/* Write config.json, the weights and the tokenizer into `dir`, which is made if it is not there.
 * Blocks.
 *
 * Everything is on the disk before the first file takes its name, and each takes its name at once;
 * the weights first. A weight beyond what fp16 holds is written as infinity, with a warning.
 *
 * YK_EINVAL  the directory or the tokenizer is at fault, or the disk is full
 * YK_EIO     the system refused a write
 */
yk_status yk_weights_save(yk_store *store, const yk_model *model, const char *dir,
                          const yk_weights_save_options *options, yk_stream *stream);

/* Read every weight of `model` from the files in `dir`; padding rows become zero. Blocks.
 *
 * Tensors that are not the model's are left out, with a warning; so is a head of its own that
 * differs from the embedding where the two are tied.
 *
 * YK_EINVAL   there are no weights in `dir`
 * YK_EFORMAT  a file is damaged; a tensor is missing, or has the wrong shape or type: it is named
 */
yk_status yk_weights_load(yk_store *store, const yk_model *model, const char *dir,
                          yk_stream *stream);

#endif
