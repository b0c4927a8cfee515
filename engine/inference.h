/* engine/inference.h - a model from a directory, ready to be evaluated or to write. */
#ifndef YK_ENGINE_INFERENCE_H
#define YK_ENGINE_INFERENCE_H

#include "engine/engine.h"
#include "runtime/text/tokenizer.h"

/* An open model; everything in it is owned. */
typedef struct yk_inference {
    yk_config config;
    yk_model_shape shape;
    yk_device *device;
    yk_engine *engine;
    yk_tokenizer *tokenizer;
} yk_inference;

typedef struct yk_inference_options {
    const char *dir;       /* a Hugging Face directory or the folder of a run */
    const char *tokenizer; /* tokenizer.json; "" : the directory's own, or bytes */
    yk_dtype dtype;        /* to compute in */
    int64_t batch;         /* sequences at a time */
    int64_t seq_len;       /* positions; at most what the model has, which 0 stands for */
    int64_t threads;       /* of the CPU; 0: all */
    bool doc_mask;         /* as data.doc_mask, for data to evaluate on */
} yk_inference_options;

/* Open a model and load its weights.
 *
 * YK_EINVAL, YK_EFORMAT  the directory, its files or the options are wrong
 * YK_ENOFIT              there is not memory enough
 */
yk_status yk_inference_open(const yk_inference_options *options, yk_inference *inference_out);
void yk_inference_close(yk_inference *inference);

#endif
