/* comm/shelf.c - the shelf of a group: where items lie, and what is refused.
 *
 * Each rank has a part of the memory, in which its parts of all items lie one behind the other, at pages.
 * An item that is large is announced in pieces, so that its begin is read while its end is still
 * written. They are large: the host enqueues all that an update puts there while it enqueues the update,
 * and a stream that is given too much holds it.
 */
#include <stdlib.h>

#include "comm/backend.h"
#include "runtime/base/arith.h"
#include "runtime/base/require.h"
#include "runtime/device/recorder.h"

#define PAGE            4096
#define PIECES_MOST     16
#define PIECE_LEAST     ((int64_t)64 << 20)
#define PIECE_LEAST_CPU PAGE

bool yk_comm_has_shelf(const yk_comm *c)
{
    if (c->stands_for == &yk_comm_split) return yk_comm_split_has_shelf(c);
    return c->size > 1 && c->stands_for->shelve;
}

static void lay_out(const yk_comm *c, yk_shelf *s, const int64_t *bytes)
{
    bool cpu = yk_device_get_spec(c->o.device)->kind == YK_DEVICE_CPU;
    for (int i = 0; i < s->n_items; i++) {
        yk_shelf_item *item = &s->items[i];
        int64_t piece = yk_round_up(yk_div_up(bytes[i], PIECES_MOST), PAGE);
        *item = (yk_shelf_item){.at = s->rank_bytes, .bytes = bytes[i], .first_piece = s->n_pieces};
        item->piece = yk_max(piece, cpu ? PIECE_LEAST_CPU : PIECE_LEAST);
        s->n_pieces += yk_shelf_n_pieces(item);
        s->rank_bytes += yk_round_up(bytes[i], PAGE);
    }
    int64_t words = (int64_t)c->size * c->size * yk_shelf_row(s);
    s->control_bytes = yk_round_up(words * (int64_t)sizeof(uint32_t), PAGE);
}

void yk_shelf_free(yk_shelf *s)
{
    if (s) free(s->items);
    free(s);
}

yk_status yk_comm_shelve(yk_comm *c, const int64_t *bytes, int n_items)
{
    REQUIRE(n_items > 0 && !c->shelf);
    for (int i = 0; i < n_items; i++) REQUIRE(bytes[i] >= 0);
    if (!yk_comm_has_shelf(c))
        return yk_fail(YK_EUNSUPPORTED, "shelf", "%s has none; take comm.backend: hostmem",
                       yk_comm_backend_name(c));
    yk_shelf *s = calloc(1, sizeof *s);
    if (s) s->items = calloc((size_t)n_items, sizeof *s->items);
    if (!s || !s->items) {
        yk_shelf_free(s);
        return yk_fail(YK_ENOMEM, "shelf", "no memory for a table of %d items", n_items);
    }
    s->n_items = n_items;
    lay_out(c, s, bytes);
    c->shelf = s;
    return c->backend->shelve(c);
}

int64_t yk_comm_shelf_bytes(const yk_comm *c)
{
    if (!c->shelf) return 0;
    return c->shelf->rank_bytes + yk_round_up(c->shelf->control_bytes / c->size, PAGE);
}

void *yk_comm_shelf_part(const yk_comm *c, int item)
{
    YK_CHECK(c->shelf && item >= 0 && item < c->shelf->n_items);
    return c->shelf->mine + c->shelf->items[item].at;
}

yk_status yk_comm_put(yk_comm *c, int item, const void *data, yk_stream *stream)
{
    if (atomic_load(&c->failed)) return (yk_status)atomic_load(&c->failed);
    REQUIRE(c->shelf && item >= 0 && item < c->shelf->n_items);
    yk_shelf_item *it = &c->shelf->items[item];
    it->n_puts++;
    if (it->bytes == 0) return YK_OK;
    int span = yk_span_begin(stream, "put", (double)it->bytes, 0);
    yk_status status = c->backend->put(c, item, data, stream);
    yk_span_end(stream, span);
    return status;
}

yk_status yk_comm_take(yk_comm *c, int item, void *full, const void *own, yk_stream *stream)
{
    if (atomic_load(&c->failed)) return (yk_status)atomic_load(&c->failed);
    REQUIRE(c->shelf && item >= 0 && item < c->shelf->n_items);
    const yk_shelf_item *it = &c->shelf->items[item];
    REQUIRE(it->n_puts > 0);
    if (it->bytes == 0) return YK_OK;
    REQUIRE(full);
    int span = yk_span_begin(stream, "take", (double)(c->size * it->bytes), 0);
    yk_status status = c->backend->take(c, item, full, own, stream);
    yk_span_end(stream, span);
    return status;
}
