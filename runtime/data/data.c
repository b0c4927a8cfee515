/* runtime/data/data.c - open a dataset, split it, fill rows with windows; see data.h.
 *
 * A part is a list of stretches, each a range of positions in one space with the number of its
 * first window; train and val are ranges of the same space where val is cut from train.
 */
#include "runtime/data/data.h"

#include <stdlib.h>

#include "runtime/base/arith.h"
#include "runtime/data/space.h"

typedef struct stretch {
    int64_t begin, end;   /* positions in the space */
    int64_t first_window; /* within the part */
} stretch;

typedef struct part {
    const yk_space *space;
    stretch *stretches; /* (n_stretches) */
    int64_t n_stretches;
    int64_t n_windows, n_tokens;
    int64_t n_short; /* stretches that no window fits into */
} part;

struct yk_dataset {
    yk_space train_files, val_files; /* val_files is empty where val is cut from train */
    part parts[2];                   /* by yk_split */
    int64_t seq_len, vocab, doc_token;
    bool doc_mask;
};

/* ---- windows ------------------------------------------------------------------------------ */

static int64_t windows_in(int64_t n_tokens, int64_t seq_len, yk_split split)
{
    if (n_tokens < 2) return 0;
    return split == YK_SPLIT_TRAIN ? (n_tokens - 1) / seq_len : yk_div_up(n_tokens - 1, seq_len);
}

/* Cut the positions begin .. end-1 of a space into the stretches of a part. */
static yk_status make_part(yk_dataset *d, yk_split split, const yk_space *space, int64_t begin,
                           int64_t end)
{
    part *p = &d->parts[split];
    p->space = space;
    p->n_tokens = end - begin;
    p->stretches = calloc((size_t)space->n_files + 1, sizeof *p->stretches);
    if (!p->stretches) return yk_fail(YK_ENOMEM, "data", "no memory for its list of files");
    for (int64_t f = 0, next; f < space->n_files; f = next) {
        next = yk_space_stretch_end(space, f);
        stretch s = {.begin = yk_max(space->starts[f], begin),
                     .end = yk_min(space->starts[next], end),
                     .first_window = p->n_windows};
        if (s.begin >= s.end) continue;
        int64_t n = windows_in(s.end - s.begin, d->seq_len, split);
        p->n_windows += n;
        if (n > 0) {
            p->stretches[p->n_stretches++] = s;
        } else {
            p->n_short++;
        }
    }
    return YK_OK;
}

/* The stretch that `window` of a part lies in. */
static const stretch *stretch_of(const part *p, int64_t window)
{
    int64_t low = 0, high = p->n_stretches - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (p->stretches[middle].first_window <= window) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &p->stretches[low];
}

/* ---- opening ------------------------------------------------------------------------------ */

static yk_status too_short(const yk_dataset *d, const char *key, const yk_space *space,
                           int64_t n_tokens, int64_t needed)
{
    const char *what = space->n_files == 1 ? space->files[0].path : key;
    return yk_fail(YK_EINVAL, what,
                   "%lld tokens%s are too few for a window of train.seq_len %lld, "
                   "which takes %lld; give more data or a smaller train.seq_len",
                   (long long)n_tokens, space->n_files == 1 ? "" : " in its longest file",
                   (long long)d->seq_len, (long long)needed);
}

/* Tokens of the longest stretch of a range. */
static int64_t longest(const yk_space *space, int64_t begin, int64_t end)
{
    int64_t top = 0;
    for (int64_t f = 0, next; f < space->n_files; f = next) {
        next = yk_space_stretch_end(space, f);
        top = yk_max(top, yk_min(space->starts[next], end) - yk_max(space->starts[f], begin));
    }
    return top;
}

static yk_status make_train(yk_dataset *d, int64_t end)
{
    const yk_space *space = &d->train_files;
    YK_TRY(make_part(d, YK_SPLIT_TRAIN, space, 0, end));
    const part *p = &d->parts[YK_SPLIT_TRAIN];
    if (p->n_windows == 0) {
        return too_short(d, "data.train", space, longest(space, 0, end), d->seq_len + 1);
    }
    if (p->n_short > 0) {
        yk_warn("data.train",
                "%lld of its files have fewer than the %lld tokens of a window and "
                "are left out",
                (long long)p->n_short, (long long)d->seq_len + 1);
    }
    return YK_OK;
}

/* Cut the last `fraction` of train's tokens off for validation; where train ends. */
static yk_status make_val_of_train(yk_dataset *d, double fraction, int64_t *end_out)
{
    const yk_space *space = &d->train_files;
    int64_t n = (int64_t)((double)space->n_tokens * fraction + 0.5);
    if (fraction > 0) {
        YK_TRY(make_part(d, YK_SPLIT_VAL, space, space->n_tokens - n, space->n_tokens));
        if (d->parts[YK_SPLIT_VAL].n_windows == 0) {
            return yk_fail(
                YK_EINVAL, "data.val_fraction",
                "%g of %lld tokens leaves nothing to "
                "validate on: a window takes %lld; give more data, a larger fraction, or 0",
                fraction, (long long)space->n_tokens, (long long)d->seq_len + 1);
        }
    }
    *end_out = space->n_tokens - n;
    return YK_OK;
}

static yk_status make_parts(yk_dataset *d, const yk_config *config)
{
    int64_t train_end = d->train_files.n_tokens;
    if (config->data.val.n_items > 0) {
        const yk_space *space = &d->val_files;
        YK_TRY(make_part(d, YK_SPLIT_VAL, space, 0, space->n_tokens));
        if (d->parts[YK_SPLIT_VAL].n_windows == 0) {
            return too_short(d, "data.val", space, longest(space, 0, space->n_tokens), 2);
        }
    } else {
        YK_TRY(make_val_of_train(d, config->data.val_fraction, &train_end));
    }
    return config->data.train.n_items > 0 ? make_train(d, train_end) : YK_OK;
}

static bool knows_documents(const yk_space *space)
{
    bool is_list_of_texts = space->n_files > 1;
    for (int64_t i = 0; i < space->n_files; i++) {
        if (space->files[i].format == YK_DATA_MEGATRON) continue;
        if (space->files[i].format != YK_DATA_TEXT || !is_list_of_texts) return false;
    }
    return true;
}

static yk_status check_documents(const yk_dataset *d)
{
    if (d->doc_token >= d->vocab) {
        return yk_fail(YK_EINVAL, "data.doc_token", "%lld is outside of the vocabulary of %lld",
                       (long long)d->doc_token, (long long)d->vocab);
    }
    if (!d->doc_mask || d->doc_token >= 0) return YK_OK;
    if (knows_documents(&d->train_files) && knows_documents(&d->val_files)) return YK_OK;
    return yk_fail(YK_EINVAL, "data.doc_mask",
                   "the data does not say where documents end; set "
                   "data.doc_token to the id that ends one");
}

static yk_status open_files(yk_dataset *d, const yk_config *config,
                            const yk_token_file_options *options)
{
    YK_TRY(yk_space_open("data.train", &config->data.train, options, &d->train_files));
    YK_TRY(yk_space_open("data.val", &config->data.val, options, &d->val_files));
    if (config->data.loss_mask.n_items > 0) {
        YK_TRY(yk_space_set_masks(&d->train_files, &config->data.loss_mask));
    }
    YK_TRY(check_documents(d));
    return make_parts(d, config);
}

yk_status yk_dataset_open(const yk_config *config, int64_t vocab, yk_dataset **dataset_out)
{
    if (config->data.train.n_items + config->data.val.n_items == 0) {
        return yk_fail(YK_EINVAL, "data.train", "no data is given; set data.train to a file");
    }
    yk_tokenizer *tokenizer;
    YK_TRY(yk_tokenizer_open(config->data.tokenizer, &tokenizer));
    yk_token_file_options options = {.format = config->data.format,
                                     .dtype = config->data.dtype,
                                     .tokenizer = tokenizer,
                                     .vocab = vocab};
    yk_dataset *d = calloc(1, sizeof *d);
    yk_status status = d ? YK_OK : yk_fail(YK_ENOMEM, "data", "no memory to open it");
    if (d) {
        d->seq_len = config->train.seq_len;
        d->vocab = vocab;
        d->doc_token = config->data.doc_token;
        d->doc_mask = config->data.doc_mask;
        status = open_files(d, config, &options);
    }
    yk_tokenizer_close(tokenizer);
    if (status != YK_OK) {
        yk_dataset_close(d);
        return status;
    }
    *dataset_out = d;
    return YK_OK;
}

yk_status yk_dataset_check(const yk_dataset *dataset)
{
    yk_data_fault fault;
    int64_t bytes_left = YK_DATA_CHECK_BYTES;
    yk_status status = yk_space_check(&dataset->train_files, dataset->vocab, &bytes_left, &fault);
    if (status == YK_OK) {
        status = yk_space_check(&dataset->val_files, dataset->vocab, &bytes_left, &fault);
    }
    return status == YK_OK ? YK_OK : yk_dataset_report(dataset, &fault);
}

void yk_dataset_close(yk_dataset *dataset)
{
    if (!dataset) return;
    free(dataset->parts[YK_SPLIT_TRAIN].stretches);
    free(dataset->parts[YK_SPLIT_VAL].stretches);
    yk_space_close(&dataset->train_files);
    yk_space_close(&dataset->val_files);
    free(dataset);
}

int64_t yk_dataset_seq_len(const yk_dataset *dataset)
{
    return dataset->seq_len;
}

int64_t yk_dataset_n_windows(const yk_dataset *dataset, yk_split split)
{
    return dataset->parts[split].n_windows;
}

int64_t yk_dataset_n_tokens(const yk_dataset *dataset, yk_split split)
{
    return dataset->parts[split].n_tokens;
}

int yk_dataset_n_fields(const yk_dataset *dataset)
{
    return dataset->doc_mask ? 4 : 3;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Fill doc_start and positions of a row that begins at `begin` in the space. */
static void mark_documents(const yk_dataset *d, const yk_space *space, int64_t begin, int64_t n,
                           const yk_row *row)
{
    int32_t start = 0;
    int64_t next = space ? yk_space_next_document(space, begin + 1) - begin : n;
    for (int32_t i = 0; i < d->seq_len; i++) {
        bool at_end = i > 0 && i < n && d->doc_token >= 0 && row->tokens[i - 1] == d->doc_token;
        if (at_end || (i == next && i < n)) start = i;
        if (i == next && i < n) next = yk_space_next_document(space, begin + i + 1) - begin;
        row->doc_start[i] = start;
        row->positions[i] = i - start;
    }
}

/* Mask what a row has beyond its n tokens, and give every token its position. */
static void finish_row(const yk_dataset *d, const yk_space *space, int64_t begin, int64_t n,
                       const yk_row *row)
{
    for (int64_t i = n; i < d->seq_len; i++) {
        row->tokens[i] = 0;
        row->targets[i] = -1;
    }
    if (d->doc_mask) {
        mark_documents(d, space, begin, n, row);
        return;
    }
    for (int32_t i = 0; i < d->seq_len; i++) row->positions[i] = i;
}

yk_status yk_dataset_fill(const yk_dataset *dataset, yk_split split, int64_t window,
                          const yk_row *row, yk_data_fault *fault_out)
{
    if (window < 0) {
        finish_row(dataset, NULL, 0, 0, row);
        return YK_OK;
    }
    const part *p = &dataset->parts[split];
    YK_CHECK(window < p->n_windows);
    const stretch *s = stretch_of(p, window);
    int64_t begin = s->begin + (window - s->first_window) * dataset->seq_len;
    int64_t n = yk_min(dataset->seq_len, s->end - 1 - begin);
    YK_TRY(yk_space_read(p->space, begin, n, dataset->vocab, row->tokens, fault_out));
    for (int64_t i = 0; i + 1 < n; i++) row->targets[i] = row->tokens[i + 1];
    YK_TRY(yk_space_read(p->space, begin + n, 1, dataset->vocab, row->targets + n - 1, fault_out));
    yk_space_mask(p->space, begin + 1, n, row->targets);
    finish_row(dataset, p->space, begin, n, row);
    return YK_OK;
}

yk_status yk_dataset_report(const yk_dataset *dataset, const yk_data_fault *fault)
{
    return yk_fail(YK_EFORMAT, fault->path,
                   "token %lld is id %lld, outside of the vocabulary of %lld; use data made by the "
                   "model's own tokenizer, or set data.dtype and model.vocab to what it is%s",
                   (long long)fault->position, (long long)fault->id, (long long)dataset->vocab,
                   dataset->vocab < 256 ? " (bytes of text need model.vocab: 256)" : "");
}
