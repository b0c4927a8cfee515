/* runtime/text/tokenizer_steps.c - see tokenizer_steps.h. */
#include "runtime/text/tokenizer_steps.h"

#include <stdlib.h>
#include <string.h>

#define MARK "\xe2\x96\x81" /* U+2581, which SentencePiece writes for a space */

static const char *text_of(const json_t *step, const char *key)
{
    const char *text = json_string_value(json_object_get(step, key));
    return text ? text : "";
}

static bool flag_of(const json_t *step, const char *key, bool missing)
{
    const json_t *v = json_object_get(step, key);
    return json_is_boolean(v) ? json_is_true(v) : missing;
}

static bool is_type(const json_t *step, const char *type)
{
    return strcmp(text_of(step, "type"), type) == 0;
}

static yk_status unknown(const char *path, const char *part, const json_t *step)
{
    return yk_fail(YK_EUNSUPPORTED, path,
                   "%s '%s' is not offered; byte-pair encoding as in GPT-2, "
                   "Llama and Qwen2 is",
                   part, text_of(step, "type"));
}

static yk_status unknown_option(const char *path, const json_t *step, const char *option)
{
    return yk_fail(YK_EUNSUPPORTED, path, "step '%s': %s is not offered", text_of(step, "type"),
                   option);
}

/* ---- normalizer --------------------------------------------------------------------------- */

static yk_status read_replace(yk_rewrites *rewrites, const char *path, const json_t *step)
{
    const char *from = text_of(json_object_get(step, "pattern"), "String");
    if (!from[0]) return unknown_option(path, step, "a pattern that is no plain text");
    return yk_rewrites_add(rewrites, YK_REWRITE_REPLACE, from, text_of(step, "content"));
}

yk_status yk_tokenizer_read_normalizer(yk_tokenizer *tokenizer, const char *path,
                                       const json_t *step)
{
    static const struct {
        const char *type;
        yk_rewrite_kind kind;
    } forms[] = {{"NFC", YK_REWRITE_NFC},
                 {"NFD", YK_REWRITE_NFD},
                 {"NFKC", YK_REWRITE_NFKC},
                 {"NFKD", YK_REWRITE_NFKD}};
    if (!step || json_is_null(step)) return YK_OK;
    if (is_type(step, "Sequence")) {
        const json_t *steps = json_object_get(step, "normalizers");
        for (size_t i = 0; i < json_array_size(steps); i++) {
            YK_TRY(yk_tokenizer_read_normalizer(tokenizer, path, json_array_get(steps, i)));
        }
        return YK_OK;
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (!is_type(step, forms[i].type)) continue;
        return yk_rewrites_add(&tokenizer->normalize, forms[i].kind, NULL, NULL);
    }
    if (is_type(step, "Prepend")) {
        return yk_rewrites_add(&tokenizer->normalize, YK_REWRITE_PREPEND, NULL,
                               text_of(step, "prepend"));
    }
    if (is_type(step, "Replace")) return read_replace(&tokenizer->normalize, path, step);
    return unknown(path, "normalizer", step);
}

/* ---- pre_tokenizer ------------------------------------------------------------------------ */

/* The pre_tokenizer while its steps are read. */
typedef struct splits {
    yk_tokenizer *tokenizer;
    const char *path;
    bool by_byte;
    int64_t n_stages;
} splits;

static yk_status add_stage(splits *s, const char *pattern, bool literal, yk_split_keep keep)
{
    s->n_stages++;
    return yk_splitter_add(s->tokenizer->splitter, pattern, literal, keep);
}

/* Rewriting comes before splitting with us, so it must in the file. */
static yk_status add_rewrite(splits *s, const json_t *step, yk_rewrite_kind kind, const char *from,
                             const char *to)
{
    if (s->n_stages > 0) return unknown_option(s->path, step, "a prefix after a split");
    return yk_rewrites_add(&s->tokenizer->prepare, kind, from, to);
}

static yk_status read_byte_level(splits *s, const json_t *step)
{
    if (flag_of(step, "add_prefix_space", true)) {
        YK_TRY(add_rewrite(s, step, YK_REWRITE_PREPEND_NEW, NULL, " "));
    }
    if (flag_of(step, "use_regex", true)) {
        YK_TRY(add_stage(s, YK_SPLIT_GPT2, false, YK_SPLIT_KEEP_ALL));
    }
    s->by_byte = true;
    return YK_OK;
}

static yk_status read_split(splits *s, const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *plain = text_of(pattern, "String"), *regex = text_of(pattern, "Regex");
    const char *behavior = text_of(step, "behavior");
    yk_split_keep keep;
    if (!plain[0] && !regex[0]) return unknown_option(s->path, step, "an empty pattern");
    if (strcmp(behavior, "Isolated") == 0) {
        keep = YK_SPLIT_KEEP_ALL;
    } else if (strcmp(behavior, "Removed") == 0) {
        keep = flag_of(step, "invert", false) ? YK_SPLIT_KEEP_MATCHES : YK_SPLIT_KEEP_GAPS;
    } else {
        return yk_fail(YK_EUNSUPPORTED, s->path, "step 'Split': behavior '%s' is not offered",
                       behavior);
    }
    return add_stage(s, plain[0] ? plain : regex, plain[0] != 0, keep);
}

static yk_status read_metaspace(splits *s, const json_t *step)
{
    const json_t *scheme = json_object_get(step, "prepend_scheme");
    const char *prepend = scheme ? text_of(step, "prepend_scheme")
                          : flag_of(step, "add_prefix_space", true) ? "always"
                                                                    : "never";
    if (strcmp(text_of(step, "replacement"), MARK) != 0) {
        return unknown_option(s->path, step, "a replacement other than U+2581");
    }
    YK_TRY(add_rewrite(s, step, YK_REWRITE_REPLACE, " ", MARK));
    if (strcmp(prepend, "always") == 0) {
        YK_TRY(add_rewrite(s, step, YK_REWRITE_PREPEND_NEW, NULL, MARK));
    } else if (strcmp(prepend, "first") == 0) {
        YK_TRY(add_rewrite(s, step, YK_REWRITE_PREPEND_FIRST, NULL, MARK));
    } else if (strcmp(prepend, "never") != 0) {
        return unknown_option(s->path, step, "this prepend_scheme");
    }
    if (!flag_of(step, "split", true)) return YK_OK;
    return add_stage(s, MARK "[^" MARK "]*|[^" MARK "]+", false, YK_SPLIT_KEEP_ALL);
}

static yk_status read_splits(splits *s, const json_t *step)
{
    if (is_type(step, "Sequence")) {
        const json_t *steps = json_object_get(step, "pretokenizers");
        for (size_t i = 0; i < json_array_size(steps); i++) {
            YK_TRY(read_splits(s, json_array_get(steps, i)));
        }
        return YK_OK;
    }
    if (s->by_byte) return unknown_option(s->path, step, "a step after ByteLevel");
    if (is_type(step, "ByteLevel")) return read_byte_level(s, step);
    if (is_type(step, "Split")) return read_split(s, step);
    if (is_type(step, "Metaspace")) return read_metaspace(s, step);
    if (is_type(step, "Digits")) {
        bool single = flag_of(step, "individual_digits", false);
        return add_stage(s, single ? "\\p{N}" : "\\p{N}+", false, YK_SPLIT_KEEP_ALL);
    }
    return unknown(s->path, "pre_tokenizer", step);
}

yk_status yk_tokenizer_read_splits(yk_tokenizer *tokenizer, const char *path, const json_t *step,
                                   bool *by_byte_out)
{
    splits s = {.tokenizer = tokenizer, .path = path};
    YK_TRY(yk_splitter_create(&tokenizer->splitter));
    if (step && !json_is_null(step)) YK_TRY(read_splits(&s, step));
    *by_byte_out = s.by_byte;
    return YK_OK;
}

/* ---- post_processor ----------------------------------------------------------------------- */

static yk_status add_prefix(yk_tokenizer *t, const char *path, const json_t *ids)
{
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= YK_PIECES_MAX) {
            return yk_fail(YK_EFORMAT, path, "post_processor: a special token has no valid id");
        }
        int32_t *grown = realloc(t->prefix, (size_t)(t->n_prefix + 1) * sizeof *grown);
        if (!grown) return yk_fail(YK_ENOMEM, path, "no memory to open it");
        t->prefix = grown;
        t->prefix[t->n_prefix++] = (int32_t)v;
    }
    return YK_OK;
}

yk_status yk_tokenizer_read_prefix(yk_tokenizer *tokenizer, const char *path, const json_t *step)
{
    if (is_type(step, "Sequence")) {
        const json_t *steps = json_object_get(step, "processors");
        for (size_t i = 0; i < json_array_size(steps); i++) {
            YK_TRY(yk_tokenizer_read_prefix(tokenizer, path, json_array_get(steps, i)));
        }
        return YK_OK;
    }
    if (!is_type(step, "TemplateProcessing")) return YK_OK; /* others add nothing before one text */
    const json_t *single = json_object_get(step, "single");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *special = json_object_get(json_array_get(single, i), "SpecialToken");
        if (!special) break; /* the text itself */
        const json_t *known = json_object_get(step, "special_tokens");
        const json_t *token = json_object_get(known, text_of(special, "id"));
        YK_TRY(add_prefix(tokenizer, path, json_object_get(token, "ids")));
    }
    return YK_OK;
}

/* ---- decoder ------------------------------------------------------------------------------ */

static yk_status read_decoder(const char *path, const json_t *step, yk_decoder_rules *rules)
{
    if (is_type(step, "Sequence")) {
        const json_t *steps = json_object_get(step, "decoders");
        for (size_t i = 0; i < json_array_size(steps); i++) {
            YK_TRY(read_decoder(path, json_array_get(steps, i), rules));
        }
        return YK_OK;
    }
    if (is_type(step, "Fuse")) return YK_OK;
    if (is_type(step, "ByteFallback")) {
        rules->bytes = true;
    } else if (is_type(step, "Replace") &&
               strcmp(text_of(json_object_get(step, "pattern"), "String"), MARK) == 0 &&
               strcmp(text_of(step, "content"), " ") == 0) {
        rules->mark_is_space = true;
    } else if (is_type(step, "Strip") && strcmp(text_of(step, "content"), " ") == 0 &&
               json_integer_value(json_object_get(step, "start")) == 1 &&
               json_integer_value(json_object_get(step, "stop")) == 0) {
        rules->drop_first_space = true;
    } else if (is_type(step, "Metaspace") && strcmp(text_of(step, "replacement"), MARK) == 0) {
        rules->mark_is_space = true;
        rules->drop_first_space = strcmp(text_of(step, "prepend_scheme"), "never") != 0 &&
                                  flag_of(step, "add_prefix_space", true);
    } else {
        return unknown(path, "decoder", step);
    }
    return YK_OK;
}

yk_status yk_tokenizer_read_decoder(const char *path, const json_t *step,
                                    yk_decoder_rules *rules_out)
{
    yk_decoder_rules rules = {0};
    if (step && !json_is_null(step)) YK_TRY(read_decoder(path, step, &rules));
    *rules_out = rules;
    return YK_OK;
}
