/* runtime/data/token_text.c - plain text: its bytes as they lie in the file, or a tokenizer's
 * ids. */
#include <stdlib.h>

#include "runtime/data/token_format.h"

static yk_status encode(yk_token_file *file, const yk_token_file_options *options)
{
    yk_tokens tokens = {0};
    yk_status status = yk_tokenizer_encode(options->tokenizer, (const char *)file->map.data,
                                           file->map.bytes, &tokens);
    yk_file_map_close(&file->map); /* the text has been read */
    file->encoded = tokens.ids;
    YK_TRY(status);
    if (tokens.n == 0) return yk_fail(YK_EFORMAT, file->path, "has no tokens");
    for (int64_t i = 0; i < tokens.n; i++) {
        if (tokens.ids[i] < options->vocab) continue;
        return yk_fail(YK_EFORMAT, file->path,
                       "its tokenizer gives id %d, outside of the model's vocabulary of %lld; use "
                       "the model's own tokenizer, or set model.vocab to %lld",
                       tokens.ids[i], (long long)options->vocab,
                       (long long)yk_tokenizer_vocab(options->tokenizer));
    }
    file->ids = tokens.ids;
    file->width = 4;
    file->n_tokens = tokens.n;
    return YK_OK;
}

yk_status yk_token_file_open_text(yk_token_file *file, const yk_token_file_options *options)
{
    if (options->tokenizer && !yk_tokenizer_is_bytes(options->tokenizer)) {
        return encode(file, options);
    }
    file->ids = file->map.data;
    file->width = 1;
    file->n_tokens = file->map.bytes;
    return YK_OK;
}
