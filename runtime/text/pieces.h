/* runtime/text/pieces.h - a vocabulary: ids to the bytes they stand for, and back.
 *
 * Ids may have holes. The bytes of all pieces lie in one block; finding one by its bytes is a hash
 * table with open addressing.
 */
#ifndef YK_RUNTIME_TEXT_PIECES_H
#define YK_RUNTIME_TEXT_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"
#include "runtime/text/text.h"

/* The most ids that a vocabulary may have; larger ids are taken for damage. */
#define YK_PIECES_MAX (1 << 24)

typedef struct yk_piece {
    int64_t at;     /* where its bytes begin */
    int32_t length; /* bytes; -1: there is no such id */
} yk_piece;

/* All zero is empty and owns nothing. */
typedef struct yk_pieces {
    yk_text bytes;    /* of all pieces */
    yk_piece *pieces; /* (n) by id */
    int64_t n, capacity;
    int32_t *slots; /* (n_slots) id, or -1 */
    int64_t n_slots, n_used;
} yk_pieces;

/* Give id its bytes. With `searchable`, yk_pieces_find() finds them; of equal bytes the first.
 *                                                                                        [local]
 * YK_EFORMAT  id is negative, over the limit, or has bytes already
 * YK_ENOMEM   there is no memory
 */
yk_status yk_pieces_set(yk_pieces *pieces, int64_t id, const void *bytes, int64_t n,
                        bool searchable);

/* The id of these bytes, or -1. */
int32_t yk_pieces_find(const yk_pieces *pieces, const void *bytes, int64_t n);

/* The bytes of `id`, borrowed until the next yk_pieces_set(); NULL if there is no such id. */
const char *yk_pieces_get(const yk_pieces *pieces, int64_t id, int64_t *n_out);

/* Release everything. */
void yk_pieces_fini(yk_pieces *pieces);

#endif
