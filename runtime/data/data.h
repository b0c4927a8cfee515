/* runtime/data/data.h - the tokens of a run: files, the split, and windows of them.
 *
 * Model.    A dataset has two parts, train and val. Each is cut into windows of T + 1 tokens: T
 *           inputs and, one further on, T targets. Window w of a stretch of tokens covers w*T up to
 *           and with w*T + T, so that the last token of one window is the first of the next, and
 *           every token but a stretch's first is a target exactly once.
 * Files.    Each file of token ids is a stretch of its own: windows do not cross its end. Text files
 *           that follow each other in a list are one stretch, as if they were one file.
 * Split.    val is data.val; else the last data.val_fraction of train's tokens, whatever T is.
 *           Training takes whole windows only; validation takes every target, so the last window of
 *           a stretch may be shorter, with its rest masked.
 * Documents. With data.doc_mask a document ends after data.doc_token, at the end of a text file, and
 *           where a Megatron index says; positions count from its first token in the window.
 * Threads.  An open dataset may be shared.
 */
#ifndef YK_RUNTIME_DATA_DATA_H
#define YK_RUNTIME_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/config.h"
#include "runtime/base/status.h"

typedef struct yk_dataset yk_dataset;

typedef enum yk_split {
    YK_SPLIT_TRAIN,
    YK_SPLIT_VAL,
} yk_split;

/* Open the files of config->data for windows of config->train.seq_len; the caller owns the dataset.
 *                                                                                        [local]
 * config  data.train may be empty, as when a model is only evaluated; data.val too
 * vocab   the model's: ids are 0 .. vocab-1
 *
 * YK_EINVAL   a pattern that no file matches; too few tokens for a window; a document mask without a
 *             token that ends documents; and what yk_token_file_open() says
 * YK_EFORMAT  what yk_token_file_open() says
 */
yk_status yk_dataset_open(const yk_config *config, int64_t vocab, yk_dataset **dataset_out);

/* Compare the ids of both parts with the vocabulary, so that bad data are found before a run has
 * begun; at most YK_DATA_CHECK_BYTES of them. What lies beyond is compared when it is read. [local]
 *
 * YK_EFORMAT  an id is outside of the vocabulary
 */
yk_status yk_dataset_check(const yk_dataset *dataset);

#define YK_DATA_CHECK_BYTES (INT64_C(1) << 30) /* less than a second where the files are cached */

/* Release the dataset. NULL does nothing. */
void yk_dataset_close(yk_dataset *dataset);

/* T. */
int64_t yk_dataset_seq_len(const yk_dataset *dataset);

/* Windows of a part; 0: there is no such part. */
int64_t yk_dataset_n_windows(const yk_dataset *dataset, yk_split split);

/* Tokens of a part, those that no window covers included. */
int64_t yk_dataset_n_tokens(const yk_dataset *dataset, yk_split split);

/* int32 arrays of a batch in host memory: tokens, targets, positions and, with data.doc_mask,
 * doc_start; 3 or 4. */
int yk_dataset_n_fields(const yk_dataset *dataset);

/* One row of a batch: where its fields go. */
typedef struct yk_row {
    int32_t *tokens, *targets, *positions; /* (T) */
    int32_t *doc_start;                    /* (T); NULL without data.doc_mask */
} yk_row;

/* A token id outside the vocabulary, and where it is. */
typedef struct yk_data_fault {
    const char *path; /* borrowed from the dataset; NULL: no fault */
    int64_t position, id;
} yk_data_fault;

/* Fill a row with a window, as yk_batch has it. window == -1 gives a row without a target. Nothing is
 * reported, so that a row that is never used costs nobody a message.                     [local]
 *
 * YK_EFORMAT  an id is outside of the vocabulary; *fault_out says which
 */
yk_status yk_dataset_fill(const yk_dataset *dataset, yk_split split, int64_t window,
                          const yk_row *row, yk_data_fault *fault_out);

/* Report a fault that yk_dataset_fill() found, and return YK_EFORMAT.                    [local] */
yk_status yk_dataset_report(const yk_dataset *dataset, const yk_data_fault *fault);

#endif
