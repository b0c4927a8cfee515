/* runtime/text/tokenizer_json.c - build a tokenizer from Hugging Face's tokenizer.json.
 *
 * A byte-level vocabulary writes bytes as printable characters: 188 of them stand for themselves,
 * the other 68 for U+0100 and up, in order (GPT-2's encoder.py, bytes_to_unicode). The bytes are
 * restored here, once, so that merges, words and decoded text are all plain bytes.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "runtime/storage/json.h"
#include "runtime/text/tokenizer_parts.h"
#include "runtime/text/tokenizer_steps.h"

/* What is known while the file is read. */
typedef struct reading {
    yk_tokenizer *tokenizer;
    const char *path;
    const json_t *model;
    bool by_byte;
    yk_decoder_rules decoder; /* of a tokenizer by characters */
    int32_t byte_of[512];     /* the byte that a character below U+0200 stands for, or -1 */
    yk_text left, right;      /* scratch */
} reading;

static yk_status bad(const reading *r, const char *why)
{
    return yk_fail(YK_EFORMAT, r->path, "%s", why);
}

/* ---- byte-level spelling ------------------------------------------------------------------ */

static bool stands_for_itself(int c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || c >= 0xae;
}

static void fill_byte_of(int32_t byte_of[512])
{
    int next = 256;
    for (int c = 0; c < 512; c++) byte_of[c] = -1;
    for (int b = 0; b < 256; b++) byte_of[stands_for_itself(b) ? b : next++] = b;
}

/* The bytes that a token of the file means, into `out`; false if it has a character that stands for
 * no byte, and is then copied as it is. */
static yk_status respell(const reading *r, const char *token, int64_t n, yk_text *out,
                         bool *spelled_out)
{
    out->n = 0;
    *spelled_out = true;
    if (!r->by_byte) return yk_text_add(out, token, n);
    for (int64_t i = 0; i < n;) {
        utf8proc_int32_t c;
        i += utf8proc_iterate((const utf8proc_uint8_t *)token + i, n - i, &c); /* JSON is UTF-8 */
        if (c < 0 || c >= 512 || r->byte_of[c] < 0) {
            out->n = 0;
            *spelled_out = false;
            return yk_text_add(out, token, n);
        }
        YK_TRY(yk_text_add(out, &(char){(char)r->byte_of[c]}, 1));
    }
    return YK_OK;
}

/* ---- vocabulary --------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that "<0x0A>" stands for, or -1. */
static int byte_token(const char *s, int64_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Note the text that token `id` of the vocabulary stands for. */
static yk_status add_text(reading *r, int64_t id, const char *piece, int64_t n)
{
    yk_pieces *texts = &r->tokenizer->texts;
    int64_t known;
    if (yk_pieces_get(texts, id, &known)) return YK_OK; /* an added token: noted before */
    if (r->by_byte) return yk_pieces_set(texts, id, piece, n, true);
    int byte = r->decoder.bytes ? byte_token(piece, n) : -1;
    if (byte >= 0) return yk_pieces_set(texts, id, &(char){(char)byte}, 1, false);
    r->right.n = 0;
    for (int64_t i = 0; i < n; i++) {
        bool mark =
            r->decoder.mark_is_space && n - i >= 3 && memcmp(piece + i, "\xe2\x96\x81", 3) == 0;
        YK_TRY(yk_text_add(&r->right, mark ? " " : piece + i, 1));
        if (mark) i += 2;
    }
    return yk_pieces_set(texts, id, r->right.data, r->right.n, true);
}

static yk_status read_vocab(reading *r)
{
    json_t *vocab = json_object_get(r->model, "vocab"), *value;
    const char *token;
    if (!json_is_object(vocab)) return bad(r, "model has no vocab");
    json_object_foreach(vocab, token, value)
    {
        int64_t n = (int64_t)strlen(token);
        bool spelled;
        if (!json_is_integer(value)) return bad(r, "vocab: an id is no integer");
        YK_TRY(respell(r, token, n, &r->left, &spelled));
        int64_t id = json_integer_value(value);
        YK_TRY(yk_pieces_set(&r->tokenizer->vocab, id, r->left.data, r->left.n, spelled));
        YK_TRY(add_text(r, id, r->left.data, r->left.n));
    }
    return YK_OK;
}

/* ---- merges ------------------------------------------------------------------------------- */

static yk_status add_merge(reading *r, const char *left, int64_t n_left, const char *right,
                           int64_t n_right)
{
    const yk_pieces *vocab = &r->tokenizer->vocab;
    bool spelled;
    YK_TRY(respell(r, left, n_left, &r->left, &spelled));
    YK_TRY(respell(r, right, n_right, &r->right, &spelled));
    int32_t a = yk_pieces_find(vocab, r->left.data, r->left.n);
    int32_t b = yk_pieces_find(vocab, r->right.data, r->right.n);
    YK_TRY(yk_text_add(&r->left, r->right.data, r->right.n));
    int32_t ab = yk_pieces_find(vocab, r->left.data, r->left.n);
    if (a < 0 || b < 0 || ab < 0) {
        return yk_fail(YK_EFORMAT, r->path,
                       "merge of '%.*s' and '%.*s': %s is not in the vocabulary", (int)n_left, left,
                       (int)n_right, right,
                       a < 0   ? "the first"
                       : b < 0 ? "the second"
                               : "the result");
    }
    return yk_bpe_add_merge(r->tokenizer->bpe, a, b, ab);
}

/* A merge is "a b" or ["a", "b"]. */
static yk_status read_merge(reading *r, const json_t *merge)
{
    if (json_is_string(merge)) {
        const char *s = json_string_value(merge), *space = strchr(s, ' ');
        if (!space || strchr(space + 1, ' ')) return bad(r, "a merge is not of two tokens");
        return add_merge(r, s, space - s, space + 1, (int64_t)strlen(space + 1));
    }
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b)) {
        return bad(r, "a merge is not of two tokens");
    }
    return add_merge(r, json_string_value(a), (int64_t)json_string_length(a), json_string_value(b),
                     (int64_t)json_string_length(b));
}

static yk_status read_merges(reading *r)
{
    const json_t *merges = json_object_get(r->model, "merges");
    if (!json_is_array(merges)) return bad(r, "model has no merges");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        YK_TRY(read_merge(r, json_array_get(merges, i)));
    }
    return YK_OK;
}

/* ---- model -------------------------------------------------------------------------------- */

/* Options of the model that would change ids and are not offered must be off. */
static yk_status check_model(const reading *r)
{
    static const char *const off[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = json_string_value(json_object_get(r->model, "type"));
    if (!json_is_object(r->model)) return bad(r, "has no model");
    if (type ? strcmp(type, "BPE") != 0 : !json_object_get(r->model, "merges")) {
        return yk_fail(YK_EUNSUPPORTED, r->path, "model '%s' is not offered; BPE is",
                       type ? type : "without a type");
    }
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        const char *v = json_string_value(json_object_get(r->model, off[i]));
        if (v && v[0]) return yk_fail(YK_EUNSUPPORTED, r->path, "model: %s is not offered", off[i]);
    }
    if (json_number_value(json_object_get(r->model, "dropout")) > 0) {
        return yk_fail(YK_EUNSUPPORTED, r->path, "model: dropout is not offered");
    }
    return YK_OK;
}

static void fill_byte_ids(const reading *r, int32_t byte_id[256])
{
    const yk_pieces *vocab = &r->tokenizer->vocab;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b, name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        byte_id[b] = r->by_byte ? yk_pieces_find(vocab, &byte, 1) : yk_pieces_find(vocab, name, 6);
    }
}

static yk_status read_model(reading *r)
{
    const char *unknown = json_string_value(json_object_get(r->model, "unk_token"));
    yk_bpe_rules rules = {
        .by_byte = r->by_byte,
        .whole_first = json_is_true(json_object_get(r->model, "ignore_merges")),
        .byte_fallback = json_is_true(json_object_get(r->model, "byte_fallback")),
        .fuse_unknown = json_is_true(json_object_get(r->model, "fuse_unk")),
        .unknown = -1,
    };
    YK_TRY(read_vocab(r));
    if (unknown) {
        rules.unknown = yk_pieces_find(&r->tokenizer->vocab, unknown, (int64_t)strlen(unknown));
    }
    fill_byte_ids(r, rules.byte_id);
    YK_TRY(yk_bpe_create(&r->tokenizer->vocab, &rules, &r->tokenizer->bpe));
    return read_merges(r);
}

/* ---- added tokens ------------------------------------------------------------------------- */

static yk_status read_added_token(reading *r, const json_t *token)
{
    const json_t *id = json_object_get(token, "id");
    const char *name = json_string_value(json_object_get(token, "content"));
    bool normalized = json_is_true(json_object_get(token, "normalized"));
    if (!json_is_integer(id) || !name || !name[0]) {
        return bad(r, "an added token has no id or no content");
    }
    if (json_is_true(json_object_get(token, "single_word"))) {
        return yk_fail(YK_EUNSUPPORTED, r->path, "added token '%s': single_word is not offered",
                       name);
    }
    int64_t n = (int64_t)strlen(name);
    if (normalized) YK_TRY(yk_rewrites_apply(&r->tokenizer->normalize, name, n, true, &name, &n));
    YK_TRY(add_text(r, json_integer_value(id), name, n));
    if (n == 0) return YK_OK; /* the normalizer removes it: it is never found */
    return yk_added_add(normalized ? &r->tokenizer->normalized : &r->tokenizer->raw, name, n,
                        (int32_t)json_integer_value(id),
                        json_is_true(json_object_get(token, "lstrip")),
                        json_is_true(json_object_get(token, "rstrip")));
}

static yk_status read_added(reading *r, const json_t *tokens)
{
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        YK_TRY(read_added_token(r, json_array_get(tokens, i)));
    }
    yk_added_seal(&r->tokenizer->raw);
    yk_added_seal(&r->tokenizer->normalized);
    return YK_OK;
}

/* Note which ids are special, now that all are known. */
static yk_status mark_special(reading *r, const json_t *tokens)
{
    yk_tokenizer *t = r->tokenizer;
    t->special = calloc((size_t)t->texts.n + 1, sizeof *t->special);
    if (!t->special) return yk_fail(YK_ENOMEM, r->path, "no memory to open it");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i);
        if (!json_is_true(json_object_get(token, "special"))) continue;
        t->special[json_integer_value(json_object_get(token, "id"))] = true;
    }
    return YK_OK;
}

/* ---- the file ----------------------------------------------------------------------------- */

static yk_status read_root(reading *r, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    r->model = json_object_get(root, "model");
    fill_byte_of(r->byte_of);
    YK_TRY(check_model(r));
    YK_TRY(
        yk_tokenizer_read_normalizer(r->tokenizer, r->path, json_object_get(root, "normalizer")));
    YK_TRY(yk_tokenizer_read_splits(r->tokenizer, r->path, json_object_get(root, "pre_tokenizer"),
                                    &r->by_byte));
    if (!r->by_byte) {
        YK_TRY(yk_tokenizer_read_decoder(r->path, json_object_get(root, "decoder"), &r->decoder));
        r->tokenizer->drop_first_space = r->decoder.drop_first_space;
    }
    YK_TRY(read_added(r, added));
    YK_TRY(read_model(r));
    YK_TRY(mark_special(r, added));
    return yk_tokenizer_read_prefix(r->tokenizer, r->path, json_object_get(root, "post_processor"));
}

yk_status yk_tokenizer_read_json(yk_tokenizer *tokenizer, const char *path)
{
    json_t *root;
    YK_TRY(yk_json_read(path, &root));
    reading r = {.tokenizer = tokenizer, .path = path};
    yk_status status = read_root(&r, root);
    yk_text_fini(&r.left);
    yk_text_fini(&r.right);
    json_decref(root);
    return status;
}
