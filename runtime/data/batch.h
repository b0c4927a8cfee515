/* runtime/data/batch.h - the tokens of one micro-batch, as a model sees them.
 *
 * Plain pointers into device memory; whoever made the batch owns what they point to. Every token id
 * was checked against the vocabulary when it was read.
 */
#ifndef YK_RUNTIME_DATA_BATCH_H
#define YK_RUNTIME_DATA_BATCH_H

#include <stdint.h>

typedef struct yk_batch {
    const int32_t *tokens;    /* (B,T) inputs */
    const int32_t *targets;   /* (B,T) what follows each input; -1 where the loss is masked */
    const int32_t *positions; /* (B,T) position of each token in its sequence or document */
    const int32_t *doc_start; /* (B,T) where in the row the token's document begins, or NULL */
    int64_t batch, seq_len;   /* B, T */
} yk_batch;

#endif
