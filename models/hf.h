/* models/hf.h - models as Hugging Face directories keep them: config.json and names of tensors.
 *
 * Model.    A directory holds config.json, which says the shape, and safetensors files, which hold
 *           the weights by name. This file knows both for the families that there are, and no file
 *           of weights itself: it says which part of which of our parameters a tensor is.
 * Layout.   Ours are (out,in) and fused; theirs are cut (q, k, v; gate, up) and GPT-2's are turned
 *           (in,out). Rows of our vocabulary matrices from vocab on are padding and in no file.
 */
#ifndef YK_MODELS_HF_H
#define YK_MODELS_HF_H

#include "models/model.h"

#define YK_HF_CONFIG_NAME "config.json"

/* Read the shape that `dir`/config.json describes.                                      [local]
 *
 * Dropout that it asks for is warned of: there is none.
 *
 * YK_EINVAL   it cannot be read, or the sizes do not fit together
 * YK_EFORMAT  it is not JSON, its architecture or RoPE scaling is not offered, a size is missing,
 *             or it asks for what would change the model's values and is not offered
 */
yk_status yk_hf_config_read(const char *dir, yk_model_shape *shape_out);

/* The text of a config.json that transformers reads, for weights of type `dtype`. The caller owns
 * it (free()).                                                                          [local] */
yk_status yk_hf_config_text(const yk_model_shape *shape, yk_dtype dtype, char **text_out);

#define YK_HF_NAME_MAX 96

/* A tensor of a model's files, and the part of a parameter of ours that it is. */
typedef struct yk_hf_tensor {
    char name[YK_HF_NAME_MAX]; /* as transformers writes it */
    int n_dims;                /* 1 or 2 */
    int64_t shape[2];          /* in the file; a vector has shape[1] == 1 */
    int param;                 /* index of the parameter that holds it */
    int64_t row;               /* its first row there */
    bool transposed;           /* the file's rows are our columns */
} yk_hf_tensor;

/* Rows of our parameter that the tensor fills. */
static inline int64_t yk_hf_rows(const yk_hf_tensor *t)
{
    return t->transposed ? t->shape[1] : t->shape[0];
}

/* Columns of our parameter. */
static inline int64_t yk_hf_cols(const yk_hf_tensor *t)
{
    return t->transposed ? t->shape[0] : t->shape[1];
}

/* Every tensor of the model, in the order of its units. Together they fill each parameter but for
 * the padding rows. The caller owns the array (free()).                                 [local] */
yk_status yk_hf_tensors_create(const yk_model *model, yk_hf_tensor **tensors_out, int *n_out);

/* The name that `name` has in files of the model without its head, which some families are
 * published in; `name` itself where there is no other. Points into `name`. */
const char *yk_hf_short_name(const yk_model *model, const char *name);

/* The name of the head's matrix where it is a tensor of its own. */
#define YK_HF_HEAD_NAME "lm_head.weight"

/* True for tensors that old files hold beside the weights and that follow from the shape: masks,
 * rotary frequencies. */
bool yk_hf_is_derived(const char *name);

#endif
