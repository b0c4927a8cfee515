/* runtime/memory/arena.c - the stack of pieces behind arena.h.
 *
 * The list of live pieces grows with the first step and then stays: pushing a piece allocates
 * nothing once the deepest stack has been seen.
 */
#include "runtime/memory/arena.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"

/* Room on a dry device: more than any plan asks for, less than an address space holds. */
#define MEASURE_BYTES ((int64_t)1 << 52)
#define RED_ZONE_BYTE 0xa5

typedef struct piece {
    const char *name;
    int64_t begin, data_end, end; /* byte offsets; what lies behind data_end is red zone */
} piece;

struct yk_arena {
    yk_device *device;
    const char *name;
    yk_memory_kind kind;
    char *base;
    int64_t capacity, allocated, high, red_zone;
    piece *pieces, *peak; /* (n_room) live now, and when the high-water mark was raised */
    int n_pieces, n_peak, n_room;
    piece lent; /* above the top, of the last operation that took workspace; end 0: none */
};

yk_status yk_arena_create(yk_device *device, const char *name, yk_memory_kind kind,
                          int64_t capacity, int64_t red_zone, yk_arena **arena_out)
{
    bool measure = capacity == YK_ARENA_MEASURE;
    if (measure && yk_device_get_kind(device) != YK_DEVICE_DRY)
        return yk_fail(YK_EINVAL, name, "only a dry device measures; give a capacity");
    if (red_zone < 0 || red_zone % YK_ARENA_ALIGN != 0)
        return yk_fail(YK_EINVAL, name, "a red zone of %" PRId64 " bytes is not a multiple of %d",
                       red_zone, YK_ARENA_ALIGN);

    yk_arena *arena = calloc(1, sizeof *arena);
    if (!arena) return yk_fail(YK_ENOMEM, name, "no memory for the arena's list");
    *arena = (yk_arena){.device = device, .name = name, .kind = kind, .red_zone = red_zone};
    arena->capacity = measure ? MEASURE_BYTES : capacity;
    arena->allocated = arena->capacity;
    if (arena->allocated > 0) {
        void *base = NULL;
        yk_status status = yk_device_alloc_named(device, kind, name, arena->allocated, &base);
        if (status != YK_OK) {
            free(arena);
            return status;
        }
        arena->base = base;
    }
    *arena_out = arena;
    return YK_OK;
}

void yk_arena_destroy(yk_arena *arena)
{
    if (!arena) return;
    yk_arena_pop(arena, 0);
    yk_device_free(arena->device, arena->kind, arena->allocated, arena->base);
    free(arena->pieces);
    free(arena->peak);
    free(arena);
}

static bool has_red_zones(const yk_arena *arena)
{
    return arena->red_zone > 0 && yk_device_get_kind(arena->device) == YK_DEVICE_CPU;
}

static void check_red_zone(const yk_arena *arena, const piece *p)
{
    const unsigned char *zone = (const unsigned char *)arena->base + p->data_end;
    for (int64_t i = 0; i < p->end - p->data_end; i++) {
        if (zone[i] == RED_ZONE_BYTE) continue;
        yk_warn(arena->name, "piece '%s' was written %" PRId64 " bytes past its end", p->name,
                i + 1);
        YK_CHECK(!"a red zone was overwritten");
    }
}

static yk_status make_room(yk_arena *arena)
{
    if (arena->n_pieces < arena->n_room) return YK_OK;
    int n = arena->n_room ? 2 * arena->n_room : 256;
    piece *pieces = realloc(arena->pieces, (size_t)n * sizeof *pieces);
    if (!pieces) goto fail;
    arena->pieces = pieces;
    pieces = realloc(arena->peak, (size_t)n * sizeof *pieces);
    if (!pieces) goto fail;
    arena->peak = pieces;
    arena->n_room = n;
    return YK_OK;
fail:
    return yk_fail(YK_ENOMEM, arena->name, "no memory for a list of %d pieces", n);
}

/* What was lent is used no more. */
static void take_back(yk_arena *arena)
{
    if (arena->lent.end > 0 && has_red_zones(arena)) check_red_zone(arena, &arena->lent);
    arena->lent = (piece){0};
}

/* Remember what is live now as the ledger, with what lies on top, which is not among it yet. */
static void record_peak(yk_arena *arena, const piece *top)
{
    arena->high = top->end;
    memcpy(arena->peak, arena->pieces, (size_t)arena->n_pieces * sizeof *arena->peak);
    arena->peak[arena->n_pieces] = *top;
    arena->n_peak = arena->n_pieces + 1;
}

/* Find `bytes` on top. */
static yk_status place(yk_arena *arena, const char *name, int64_t bytes, piece *piece_out)
{
    take_back(arena);
    int64_t begin = yk_arena_used(arena), end;
    bool fits = bytes >= 0 && yk_add(begin, bytes, &end) && yk_add(end, YK_ARENA_ALIGN, &end) &&
                yk_add(end, arena->red_zone, &end);
    if (fits) {
        end = begin + yk_round_up(bytes, YK_ARENA_ALIGN) + arena->red_zone;
        fits = end <= arena->capacity;
    }
    if (!fits && arena->capacity == MEASURE_BYTES)
        return yk_fail(YK_ENOFIT, arena->name,
                       "'%s' takes %" PRId64 " bytes beside %" PRId64
                       ", and a plan goes to %" PRId64
                       "; take a smaller model, batch or train.seq_len",
                       name, bytes, begin, arena->capacity);
    if (!fits)
        return yk_fail(YK_ENOMEM, arena->name,
                       "'%s' asks for %" PRId64 " bytes with %" PRId64 " of %" PRId64
                       " in use; what runs is not what was planned",
                       name, bytes, begin, arena->capacity);
    YK_TRY(make_room(arena));
    *piece_out = (piece){name, begin, begin + bytes, end};
    if (end > arena->high) record_peak(arena, piece_out);
    if (has_red_zones(arena))
        memset(arena->base + begin + bytes, RED_ZONE_BYTE, (size_t)(end - begin - bytes));
    return YK_OK;
}

yk_status yk_arena_push(yk_arena *arena, const char *name, int64_t bytes, void **piece_out)
{
    piece p;
    YK_TRY(place(arena, name, bytes, &p));
    arena->pieces[arena->n_pieces++] = p;
    *piece_out = arena->base + p.begin;
    return YK_OK;
}

static yk_status lend(void *lender, int64_t bytes, void **ws_out)
{
    yk_arena *arena = lender;
    YK_TRY(place(arena, "workspace", bytes, &arena->lent));
    *ws_out = arena->base + arena->lent.begin;
    return YK_OK;
}

void yk_arena_lend(yk_arena *arena, yk_stream *stream)
{
    yk_stream_borrow_workspace(stream, lend, arena);
}

int yk_arena_mark(const yk_arena *arena)
{
    return arena->n_pieces;
}

void yk_arena_pop(yk_arena *arena, int mark)
{
    YK_CHECK(mark >= 0 && mark <= arena->n_pieces);
    take_back(arena);
    if (has_red_zones(arena))
        for (int i = mark; i < arena->n_pieces; i++) check_red_zone(arena, &arena->pieces[i]);
    arena->n_pieces = mark;
}

int64_t yk_arena_used(const yk_arena *arena)
{
    return arena->n_pieces ? arena->pieces[arena->n_pieces - 1].end : 0;
}

int64_t yk_arena_high(const yk_arena *arena)
{
    return arena->high;
}

int64_t yk_arena_capacity(const yk_arena *arena)
{
    return arena->capacity;
}

int yk_arena_n_peak_items(const yk_arena *arena)
{
    return arena->n_peak;
}

yk_arena_item yk_arena_get_peak_item(const yk_arena *arena, int i)
{
    YK_CHECK(i >= 0 && i < arena->n_peak);
    const piece *p = &arena->peak[i];
    return (yk_arena_item){p->name, p->end - p->begin};
}
