/* runtime/data/prepare.c - see prepare.h. */
#include "runtime/data/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/data/shard_writer.h"
#include "runtime/data/space.h"
#include "runtime/storage/file.h"

#define CHUNK 65536 /* ids that are on their way at a time */

/* One call of yk_prepare(). */
typedef struct preparing {
    const yk_prepare_options *o;
    yk_prepare_result result;
    yk_space space;
    char *out;     /* the directory, without slashes at its end */
    char *partial; /* its name until it is whole */
    int32_t *ids;  /* (CHUNK) */
} preparing;

/* ---- before anything is written ----------------------------------------------------------- */

static yk_status read_inputs(preparing *p)
{
    yk_tokenizer *tokenizer;
    YK_TRY(yk_tokenizer_open(p->o->tokenizer, &tokenizer));
    p->result.vocab = yk_tokenizer_vocab(tokenizer);
    yk_token_file_options options = {
        .format = YK_DATA_AUTO, .tokenizer = tokenizer, .vocab = p->result.vocab};
    yk_status status = yk_space_open("the command", &p->o->inputs, &options, &p->space);
    yk_tokenizer_close(tokenizer);
    YK_TRY(status);
    for (int64_t i = 0; i < p->space.n_files; i++) {
        if (p->space.files[i].format == YK_DATA_TEXT) continue;
        return yk_fail(YK_EINVAL, p->space.files[i].path,
                       "holds tokens already; name it in data.train as it is");
    }
    return YK_OK;
}

/* Decide how many tokens go where. */
static yk_status split(preparing *p)
{
    yk_prepare_result *r = &p->result;
    int64_t marks = p->o->doc_token >= 0 ? p->space.n_files : 0, n = p->space.n_tokens + marks;
    if (p->o->doc_token >= r->vocab) {
        return yk_fail(YK_EINVAL, "--doc-token",
                       "%lld is outside of the tokenizer's vocabulary of "
                       "%lld",
                       (long long)p->o->doc_token, (long long)r->vocab);
    }
    r->val_tokens = (int64_t)((double)n * p->o->val_fraction + 0.5);
    r->train_tokens = n - r->val_tokens;
    if (r->train_tokens < 2 || (p->o->val_fraction > 0 && r->val_tokens < 2)) {
        return yk_fail(YK_EINVAL, "--val-fraction",
                       "%g of %lld tokens leaves %lld to train and %lld to validate on; at least 2 "
                       "of each are needed",
                       p->o->val_fraction, (long long)n, (long long)r->train_tokens,
                       (long long)r->val_tokens);
    }
    return YK_OK;
}

static yk_status name_directory(preparing *p)
{
    size_t n = strlen(p->o->out);
    while (n > 1 && p->o->out[n - 1] == '/') n--;
    p->out = strndup(p->o->out, n);
    p->partial = malloc(n + sizeof ".partial");
    p->ids = malloc(CHUNK * sizeof *p->ids);
    if (!p->out || !p->partial || !p->ids) return yk_fail(YK_ENOMEM, p->o->out, "no memory");
    snprintf(p->partial, n + sizeof ".partial", "%s.partial", p->out);
    if (!yk_file_exists(p->out)) return YK_OK;
    yk_file_list names;
    YK_TRY(yk_dir_list(p->out, &names));
    int64_t n_names = names.n_items;
    yk_file_list_fini(&names);
    if (n_names == 0) return YK_OK;
    return yk_fail(YK_EINVAL, p->out, "is there already, with %lld files; name another",
                   (long long)n_names);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* The two streams of shards, and how far writing is. */
typedef struct streams {
    yk_shard_writer *train, *val;
    int64_t n_train, n; /* tokens that go to train; tokens written */
} streams;

static yk_status add(streams *s, const int32_t *ids, int64_t n)
{
    int64_t to_train = yk_max(0, yk_min(n, s->n_train - s->n));
    s->n += n;
    YK_TRY(yk_shard_writer_add(s->train, ids, to_train));
    return yk_shard_writer_add(s->val, ids + to_train, n - to_train);
}

static yk_status write_file(const preparing *p, streams *s, int64_t f)
{
    int64_t end = p->space.starts[f + 1];
    yk_data_fault fault; /* none: the ids are the tokenizer's own, and were checked at open */
    for (int64_t at = p->space.starts[f]; at < end; at += CHUNK) {
        int64_t n = yk_min(CHUNK, end - at);
        YK_TRY(yk_space_read(&p->space, at, n, p->result.vocab, p->ids, &fault));
        YK_TRY(add(s, p->ids, n));
    }
    if (p->o->doc_token < 0) return YK_OK;
    return add(s, &(int32_t){(int32_t)p->o->doc_token}, 1);
}

static yk_status write_shards(preparing *p, streams *s)
{
    yk_prepare_result *r = &p->result;
    YK_TRY(yk_shard_writer_open(p->partial, "train", r->vocab, p->o->shard_tokens, &s->train));
    YK_TRY(yk_shard_writer_open(p->partial, "val", r->vocab, p->o->shard_tokens, &s->val));
    for (int64_t f = 0; f < p->space.n_files; f++) YK_TRY(write_file(p, s, f));
    yk_shard_writer *train = s->train, *val = s->val;
    s->train = NULL;
    YK_TRY(yk_shard_writer_close(train, &r->train_shards));
    s->val = NULL;
    return yk_shard_writer_close(val, &r->val_shards);
}

/* Remove a directory of shards; what cannot be removed stays. */
static void remove_shards(const char *dir)
{
    yk_file_list names;
    if (!yk_dir_exists(dir) || yk_dir_list(dir, &names) != YK_OK) return;
    for (int64_t i = 0; i < names.n_items; i++) {
        char *path = yk_path_join(dir, names.items[i]);
        if (path) yk_file_remove(path);
        free(path);
    }
    yk_file_list_fini(&names);
    yk_file_remove(dir);
}

static yk_status write_directory(preparing *p)
{
    streams s = {.n_train = p->result.train_tokens};
    remove_shards(p->partial); /* of a call that was killed */
    YK_TRY(yk_dir_create(p->partial));
    yk_status status = write_shards(p, &s);
    yk_shard_writer_abort(s.train);
    yk_shard_writer_abort(s.val);
    if (status == YK_OK) status = yk_dir_sync(p->partial);
    if (status == YK_OK) status = yk_file_rename(p->partial, p->out);
    if (status != YK_OK) remove_shards(p->partial);
    return status;
}

yk_status yk_prepare(const yk_prepare_options *options, yk_prepare_result *result_out)
{
    preparing p = {.o = options};
    yk_status status = name_directory(&p);
    if (status == YK_OK) status = read_inputs(&p);
    if (status == YK_OK) status = split(&p);
    if (status == YK_OK) status = write_directory(&p);
    if (status == YK_OK) *result_out = p.result;
    yk_space_close(&p.space);
    free(p.out);
    free(p.partial);
    free(p.ids);
    return status;
}
