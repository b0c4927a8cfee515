/* runtime/text/pieces.c - see pieces.h. */
#include "runtime/text/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/storage/hash.h"

static yk_status out_of_memory(void)
{
    return yk_fail(YK_ENOMEM, "tokenizer", "no memory for its vocabulary");
}

/* The slot where these bytes are, or where they would go. */
static int64_t slot_of(const yk_pieces *p, const void *bytes, int64_t n)
{
    int64_t mask = p->n_slots - 1, s = (int64_t)yk_hash64(bytes, n, 0) & mask;
    for (; p->slots[s] >= 0; s = (s + 1) & mask) {
        const yk_piece *x = &p->pieces[p->slots[s]];
        if (x->length == n && memcmp(p->bytes.data + x->at, bytes, (size_t)n) == 0) break;
    }
    return s;
}

static yk_status grow_slots(yk_pieces *p)
{
    int32_t *old = p->slots;
    int64_t n_old = p->n_slots, n = n_old ? n_old * 2 : 1024;
    int32_t *slots = malloc((size_t)n * sizeof *slots);
    if (!slots) return out_of_memory();
    memset(slots, 0xff, (size_t)n * sizeof *slots); /* -1 */
    p->slots = slots;
    p->n_slots = n;
    for (int64_t i = 0; i < n_old; i++) {
        if (old[i] < 0) continue;
        const yk_piece *x = &p->pieces[old[i]];
        slots[slot_of(p, p->bytes.data + x->at, x->length)] = old[i];
    }
    free(old);
    return YK_OK;
}

static yk_status grow_pieces(yk_pieces *p, int64_t n)
{
    if (n > p->capacity) {
        int64_t capacity = p->capacity ? p->capacity : 1024;
        while (capacity < n) capacity *= 2;
        yk_piece *pieces = realloc(p->pieces, (size_t)capacity * sizeof *pieces);
        if (!pieces) return out_of_memory();
        p->pieces = pieces;
        p->capacity = capacity;
    }
    for (; p->n < n; p->n++) p->pieces[p->n].length = -1;
    return YK_OK;
}

yk_status yk_pieces_set(yk_pieces *pieces, int64_t id, const void *bytes, int64_t n,
                        bool searchable)
{
    if (id < 0 || id >= YK_PIECES_MAX) {
        return yk_fail(YK_EFORMAT, "tokenizer", "id %lld is not between 0 and %d", (long long)id,
                       YK_PIECES_MAX - 1);
    }
    if (id >= pieces->n) YK_TRY(grow_pieces(pieces, id + 1));
    if (pieces->pieces[id].length >= 0) {
        return yk_fail(YK_EFORMAT, "tokenizer", "id %lld is given twice", (long long)id);
    }
    int64_t at = pieces->bytes.n;
    YK_TRY(yk_text_add(&pieces->bytes, bytes, n));
    pieces->pieces[id] = (yk_piece){.at = at, .length = (int32_t)n};
    if (!searchable || n == 0) return YK_OK;
    if ((pieces->n_used + 1) * 2 > pieces->n_slots) YK_TRY(grow_slots(pieces));
    int64_t slot = slot_of(pieces, bytes, n);
    if (pieces->slots[slot] >= 0) return YK_OK;
    pieces->slots[slot] = (int32_t)id;
    pieces->n_used++;
    return YK_OK;
}

int32_t yk_pieces_find(const yk_pieces *pieces, const void *bytes, int64_t n)
{
    return pieces->n_slots ? pieces->slots[slot_of(pieces, bytes, n)] : -1;
}

const char *yk_pieces_get(const yk_pieces *pieces, int64_t id, int64_t *n_out)
{
    if (id < 0 || id >= pieces->n || pieces->pieces[id].length < 0) return NULL;
    *n_out = pieces->pieces[id].length;
    return pieces->bytes.data + pieces->pieces[id].at;
}

void yk_pieces_fini(yk_pieces *pieces)
{
    yk_text_fini(&pieces->bytes);
    free(pieces->pieces);
    free(pieces->slots);
    *pieces = (yk_pieces){0};
}
