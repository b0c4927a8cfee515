/* engine/write_text.c - from a prompt to tokens, and from tokens to text as they come. */
#include "engine/write_text.h"

#include <string.h>

/* Where new tokens go. */
typedef struct printer {
    yk_decoder decoder;
    FILE *out; /* NULL: nowhere */
    const yk_evaluate_watch *watch;
    bool plain;
} printer;

/* What would move a terminal's cursor, ring or recolour it. */
static bool is_control(char c)
{
    return (c >= 0 && c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

static yk_status print(printer *p, const char *text, int64_t n)
{
    if (!p->out) return YK_OK;
    for (int64_t i = 0; i < n; i++) putc(p->plain && is_control(text[i]) ? '?' : text[i], p->out);
    return fflush(p->out) == 0 ? YK_OK : yk_fail(YK_EIO, "output", "it cannot be written");
}

static yk_status print_token(void *context, int32_t token)
{
    printer *p = context;
    if (p->watch) YK_TRY(p->watch->ask(p->watch->context));
    yk_text text = {0};
    yk_status status = yk_decoder_push(&p->decoder, token, &text);
    if (status == YK_OK) status = print(p, text.data, text.n);
    yk_text_fini(&text);
    return status;
}

static yk_status print_end(printer *p)
{
    yk_text text = {0};
    yk_status status = yk_decoder_finish(&p->decoder, &text);
    if (status == YK_OK) status = print(p, text.data, text.n);
    if (status == YK_OK) status = print(p, "\n", 1);
    yk_text_fini(&text);
    return status;
}

/* The tokens of a prompt, with what the tokenizer wants before a text. */
static yk_status encode_prompt(yk_tokenizer *tokenizer, const char *prompt, yk_tokens *tokens)
{
    const int32_t *prefix;
    int64_t n = yk_tokenizer_prefix(tokenizer, &prefix);
    for (int64_t i = 0; i < n; i++) YK_TRY(yk_tokens_add(tokens, prefix[i]));
    if (!prompt[0] && n == 0) prompt = "\n";
    return yk_tokenizer_encode(tokenizer, prompt, (int64_t)strlen(prompt), tokens);
}

static yk_status write_text(yk_engine *engine, yk_tokenizer *tokenizer,
                            const yk_write_options *options, yk_tokens *tokens, FILE *out)
{
    printer p = {.out = out, .watch = options->watch, .plain = options->plain};
    YK_TRY(encode_prompt(tokenizer, options->prompt, tokens));
    yk_generate_options g = {
        .prompt = tokens->ids,
        .n_prompt = tokens->n,
        .max_tokens = options->max_tokens,
        .stop_token = yk_tokenizer_find(tokenizer, "<|endoftext|>"),
        .sample = options->sample,
    };
    YK_TRY(yk_generate_check(engine, &g));
    yk_decoder_init(&p.decoder, tokenizer, false);
    YK_TRY(print(&p, options->prompt, (int64_t)strlen(options->prompt)));
    YK_TRY(yk_generate(engine, &g, print_token, &p));
    return print_end(&p);
}

yk_status yk_write_text(yk_engine *engine, yk_tokenizer *tokenizer, const yk_write_options *options,
                        FILE *out)
{
    yk_tokens tokens = {0};
    yk_status status = write_text(engine, tokenizer, options, &tokens, out);
    yk_tokens_fini(&tokens);
    return status;
}

static yk_status check_prompt(const yk_engine *engine, yk_tokenizer *tokenizer, const char *prompt)
{
    yk_tokens tokens = {0};
    yk_status status = encode_prompt(tokenizer, prompt, &tokens);
    yk_generate_options g = {.prompt = tokens.ids, .n_prompt = tokens.n};
    if (status == YK_OK) status = yk_generate_check(engine, &g);
    yk_tokens_fini(&tokens);
    return status;
}

yk_status yk_write_sample_check(const yk_engine *engine, const yk_config *config)
{
    yk_tokenizer *tokenizer;
    if (config->sample.every == 0) return YK_OK;
    YK_TRY(yk_tokenizer_open(config->data.tokenizer, &tokenizer));
    yk_status status = check_prompt(engine, tokenizer, config->sample.prompt);
    yk_tokenizer_close(tokenizer);
    return status;
}

yk_status yk_write_sample(yk_engine *engine, const yk_config *config,
                          const yk_evaluate_watch *watch, FILE *out)
{
    yk_tokenizer *tokenizer;
    yk_write_options o = {
        .prompt = config->sample.prompt,
        .max_tokens = config->sample.tokens,
        .sample = {.temperature = 0.8, .top_p = 1.0, .seed = config->train.seed},
        .watch = watch,
        .plain = true,
    };
    YK_TRY(yk_tokenizer_open(config->data.tokenizer, &tokenizer));
    yk_status status = yk_write_text(engine, tokenizer, &o, out);
    yk_tokenizer_close(tokenizer);
    return status;
}
