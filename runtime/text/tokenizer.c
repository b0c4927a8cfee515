/* runtime/text/tokenizer.c - see tokenizer.h.
 *
 * A text passes the parts of yk_tokenizer from top to bottom; each narrows it down, until a word
 * reaches byte-pair encoding.
 */
#include "runtime/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/storage/file.h"
#include "runtime/text/tokenizer_parts.h"

yk_status yk_tokens_reserve(yk_tokens *tokens, int64_t n)
{
    if (n <= tokens->capacity - tokens->n) return YK_OK;
    int64_t capacity = tokens->capacity < 64 ? 64 : tokens->capacity;
    while (capacity - tokens->n < n) capacity += capacity / 2;
    int32_t *ids = realloc(tokens->ids, (size_t)capacity * sizeof *ids);
    if (!ids) return yk_fail(YK_ENOMEM, "tokens", "no memory for %lld ids", (long long)capacity);
    tokens->ids = ids;
    tokens->capacity = capacity;
    return YK_OK;
}

yk_status yk_tokens_add(yk_tokens *tokens, int32_t id)
{
    if (tokens->n == tokens->capacity) YK_TRY(yk_tokens_reserve(tokens, 1));
    tokens->ids[tokens->n++] = id;
    return YK_OK;
}

void yk_tokens_fini(yk_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (yk_tokens){0};
}

/* ---- opening ------------------------------------------------------------------------------ */

static yk_status read_path(yk_tokenizer *t, const char *path)
{
    if (!yk_dir_exists(path)) return yk_tokenizer_read_json(t, path);
    char *inside = yk_path_join(path, "tokenizer.json");
    if (!inside) return yk_fail(YK_ENOMEM, path, "no memory to open it");
    yk_status status = yk_tokenizer_read_json(t, inside);
    free(inside);
    return status;
}

yk_status yk_tokenizer_open(const char *path, yk_tokenizer **tokenizer_out)
{
    yk_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return yk_fail(YK_ENOMEM, "tokenizer", "no memory to open it");
    t->is_bytes = !path[0];
    yk_status status = t->is_bytes ? YK_OK : read_path(t, path);
    if (status != YK_OK) {
        yk_tokenizer_close(t);
        return status;
    }
    *tokenizer_out = t;
    return YK_OK;
}

void yk_tokenizer_close(yk_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    yk_added_fini(&tokenizer->raw);
    yk_added_fini(&tokenizer->normalized);
    yk_rewrites_fini(&tokenizer->normalize);
    yk_rewrites_fini(&tokenizer->prepare);
    yk_splitter_destroy(tokenizer->splitter);
    yk_bpe_destroy(tokenizer->bpe);
    yk_pieces_fini(&tokenizer->vocab);
    yk_pieces_fini(&tokenizer->texts);
    free(tokenizer->special);
    free(tokenizer->prefix);
    free(tokenizer);
}

bool yk_tokenizer_is_bytes(const yk_tokenizer *tokenizer)
{
    return tokenizer->is_bytes;
}

int64_t yk_tokenizer_vocab(const yk_tokenizer *tokenizer)
{
    return tokenizer->is_bytes ? 256 : tokenizer->texts.n;
}

int64_t yk_tokenizer_prefix(const yk_tokenizer *tokenizer, const int32_t **ids_out)
{
    *ids_out = tokenizer->prefix;
    return tokenizer->n_prefix;
}

int32_t yk_tokenizer_find(const yk_tokenizer *tokenizer, const char *name)
{
    int64_t n = (int64_t)strlen(name);
    if (tokenizer->is_bytes) return n == 1 ? (uint8_t)name[0] : -1;
    return yk_pieces_find(&tokenizer->texts, name, n);
}

bool yk_tokenizer_is_special(const yk_tokenizer *tokenizer, int32_t id)
{
    return !tokenizer->is_bytes && id >= 0 && id < tokenizer->texts.n && tokenizer->special[id];
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* One call of yk_tokenizer_encode(). */
typedef struct encoding {
    yk_tokenizer *tokenizer;
    yk_tokens *tokens;
} encoding;

static yk_status encode_word(void *context, const char *word, int64_t n)
{
    encoding *e = context;
    return yk_bpe_encode(e->tokenizer->bpe, word, n, e->tokens);
}

static yk_status encode_normalized(encoding *e, const char *text, int64_t n, bool first)
{
    if (n == 0) return YK_OK;
    YK_TRY(yk_rewrites_apply(&e->tokenizer->prepare, text, n, first, &text, &n));
    return yk_splitter_run(e->tokenizer->splitter, text, n, encode_word, e);
}

typedef yk_status encode_gap(encoding *e, const char *text, int64_t n, bool first);

/* Encode what lies between added tokens by `gap`, and those tokens as themselves. */
static yk_status encode_around(encoding *e, const yk_added *added, encode_gap *gap,
                               const char *text, int64_t n, bool first)
{
    int64_t at = 0, begin, end;
    int32_t id;
    while (yk_added_find(added, text, n, at, &id, &begin, &end)) {
        YK_TRY(gap(e, text + at, begin - at, first && at == 0));
        YK_TRY(yk_tokens_add(e->tokens, id));
        at = end;
    }
    return gap(e, text + at, n - at, first && at == 0);
}

static yk_status encode_raw(encoding *e, const char *text, int64_t n, bool first)
{
    if (n == 0) return YK_OK;
    YK_TRY(yk_rewrites_apply(&e->tokenizer->normalize, text, n, first, &text, &n));
    return encode_around(e, &e->tokenizer->normalized, encode_normalized, text, n, first);
}

static yk_status encode_bytes(const char *text, int64_t n, yk_tokens *tokens)
{
    YK_TRY(yk_tokens_reserve(tokens, n));
    for (int64_t i = 0; i < n; i++) tokens->ids[tokens->n++] = (uint8_t)text[i];
    return YK_OK;
}

yk_status yk_tokenizer_encode(yk_tokenizer *tokenizer, const char *text, int64_t bytes,
                              yk_tokens *tokens)
{
    if (tokenizer->is_bytes) return encode_bytes(text, bytes, tokens);
    encoding e = {.tokenizer = tokenizer, .tokens = tokens};
    return encode_around(&e, &tokenizer->raw, encode_raw, text, bytes, true);
}

/* ---- decoding ----------------------------------------------------------------------------- */

void yk_decoder_init(yk_decoder *decoder, const yk_tokenizer *tokenizer, bool show_special)
{
    *decoder = (yk_decoder){.tokenizer = tokenizer, .show_special = show_special};
}

/* Append held bytes and `bytes`, keeping back a character that has only begun. */
static yk_status decode_bytes(yk_decoder *d, const char *bytes, int64_t n, yk_text *text)
{
    for (int64_t i = 0; i < n;) {
        if (d->n_held == 0) {
            int64_t valid = yk_utf8_valid(bytes + i, n - i);
            YK_TRY(yk_text_add(text, bytes + i, valid));
            if ((i += valid) == n) break;
        }
        int length;
        d->held[d->n_held++] = bytes[i++];
        yk_utf8_kind kind = yk_utf8_next(d->held, d->n_held, &length);
        if (kind == YK_UTF8_INCOMPLETE) continue;
        YK_TRY(yk_text_add_valid(text, d->held, length));
        i -= d->n_held - length; /* a byte that did not belong is looked at again */
        d->n_held = 0;
    }
    return YK_OK;
}

yk_status yk_decoder_push(yk_decoder *decoder, int32_t id, yk_text *text)
{
    const yk_tokenizer *t = decoder->tokenizer;
    if (t->is_bytes) {
        char c = (char)id;
        return id >= 0 && id < 256 ? decode_bytes(decoder, &c, 1, text) : YK_OK;
    }
    int64_t n;
    const char *piece = yk_pieces_get(&t->texts, id, &n);
    if (!piece || (t->special[id] && !decoder->show_special)) return YK_OK;
    if (!decoder->begun && t->drop_first_space && n > 0 && piece[0] == ' ') {
        piece++;
        n--;
    }
    decoder->begun = true;
    return decode_bytes(decoder, piece, n, text);
}

yk_status yk_decoder_finish(yk_decoder *decoder, yk_text *text)
{
    int n = decoder->n_held;
    decoder->n_held = 0;
    return yk_text_add_valid(text, decoder->held, n);
}
