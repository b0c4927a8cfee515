/* comm/hostmem_shelf.c - a shelf in memory that a node's ranks share: put once, taken as often as needed.
 *
 * A word for each piece and pair of ranks says how often the one has put it there. Whoever takes a piece
 * waits for the number that all ranks have put it by then, and copies: no slot is given back, nobody is
 * told. So a rank's copies to its device are all that its gathers cost, and nothing but those is behind
 * each other on its stream.
 */
#include "comm/hostmem.h"
#include "runtime/base/arith.h"
#include "runtime/device/ops.h"

/* What words are released with: beyond what anybody waits for. */
#define FAR ((uint32_t)1 << 30)

yk_status yk_hostmem_shelve(yk_comm *c)
{
    hostmem_group *g = yk_hostmem_of(c);
    const yk_shelf *s = c->shelf;
    g->shelf.control_bytes = s->control_bytes;
    g->shelf.rank_bytes = s->rank_bytes;
    g->shelf.bytes = s->control_bytes + c->size * s->rank_bytes;
    YK_TRY(yk_hostmem_map(c, &g->shelf, YK_OK));
    c->shelf->mine = g->shelf.memory + s->control_bytes + c->index * s->rank_bytes;
    atomic_store(&g->has_shelf, true);
    return YK_OK;
}

/* Of the first piece of all that rank `from` puts there for rank `to`. */
static uint32_t *words_of(const yk_comm *c, const hostmem_group *g, int from, int to)
{
    int64_t row = (int64_t)from * c->size + to;
    return (uint32_t *)(void *)g->shelf.memory + row * yk_shelf_row(c->shelf);
}

yk_status yk_hostmem_put(yk_comm *c, int item, const void *data, yk_stream *stream)
{
    const hostmem_group *g = yk_hostmem_of(c);
    const yk_shelf_item *it = &c->shelf->items[item];
    char *mine = c->shelf->mine + it->at;
    for (int k = 0; k < yk_shelf_n_pieces(it); k++) {
        int64_t at = k * it->piece, n = yk_min(it->piece, it->bytes - at);
        if (data)
            YK_TRY(yk_copy(stream, mine + at, (const char *)data + at, n, YK_COPY_DEVICE_TO_HOST));
        for (int q = 0; q < c->size; q++)
            YK_TRY(yk_stream_write_flag(stream, words_of(c, g, c->index, q) + it->first_piece + k,
                                        it->n_puts));
    }
    return YK_OK;
}

static yk_status take_piece(yk_comm *c, const yk_shelf_item *it, int k, int from, char *full,
                            yk_stream *stream)
{
    const hostmem_group *g = yk_hostmem_of(c);
    const hostmem_segment *s = &g->shelf;
    int64_t at = k * it->piece, n = yk_min(it->piece, it->bytes - at);
    const char *there = s->memory + s->control_bytes + from * s->rank_bytes + it->at + at;
    YK_TRY(yk_stream_await_flag(stream, words_of(c, g, from, c->index) + it->first_piece + k,
                                it->n_puts));
    return yk_copy(stream, full + from * it->bytes + at, there, n, YK_COPY_HOST_TO_DEVICE);
}

yk_status yk_hostmem_take(yk_comm *c, int item, void *full, const void *own, yk_stream *stream)
{
    const yk_shelf_item *it = &c->shelf->items[item];
    char *place = (char *)full + c->index * it->bytes;
    YK_TRY(yk_hostmem_begin(c, HOSTMEM_LANE_SHELF, stream));
    if (own && own != place) YK_TRY(yk_copy(stream, place, own, it->bytes, YK_COPY_DEVICE));
    for (int k = 0; k < yk_shelf_n_pieces(it); k++)
        for (int i = own ? 1 : 0; i < c->size; i++)
            YK_TRY(take_piece(c, it, k, (c->index + i) % c->size, full, stream));
    atomic_fetch_add(&c->bytes_sent, (c->size - 1) * it->bytes);
    return yk_hostmem_end(c, HOSTMEM_LANE_SHELF, stream);
}

void yk_hostmem_release_shelf(const yk_comm *c, const hostmem_group *g)
{
    if (!atomic_load(&g->has_shelf)) return;
    for (int q = 0; q < c->size; q++)
        for (int k = 0; k < c->shelf->n_pieces; k++)
            __atomic_store_n(words_of(c, g, q, c->index) + k, FAR, __ATOMIC_RELEASE);
}
