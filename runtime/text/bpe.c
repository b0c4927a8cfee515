/* runtime/text/bpe.c - see bpe.h.
 *
 * The symbols of a word are a doubly linked list in an array. A merge keeps the left symbol and
 * unlinks the right one; pairs that this has made stale are recognised when they leave the heap,
 * by what they would merge into.
 */
#include "runtime/text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/storage/hash.h"

#define CACHE_SLOTS      (1 << 16)
#define CACHE_WORD_BYTES 48 /* longer words are rare, and not worth keeping */

typedef struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
} symbol;

typedef struct pair {
    uint64_t key; /* rank << 32 | position of the left symbol: the order of merging */
    int32_t merged;
} pair;

typedef struct merge {
    uint64_t key; /* left << 32 | right, or EMPTY */
    uint32_t rank;
    int32_t merged;
} merge;

#define EMPTY UINT64_MAX

/* Word -> tokens; both lie in one block of ids, the word's bytes first. */
typedef struct cached {
    int32_t word_bytes; /* 0: free */
    int32_t n_ids;
    int64_t at;     /* of the word in cache_words */
    int64_t ids_at; /* of the tokens in cache_ids */
} cached;

struct yk_bpe {
    const yk_pieces *pieces; /* borrowed */
    yk_bpe_rules rules;
    merge *merges; /* (n_slots), open addressing */
    int64_t n_slots, n_merges;
    uint32_t next_rank;
    symbol *symbols; /* scratch, as is heap */
    pair *heap;
    int64_t n_symbols, n_heap, capacity; /* capacity of symbols; the heap has twice as much */
    cached *cache;                       /* (CACHE_SLOTS) */
    int64_t n_cached;
    yk_text cache_words;
    yk_tokens cache_ids;
};

static yk_status out_of_memory(void)
{
    return yk_fail(YK_ENOMEM, "tokenizer", "no memory to encode");
}

yk_status yk_bpe_create(const yk_pieces *pieces, const yk_bpe_rules *rules, yk_bpe **bpe_out)
{
    yk_bpe *bpe = calloc(1, sizeof *bpe);
    if (!bpe || !(bpe->cache = calloc(CACHE_SLOTS, sizeof *bpe->cache))) {
        free(bpe);
        return out_of_memory();
    }
    bpe->pieces = pieces;
    bpe->rules = *rules;
    *bpe_out = bpe;
    return YK_OK;
}

void yk_bpe_destroy(yk_bpe *bpe)
{
    if (!bpe) return;
    free(bpe->merges);
    free(bpe->symbols);
    free(bpe->heap);
    free(bpe->cache);
    yk_text_fini(&bpe->cache_words);
    yk_tokens_fini(&bpe->cache_ids);
    free(bpe);
}

/* ---- merges ------------------------------------------------------------------------------- */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot where the pair is, or where it would go. */
static merge *merge_slot(const yk_bpe *bpe, uint64_t key)
{
    uint64_t mask = (uint64_t)bpe->n_slots - 1, h = key * 0x9e3779b97f4a7c15u;
    uint64_t s = (h ^ h >> 32) & mask;
    while (bpe->merges[s].key != EMPTY && bpe->merges[s].key != key) s = (s + 1) & mask;
    return &bpe->merges[s];
}

static yk_status grow_merges(yk_bpe *bpe)
{
    merge *old = bpe->merges;
    int64_t n_old = bpe->n_slots, n = n_old ? n_old * 2 : 1024;
    merge *merges = malloc((size_t)n * sizeof *merges);
    if (!merges) return out_of_memory();
    for (int64_t i = 0; i < n; i++) merges[i].key = EMPTY;
    bpe->merges = merges;
    bpe->n_slots = n;
    for (int64_t i = 0; i < n_old; i++) {
        if (old[i].key != EMPTY) *merge_slot(bpe, old[i].key) = old[i];
    }
    free(old);
    return YK_OK;
}

yk_status yk_bpe_add_merge(yk_bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    if ((bpe->n_merges + 1) * 2 > bpe->n_slots) YK_TRY(grow_merges(bpe));
    merge *m = merge_slot(bpe, pair_key(left, right));
    if (m->key == EMPTY) bpe->n_merges++;
    *m = (merge){.key = pair_key(left, right), .rank = bpe->next_rank++, .merged = merged};
    return YK_OK;
}

static const merge *merge_find(const yk_bpe *bpe, int32_t left, int32_t right)
{
    if (!bpe->n_slots) return NULL;
    const merge *m = merge_slot(bpe, pair_key(left, right));
    return m->key == EMPTY ? NULL : m;
}

/* ---- the heap of pairs, lowest key on top ------------------------------------------------- */

static void heap_push(yk_bpe *bpe, pair p)
{
    int64_t i = bpe->n_heap++;
    for (; i > 0 && bpe->heap[(i - 1) / 2].key > p.key; i = (i - 1) / 2) {
        bpe->heap[i] = bpe->heap[(i - 1) / 2];
    }
    bpe->heap[i] = p;
}

static pair heap_pop(yk_bpe *bpe)
{
    pair top = bpe->heap[0], last = bpe->heap[--bpe->n_heap];
    int64_t n = bpe->n_heap, i = 0;
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && bpe->heap[child + 1].key < bpe->heap[child].key) child++;
        if (bpe->heap[child].key >= last.key) break;
        bpe->heap[i] = bpe->heap[child];
    }
    bpe->heap[i] = last;
    return top;
}

/* Put symbol `i` and the one after it on the heap, if they merge. */
static void push_pair(yk_bpe *bpe, int32_t i)
{
    if (i < 0 || bpe->symbols[i].next < 0) return;
    const merge *m = merge_find(bpe, bpe->symbols[i].id, bpe->symbols[bpe->symbols[i].next].id);
    if (!m) return;
    heap_push(bpe, (pair){.key = (uint64_t)m->rank << 32 | (uint32_t)i, .merged = m->merged});
}

/* True when the pair still stands as it did when it was pushed. */
static bool is_fresh(const yk_bpe *bpe, pair p)
{
    const symbol *left = &bpe->symbols[(uint32_t)p.key];
    if (left->id < 0 || left->next < 0) return false;
    const merge *m = merge_find(bpe, left->id, bpe->symbols[left->next].id);
    return m && m->merged == p.merged;
}

/* Merge until nothing merges. Each merge takes one pair and pushes two at most, so that the heap
 * never holds more than two pairs a symbol. */
static void merge_symbols(yk_bpe *bpe)
{
    bpe->n_heap = 0;
    for (int64_t i = 0; i + 1 < bpe->n_symbols; i++) push_pair(bpe, (int32_t)i);
    while (bpe->n_heap > 0) {
        pair p = heap_pop(bpe);
        if (!is_fresh(bpe, p)) continue;
        int32_t at = (int32_t)(uint32_t)p.key;
        symbol *left = &bpe->symbols[at], *right = &bpe->symbols[left->next];
        left->id = p.merged;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) bpe->symbols[left->next].prev = at;
        push_pair(bpe, left->prev);
        push_pair(bpe, at);
    }
}

/* ---- a word ------------------------------------------------------------------------------- */

static yk_status reserve_symbols(yk_bpe *bpe, int64_t n)
{
    if (n <= bpe->capacity) return YK_OK;
    if (n > INT32_MAX) {
        return yk_fail(
            YK_EUNSUPPORTED, "tokenizer",
            "%lld bytes without a place to split are too many; split the text into files",
            (long long)n);
    }
    int64_t capacity = n < 256 ? 256 : n + n / 2;
    free(bpe->symbols);
    free(bpe->heap);
    bpe->symbols = malloc((size_t)capacity * sizeof *bpe->symbols);
    bpe->heap = malloc((size_t)capacity * 2 * sizeof *bpe->heap);
    bpe->capacity = bpe->symbols && bpe->heap ? capacity : 0;
    return bpe->capacity ? YK_OK : out_of_memory();
}

static void add_symbol(yk_bpe *bpe, int32_t id)
{
    int32_t i = (int32_t)bpe->n_symbols++;
    bpe->symbols[i] = (symbol){.id = id, .prev = i - 1, .next = i + 1};
}

static yk_status add_byte(yk_bpe *bpe, char c)
{
    int32_t id = bpe->rules.byte_id[(uint8_t)c];
    if (id < 0) {
        return yk_fail(YK_EFORMAT, "tokenizer",
                       "its vocabulary has no token for byte 0x%02x of the "
                       "text",
                       (unsigned)(uint8_t)c);
    }
    add_symbol(bpe, id);
    return YK_OK;
}

/* A character that is not in the vocabulary: its bytes, or the unknown token. */
static yk_status add_unknown(yk_bpe *bpe, const char *character, int length, bool *fused)
{
    bool bytes = bpe->rules.byte_fallback;
    for (int i = 0; i < length; i++) bytes &= bpe->rules.byte_id[(uint8_t)character[i]] >= 0;
    if (bytes) {
        for (int i = 0; i < length; i++) YK_TRY(add_byte(bpe, character[i]));
        *fused = false;
        return YK_OK;
    }
    if (bpe->rules.unknown < 0) {
        return yk_fail(YK_EFORMAT, "tokenizer", "its vocabulary has no token for '%.*s'", length,
                       character);
    }
    if (!*fused || !bpe->rules.fuse_unknown) add_symbol(bpe, bpe->rules.unknown);
    *fused = true;
    return YK_OK;
}

static yk_status add_characters(yk_bpe *bpe, const char *word, int64_t n)
{
    bool fused = false; /* the last symbol is an unknown one */
    for (int64_t i = 0; i < n;) {
        int length;
        yk_utf8_next(word + i, n - i, &length);
        int32_t id = yk_pieces_find(bpe->pieces, word + i, length);
        if (id >= 0) {
            add_symbol(bpe, id);
            fused = false;
        } else {
            YK_TRY(add_unknown(bpe, word + i, length, &fused));
        }
        i += length;
    }
    return YK_OK;
}

static yk_status encode_new(yk_bpe *bpe, const char *word, int64_t n, yk_tokens *tokens)
{
    YK_TRY(reserve_symbols(bpe, n));
    bpe->n_symbols = 0;
    if (bpe->rules.by_byte) {
        for (int64_t i = 0; i < n; i++) YK_TRY(add_byte(bpe, word[i]));
    } else {
        YK_TRY(add_characters(bpe, word, n));
    }
    if (bpe->n_symbols == 0) return YK_OK;
    bpe->symbols[bpe->n_symbols - 1].next = -1;
    merge_symbols(bpe);
    for (int32_t i = 0; i >= 0; i = bpe->symbols[i].next) {
        YK_TRY(yk_tokens_add(tokens, bpe->symbols[i].id));
    }
    return YK_OK;
}

/* ---- the cache ---------------------------------------------------------------------------- */

/* The slot where the word is, or where it would go. */
static cached *cache_slot(const yk_bpe *bpe, const char *word, int64_t n)
{
    uint64_t s = yk_hash64(word, n, 0) & (CACHE_SLOTS - 1);
    for (;; s = (s + 1) & (CACHE_SLOTS - 1)) {
        cached *c = &bpe->cache[s];
        if (c->word_bytes == 0) return c;
        if (c->word_bytes == n && memcmp(bpe->cache_words.data + c->at, word, (size_t)n) == 0) {
            return c;
        }
    }
}

static yk_status append(yk_tokens *tokens, const int32_t *ids, int64_t n)
{
    YK_TRY(yk_tokens_reserve(tokens, n));
    memcpy(tokens->ids + tokens->n, ids, (size_t)n * sizeof *ids);
    tokens->n += n;
    return YK_OK;
}

static yk_status cache_add(yk_bpe *bpe, cached *c, const char *word, int64_t n, const int32_t *ids,
                           int64_t n_ids)
{
    if (bpe->n_cached >= CACHE_SLOTS / 2) return YK_OK; /* full: the frequent words came early */
    cached entry = {.word_bytes = (int32_t)n,
                    .n_ids = (int32_t)n_ids,
                    .at = bpe->cache_words.n,
                    .ids_at = bpe->cache_ids.n};
    YK_TRY(yk_text_add(&bpe->cache_words, word, n));
    YK_TRY(append(&bpe->cache_ids, ids, n_ids));
    *c = entry;
    bpe->n_cached++;
    return YK_OK;
}

yk_status yk_bpe_encode(yk_bpe *bpe, const char *word, int64_t n, yk_tokens *tokens)
{
    if (n == 0) return YK_OK;
    if (n > CACHE_WORD_BYTES) {
        int32_t whole = bpe->rules.whole_first ? yk_pieces_find(bpe->pieces, word, n) : -1;
        return whole >= 0 ? yk_tokens_add(tokens, whole) : encode_new(bpe, word, n, tokens);
    }
    cached *c = cache_slot(bpe, word, n);
    if (c->word_bytes) return append(tokens, bpe->cache_ids.ids + c->ids_at, c->n_ids);
    int64_t before = tokens->n;
    int32_t whole = bpe->rules.whole_first ? yk_pieces_find(bpe->pieces, word, n) : -1;
    YK_TRY(whole >= 0 ? yk_tokens_add(tokens, whole) : encode_new(bpe, word, n, tokens));
    return cache_add(bpe, c, word, n, tokens->ids + before, tokens->n - before);
}
