/* cli/data_inspect.c - `yoke data inspect`: what a file of tokens holds.
 *
 * The whole file is read once, so that its smallest and largest id are known and not guessed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/data.h"
#include "cli/options.h"
#include "runtime/base/arith.h"
#include "runtime/base/words.h"
#include "runtime/data/token_file.h"

#define CHUNK   65536
#define N_SHOWN 24 /* tokens whose ids and text are shown */

/* What is asked for; "" : not given. */
typedef struct request {
    const char *format, *dtype, *tokenizer;
} request;

typedef struct inspection {
    yk_config config; /* format, dtype */
    int64_t vocab;    /* 0: not given */
    int64_t seq_len;  /* 0: not given */
    int64_t doc_token;
    yk_tokenizer *tokenizer;
    int32_t *ids; /* (CHUNK) */
} inspection;

/* What reading a file has found. */
typedef struct findings {
    int64_t low, high; /* smallest and largest id */
    int64_t n_marks;   /* of doc_token */
    bool open_end;     /* the last token is not doc_token */
} findings;

static yk_status read_all(const inspection *s, const yk_token_file *f, findings *r)
{
    int64_t vocab = s->vocab ? s->vocab : INT64_C(1) << 31;
    *r = (findings){.low = INT64_MAX, .high = -1};
    for (int64_t at = 0; at < f->n_tokens; at += CHUNK) {
        int64_t n = yk_min(CHUNK, f->n_tokens - at);
        int64_t bad = yk_token_file_read(f, at, n, vocab, s->ids);
        if (bad >= 0) {
            return yk_fail(YK_EFORMAT, f->path,
                           "token %lld is id %lld, outside of the vocabulary of %lld",
                           (long long)bad, (long long)yk_token_file_id(f, bad), (long long)vocab);
        }
        for (int64_t i = 0; i < n; i++) {
            r->low = yk_min(r->low, s->ids[i]);
            r->high = yk_max(r->high, s->ids[i]);
            r->n_marks += s->ids[i] == s->doc_token;
        }
        r->open_end = s->ids[n - 1] != s->doc_token;
    }
    return YK_OK;
}

static const char *format_name(const yk_token_file *f)
{
    switch (f->format) {
    case YK_DATA_LLMC:
        return "llm.c";
    case YK_DATA_RAW:
        return "raw";
    case YK_DATA_MEGATRON:
        return "megatron";
    default:
        return f->encoded ? "text through a tokenizer" : "text";
    }
}

/* Text on one line: what does not print, and what is no UTF-8, as '?'; without a character that is
 * cut off at the end. */
static void print_line(const char *text, int64_t n)
{
    for (int64_t i = 0, length; i < n; i += length) {
        uint32_t c = '?';
        length = yk_utf8_decode(text + i, (size_t)(n - i), &c);
        if (length == 0 && n - i < 4 && (unsigned char)text[i] >= 0xc0) return;
        bool prints = length > 0 && c >= 0x20 && (c < 0x7f || c >= 0xa0);
        if (c == '\n')
            printf("\\n");
        else if (prints)
            fwrite(text + i, 1, (size_t)length, stdout);
        else
            putchar('?');
        if (length == 0) length = 1;
    }
}

/* The first tokens as text. */
static yk_status print_text(const inspection *s, const yk_token_file *f, int64_t n)
{
    yk_decoder d;
    yk_text text = {0};
    yk_status status = YK_OK;
    yk_decoder_init(&d, s->tokenizer, true);
    for (int64_t i = 0; i < n && status == YK_OK; i++) {
        status = yk_decoder_push(&d, (int32_t)yk_token_file_id(f, i), &text);
    }
    printf("  begins     \"");
    print_line(text.data, text.n);
    printf("\"\n");
    yk_text_fini(&text);
    return status;
}

static void print_documents(const inspection *s, const yk_token_file *f, const findings *r)
{
    if (f->documents) printf("  documents  %lld by the index\n", (long long)f->n_documents);
    if (s->doc_token < 0) return;
    printf("  documents  %lld, ended by token %lld%s\n", (long long)(r->n_marks + r->open_end),
           (long long)s->doc_token, r->open_end ? " but for the last" : "");
}

static yk_status print_file(const inspection *s, const yk_token_file *f)
{
    findings r;
    YK_TRY(read_all(s, f, &r));
    int64_t n = yk_min(N_SHOWN, f->n_tokens);
    printf("%s\n  format     %s, %d bits an id\n  tokens     %lld\n  ids        %lld to %lld\n",
           f->path, format_name(f), f->encoded ? 32 : 8 * f->width, (long long)f->n_tokens,
           (long long)r.low, (long long)r.high);
    print_documents(s, f, &r);
    if (s->seq_len > 0) {
        printf("  windows    %lld of %lld tokens\n", (long long)((f->n_tokens - 1) / s->seq_len),
               (long long)s->seq_len);
    }
    printf("  first ids ");
    for (int64_t i = 0; i < n; i++) printf(" %lld", (long long)yk_token_file_id(f, i));
    printf("\n");
    if (yk_tokenizer_is_bytes(s->tokenizer) && r.high > 255) return YK_OK; /* not known as text */
    return print_text(s, f, n);
}

static yk_status inspect_file(const inspection *s, const char *path)
{
    yk_token_file f;
    yk_token_file_options o = {.format = s->config.data.format,
                               .dtype = s->config.data.dtype,
                               .tokenizer = s->tokenizer,
                               .vocab = s->vocab};
    if (!s->vocab) o.vocab = yk_tokenizer_vocab(s->tokenizer);
    YK_TRY(yk_token_file_open(path, &o, &f));
    yk_status status = print_file(s, &f);
    yk_token_file_close(&f);
    return status;
}

static yk_status inspect_pattern(const inspection *s, const char *pattern)
{
    yk_file_list paths;
    YK_TRY(yk_file_glob(pattern, &paths));
    yk_status status = YK_OK;
    if (paths.n_items == 0) status = yk_fail(YK_EINVAL, pattern, "no file matches this pattern");
    for (int64_t i = 0; i < paths.n_items && status == YK_OK; i++) {
        status = inspect_file(s, paths.items[i]);
    }
    yk_file_list_fini(&paths);
    return status;
}

/* Read an option that is a key of the configuration the way the configuration does. */
static yk_status set_key(yk_config *config, const char *key, const char *value)
{
    char text[256];
    if (!value[0]) return YK_OK;
    snprintf(text, sizeof text, "%s=%s", key, value);
    return yk_config_set(config, text);
}

static yk_status prepare(inspection *s, const request *r)
{
    YK_TRY(yk_config_init(&s->config));
    YK_TRY(set_key(&s->config, "data.format", r->format));
    YK_TRY(set_key(&s->config, "data.dtype", r->dtype));
    YK_TRY(yk_tokenizer_open(r->tokenizer, &s->tokenizer));
    s->ids = malloc(CHUNK * sizeof *s->ids);
    return s->ids ? YK_OK : yk_fail(YK_ENOMEM, "data inspect", "no memory to read");
}

static yk_status inspect(inspection *s, const request *r, const char *const *paths, int n)
{
    yk_status status = prepare(s, r);
    for (int i = 0; i < n && status == YK_OK; i++) status = inspect_pattern(s, paths[i]);
    yk_tokenizer_close(s->tokenizer);
    yk_config_fini(&s->config);
    free(s->ids);
    return status;
}

yk_status yk_cli_data_inspect(int argc, char **argv)
{
    inspection s = {.doc_token = -1};
    request r = {.format = "", .dtype = "", .tokenizer = ""};
    const char *paths[YK_CLI_LIST_MAX];
    int n;
    bool done;
    const yk_cli_option options[] = {
        {.name = "format",
         .type = YK_CLI_TEXT,
         .out = &r.format,
         .value = "NAME",
         .text = "text, llmc, raw or megatron, as data.format (auto)"},
        {.name = "dtype",
         .type = YK_CLI_TEXT,
         .out = &r.dtype,
         .value = "NAME",
         .text = "uint16 or uint32: ids of raw files, as data.dtype (uint16)"},
        {.name = "tokenizer",
         .type = YK_CLI_TEXT,
         .out = &r.tokenizer,
         .value = "FILE",
         .text = "a tokenizer.json, to encode text and to show ids as text"},
        {.name = "vocab",
         .type = YK_CLI_INT,
         .out = &s.vocab,
         .value = "N",
         .text = "check that every id is below N",
         .min = 1,
         .max = INT32_MAX},
        {.name = "seq-len",
         .type = YK_CLI_INT,
         .out = &s.seq_len,
         .value = "T",
         .text = "count the windows of T tokens",
         .min = 1,
         .max = INT32_MAX},
        {.name = "doc-token",
         .type = YK_CLI_INT,
         .out = &s.doc_token,
         .value = "ID",
         .text = "count the documents that this token ends",
         .min = 0,
         .max = INT32_MAX},
    };
    const yk_cli_command command = {
        .name = "data inspect",
        .operands = "FILE...",
        .min_operands = 1,
        .max_operands = YK_CLI_LIST_MAX,
        .text = "Print what files of tokens or text hold: format, number of tokens, smallest and\n"
                "largest id, documents, windows, and how they begin. Every token is read.",
        .example = "yoke data inspect data/train_*.bin --seq-len 1024 --vocab 50257",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, paths, &n, &done));
    return done ? YK_OK : inspect(&s, &r, paths, n);
}
