/* tests/runtime/base/test_config_fuzz.c - configurations at random: what is written is read back the
 * same, and a damaged file is either read whole or refused in one line.
 *
 * The seed is fixed; YK_SEED in the environment gives another.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/base/config_keys.h"
#include "tests/runtime/base/heard.h"

/* ---- random values ------------------------------------------------------------------------ */

static uint64_t random_bits(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint64_t random_below(uint64_t *seed, uint64_t n)
{
    return random_bits(seed) % n;
}

static uint64_t first_seed(void)
{
    const char *given = getenv("YK_SEED");
    return given ? strtoull(given, NULL, 10) | 1 : 0x9e3779b97f4a7c15u;
}

/* A character that is worth trying, as UTF-8 behind `to`; returns its end. */
static char *put_character(uint64_t *seed, char *to)
{
    static const uint32_t special[] = {
        1,      7,      9,   10,  13,     27,     ' ',    '"',    '\'',    '\\',
        '#',    ':',    '-', '[', ']',    '{',    '}',    ',',    '&',     '*',
        '!',    '|',    '>', '%', '@',    '`',    0x7f,   0x80,   0x85,    0xa0,
        0x2028, 0x2029, '~', '0', 0xd7ff, 0xe000, 0xfeff, 0xfffe, 0x10000, 0x10ffff};
    uint32_t c = special[random_below(seed, sizeof special / sizeof special[0])];
    if (random_below(seed, 2)) c = (uint32_t)random_below(seed, 0x5e) + 0x21;
    if (random_below(seed, 8) == 0) c = (uint32_t)random_below(seed, 0xd7ff) + 1;
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

static void random_string(uint64_t *seed, uint64_t least, char text_out[512])
{
    uint64_t n = random_below(seed, 4) ? random_below(seed, 12) : random_below(seed, 120);
    if (n < least) n = least;
    while (n-- > 0) text_out = put_character(seed, text_out);
    *text_out = '\0';
}

static double random_real(uint64_t *seed, const yk_config_key *key)
{
    for (;;) {
        uint64_t bits = random_bits(seed) >> 1;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (random_below(seed, 2)) value = (double)(bits >> 10) * 0x1p-53 * key->high;
        if (random_below(seed, 16) == 0) value = key->low;
        if (random_below(seed, 16) == 0) value = key->high;
        bool over = key->below_high ? value >= key->high : value > key->high;
        if (isfinite(value) && value >= key->low && !over) return value;
    }
}

static int64_t random_int(uint64_t *seed, const yk_config_key *key)
{
    if (key->may_be_auto && random_below(seed, 3) == 0) return YK_AUTO;
    if (random_below(seed, 16) == 0) return key->min;
    if (random_below(seed, 16) == 0) return key->max;
    uint64_t span = (uint64_t)key->max - (uint64_t)key->min + 1;
    uint64_t bits = random_bits(seed) >> random_below(seed, 63);
    return (int64_t)((uint64_t)key->min + bits % span);
}

static void set_random(uint64_t *seed, yk_config *c, const yk_config_key *key)
{
    static const yk_config_place place = {"random", 0};
    void *member = (char *)c + key->offset;
    char text[512];
    int n = 0;
    yk_string_list list = {NULL, 0};
    switch (key->type) {
    case YK_KEY_INT:
    case YK_KEY_BYTES:
        *(int64_t *)member = random_int(seed, key);
        break;
    case YK_KEY_REAL:
        *(double *)member = random_real(seed, key);
        break;
    case YK_KEY_BOOL:
        *(bool *)member = random_below(seed, 2);
        break;
    case YK_KEY_TERNARY:
        *(int *)member = (int)random_below(seed, 3) - 1;
        break;
    case YK_KEY_ENUM:
    case YK_KEY_DTYPE:
        while (key->choices[n].name) n++;
        memcpy(member, &key->choices[random_below(seed, (uint64_t)n)].value, sizeof(int));
        break;
    case YK_KEY_SET:
        n = 0;
        for (const yk_choice *choice = key->choices; choice->name; choice++)
            if (random_below(seed, 2)) n |= choice->value;
        memcpy(member, &n, sizeof n);
        break;
    case YK_KEY_STRING:
        random_string(seed, 0, text);
        assert_int_equal(yk_config_assign_scalar(c, key, &place, text, true), YK_OK);
        break;
    case YK_KEY_LIST:
        for (n = (int)random_below(seed, 4); n > 0; n--) {
            random_string(seed, 1, text);
            assert_int_equal(yk_string_list_append(&list, text), YK_OK);
        }
        assert_int_equal(yk_config_assign_list(c, key, &place, &list), YK_OK);
        break;
    }
}

static bool equal_lists(const yk_string_list *a, const yk_string_list *b)
{
    if (a->n_items != b->n_items) return false;
    for (int i = 0; i < a->n_items; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return true;
}

/* The name of a key that differs, or NULL. */
static const char *find_difference(const yk_config *a, const yk_config *b)
{
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        const char *x = (const char *)a + key->offset, *y = (const char *)b + key->offset;
        bool equal;
        if (key->type == YK_KEY_STRING)
            equal = strcmp(*(char *const *)(const void *)x, *(char *const *)(const void *)y) == 0;
        else if (key->type == YK_KEY_LIST)
            equal = equal_lists((const void *)x, (const void *)y);
        else
            equal = memcmp(x, y, key->size) == 0;
        if (!equal) return key->name;
    }
    return NULL;
}

static char *written(const yk_config *c, size_t *n_out)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n_out);
    assert_int_equal(yk_config_write(c, out), YK_OK);
    fclose(out);
    return text;
}

/* Write `c`, read it over the defaults, and compare values and text. */
static void comes_back(const yk_config *c)
{
    yk_config back;
    size_t n = 0, n_again = 0;
    char *text = written(c, &n);
    assert_int_equal(yk_config_init(&back), YK_OK);
    if (yk_config_read(&back, "written", text, n) != YK_OK) fail_msg("not read back:\n%s", text);
    const char *different = find_difference(c, &back);
    if (different) fail_msg("%s differs:\n%s", different, text);
    char *again = written(&back, &n_again);
    assert_string_equal(text, again);
    free(text);
    free(again);
    yk_config_fini(&back);
}

static void what_is_written_is_read_back_the_same(void **state)
{
    uint64_t seed = first_seed();
    (void)state;
    for (int i = 0; i < 200; i++) {
        yk_config c;
        assert_int_equal(yk_config_init(&c), YK_OK);
        for (int k = 0; k < yk_config_n_keys; k++) set_random(&seed, &c, &yk_config_keys[k]);
        comes_back(&c);
        yk_config_fini(&c);
    }
}

/* ---- every key, wrong --------------------------------------------------------------------- */

/* Read one line, `key: value`; what was said must be one line, or nothing when it is right. */
static yk_status read_line(const char *key, const char *value, yk_config *c, heard *h)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s: %s\n", key, value);
    assert_true(n > 0 && (size_t)n < sizeof text);
    heard_begin(h);
    yk_status status = yk_config_read(c, "run.yaml", text, (size_t)n);
    heard_take(h);
    heard_end(h);
    if (heard_lines(h->text) != (status != YK_OK)) fail_msg("%s: %s", text, h->text);
    return status;
}

static void is_refused(const yk_config_key *key, const char *value)
{
    yk_config c, before;
    heard h;
    char about_key[128];
    assert_int_equal(yk_config_init(&c), YK_OK);
    assert_int_equal(yk_config_init(&before), YK_OK);
    yk_status status = read_line(key->name, value, &c, &h);
    if (status != YK_EINVAL) fail_msg("%s: %s is taken", key->name, value);
    if (strncmp(h.text, "yoke: run.yaml:", 15) != 0) fail_msg("%s", h.text);
    snprintf(about_key, sizeof about_key, "yoke: run.yaml:1: %s: ", key->name);
    if (strncmp(h.text, about_key, strlen(about_key)) == 0)
        assert_null(find_difference(&c, &before));
    yk_config_fini(&c);
    yk_config_fini(&before);
}

static void no_key_takes_what_is_not_its_type(void **state)
{
    static const char *const never[] = {"",   "~",    "null", "{a: b}", "{}",   "[[a]]", "[{}]",
                                        "*a", "&a b", "!x y", "\"",     "a: b", "[a",    "\"\\0\""};
    static const char *const no_number[] = {"abc",   "010",   "0x1",   "1_0", "1,0", ".nan",
                                            "-.inf", "inf",   "1e400", "1 2", "--1", "1e",
                                            "[1]",   "\"1\"", "true",  "5x"};
    static const char *const no_whole[] = {"1.5", "1e-1", "1e30", "99999999999999999999", "24GiB"};
    static const char *const no_truth[] = {"2",    "0",        "1",      "t",   "y",
                                           "tRUE", "\"true\"", "[true]", "none"};
    static const char *const no_choice[] = {"?",      "x", "FP32", "fp32 ,",
                                            "[fp32]", "1", "\"\"", "Auto"};
    (void)state;
#define ALL_REFUSED(list)                                                                          \
    for (size_t j = 0; j < sizeof list / sizeof list[0]; j++) is_refused(key, list[j])
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        bool number =
            key->type == YK_KEY_INT || key->type == YK_KEY_REAL || key->type == YK_KEY_BYTES;
        ALL_REFUSED(never);
        if (number && key->type != YK_KEY_BYTES) ALL_REFUSED(no_number);
        if (key->type == YK_KEY_INT) ALL_REFUSED(no_whole);
        if (key->type == YK_KEY_BOOL || key->type == YK_KEY_TERNARY) ALL_REFUSED(no_truth);
        if (key->type == YK_KEY_ENUM || key->type == YK_KEY_DTYPE) ALL_REFUSED(no_choice);
        if (!key->may_be_auto && number) is_refused(key, "auto");
        if (key->type != YK_KEY_LIST && key->type != YK_KEY_SET) is_refused(key, "[]");
    }
#undef ALL_REFUSED
}

static void is_taken(const yk_config_key *key, const char *value)
{
    yk_config c;
    heard h;
    assert_int_equal(yk_config_init(&c), YK_OK);
    if (read_line(key->name, value, &c, &h) != YK_OK)
        fail_msg("%s: %s: %s", key->name, value, h.text);
    comes_back(&c);
    yk_config_fini(&c);
}

static void ranges_end_where_the_table_says(void **state)
{
    char text[64];
    (void)state;
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        if (key->type == YK_KEY_INT || key->type == YK_KEY_BYTES) {
            snprintf(text, sizeof text, "%" PRId64, key->min);
            is_taken(key, text);
            snprintf(text, sizeof text, "%" PRId64, key->max);
            is_taken(key, text);
            snprintf(text, sizeof text, "%" PRId64, key->min - 1);
            is_refused(key, text);
            snprintf(text, sizeof text, "%" PRIu64, (uint64_t)key->max + 1);
            is_refused(key, text);
        }
        if (key->type == YK_KEY_REAL) {
            double last = key->below_high ? nextafter(key->high, 0) : key->high;
            snprintf(text, sizeof text, "%.17g", key->low);
            is_taken(key, text);
            snprintf(text, sizeof text, "%.17g", last);
            is_taken(key, text);
            snprintf(text, sizeof text, "%.17g", nextafter(last, INFINITY));
            is_refused(key, text);
            snprintf(text, sizeof text, "%.17g", nextafter(key->low, -INFINITY));
            is_refused(key, text);
        }
        for (const yk_choice *choice = key->choices; choice && choice->name; choice++)
            is_taken(key, choice->name);
        if (key->initial[0]) is_taken(key, key->initial);
    }
}

/* ---- damaged files ------------------------------------------------------------------------ */

static const char *const files[] = {
    "run:\n  dir: runs/a\nmodel:\n  preset: gpt2-124m\ndata:\n  train: [a.bin, 'b c']\n  val:\n"
    "    - x\n    - \"y\\n\"\n  doc_mask: true\ntrain:\n  batch: 32\n  micro_batch: auto\n  steps: "
    "1e3\n",
    "optim: {lr: 3e-4, beta1: 0.9, eps: 1e-8}\nprecision:\n  compute: bf16\n  loss_scale:\n"
    "    start: 65536\n    growth_interval: 2000\nmemory: {device_limit: 24GiB}\ndevice: cpu # "
    "here\n",
    "%YAML 1.1\n---\ntrain.batch: 4\nsample:\n  prompt: |\n    In the\n    beginning\n  tokens: "
    "5\n...\n",
    "\xef\xbb\xbfschedule.kind: wsd\r\nschedule: {warmup: 10}\r\nmodel: {tied: off, init: "
    "\"\xe8\xae\xad\"}\r\n",
};

static size_t damage(uint64_t *seed, char *text, size_t n, size_t capacity)
{
    static const char *const pieces[] = {
        "\n", "  ",   "\t", ": ",   "- ",  "[",     "]",    "{",  "}",    "\"",   "'",    "&a ",
        "*a", "!!x ", "#",  "|",    ">",   "---\n", "...",  "? ", ",",    "\xff", "\xc3", "%",
        "@",  "`",    "\\", "null", "010", "1e999", ".nan", "\r", "\x01", "0",    "-",    "<<: "};
    for (uint64_t times = 1 + random_below(seed, 3); times > 0; times--) {
        size_t at = n ? random_below(seed, n) : 0, length = n ? 1 + random_below(seed, n - at) : 0;
        const char *piece = pieces[random_below(seed, sizeof pieces / sizeof pieces[0])];
        if (length > 24) length = 24;
        switch (random_below(seed, 5)) {
        case 0: /* flip a bit */
            if (n) text[at] = (char)(text[at] ^ 1 << random_below(seed, 8));
            break;
        case 1: /* remove */
            memmove(text + at, text + at + length, n - at - length);
            n -= length;
            break;
        case 2: /* insert */
            length = strlen(piece);
            if (n + length > capacity) break;
            memmove(text + at + length, text + at, n - at);
            memcpy(text + at, piece, length);
            n += length;
            break;
        case 3: /* repeat */
            if (n + length > capacity) break;
            memmove(text + at + length, text + at, n - at);
            n += length;
            break;
        case 4: /* cut */
            if (random_below(seed, 4) == 0) n = at;
            break;
        }
    }
    return n;
}

static void a_damaged_file_is_read_whole_or_refused_in_one_line(void **state)
{
    uint64_t seed = first_seed();
    int n_read = 0, n_refused = 0;
    (void)state;
    for (int i = 0; i < 6000; i++) {
        const char *file = files[random_below(&seed, sizeof files / sizeof files[0])];
        char *text = malloc(4096);
        size_t n = strlen(file);
        yk_config c;
        heard h;
        memcpy(text, file, n);
        n = damage(&seed, text, n, 4096);
        text = realloc(text, n + 1); /* so that reading past the end is seen */
        assert_int_equal(yk_config_init(&c), YK_OK);
        clock_t start = clock();
        heard_begin(&h);
        yk_status status = yk_config_read(&c, "run.yaml", text, n);
        heard_take(&h);
        heard_end(&h);
        if (clock() - start > CLOCKS_PER_SEC) fail_msg("slow: %.*s", (int)n, text);
        if (status != YK_OK && status != YK_EINVAL) fail_msg("%d: %.*s", status, (int)n, text);
        if (heard_lines(h.text) != (status != YK_OK)) fail_msg("%s%.*s", h.text, (int)n, text);
        if (status != YK_OK && strncmp(h.text, "yoke: run.yaml:", 15) != 0) fail_msg("%s", h.text);
        if (status == YK_OK) comes_back(&c); /* so each value is legal */
        n_read += status == YK_OK;
        n_refused += status != YK_OK;
        yk_config_fini(&c);
        free(text);
    }
    assert_true(n_read > 300 && n_refused > 300); /* both ways were tried */
}

static void a_strange_line_anywhere_is_refused(void **state)
{
    static const char *const lines[] = {"xyzzy: 1\n", "train: 1\n",    "batch: 4\n", "garbage\n",
                                        "- a\n",      "device: gpu\n", "%%%\n",      "*a\n",
                                        "\"a\n",      "a: b: c\n"};
    (void)state;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++)
        for (size_t l = 0; l < sizeof lines / sizeof lines[0]; l++)
            for (const char *at = files[f]; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
                char text[2048];
                yk_config c;
                heard h;
                if (f == 2 && (at < strstr(files[f], "train") || strstr(at, "...") == NULL ||
                               strncmp(at, "    ", 4) == 0))
                    continue; /* before and after the document, inside a block of text */
                int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - files[f]), files[f],
                                 lines[l], at);
                assert_int_equal(yk_config_init(&c), YK_OK);
                heard_begin(&h);
                yk_status status = yk_config_read(&c, "run.yaml", text, (size_t)n);
                heard_take(&h);
                heard_end(&h);
                yk_config_fini(&c);
                if (status != YK_EINVAL || heard_lines(h.text) != 1) fail_msg("%s%s", h.text, text);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back_the_same),
        cmocka_unit_test(no_key_takes_what_is_not_its_type),
        cmocka_unit_test(ranges_end_where_the_table_says),
        cmocka_unit_test(a_damaged_file_is_read_whole_or_refused_in_one_line),
        cmocka_unit_test(a_strange_line_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
