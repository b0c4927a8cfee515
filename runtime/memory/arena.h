/* runtime/memory/arena.h - one block of memory, taken once, handed out as a stack.
 *
 * Model.    An arena takes its capacity from the device when it is created and never again. Pieces
 *           are pushed on top and popped down to a mark, so that what is alive is always one range
 *           and the most that ever was alive is one number: the high-water mark. On a dry device an
 *           arena may be created without a capacity; running a step against it then measures how
 *           much a real one needs. The same calls in the same order give the same high-water mark.
 * Lending.  An arena may lend what lies above its top to a stream, whose operations take their
 *           workspaces there: one operation at a time, until the next or until something is pushed.
 *           So workspace costs only what it reaches above everything else. What is pushed later
 *           must be touched first by that stream, which is in order; what other streams touch first
 *           belongs into another arena.
 * Names.    Every live piece has a name and a size: the ledger that is printed at start and by
 *           `yoke plan`.
 * Red zones. An arena created with red_zone > 0 puts that many patterned bytes behind each piece
 *           and checks them when it is popped or destroyed. Only where the host can read the
 *           memory.
 * Threads.  One thread at a time.
 */
#ifndef YK_RUNTIME_MEMORY_ARENA_H
#define YK_RUNTIME_MEMORY_ARENA_H

#include "runtime/device/device.h"

/* Every piece starts at a multiple of this many bytes. */
#define YK_ARENA_ALIGN 256

/* A capacity for dry devices: grow as asked, to measure. */
#define YK_ARENA_MEASURE (-1)

typedef struct yk_arena yk_arena;

/* One entry of the ledger. */
typedef struct yk_arena_item {
    const char *name;
    int64_t bytes; /* as asked for, rounded up to YK_ARENA_ALIGN, red zone included */
} yk_arena_item;

/* Take `capacity` bytes of `kind` from the device; 0 takes nothing and admits nothing.  [local]
 *
 * name      of the arena, for messages; borrowed until it is destroyed
 * red_zone  bytes of pattern behind each piece; a multiple of YK_ARENA_ALIGN
 *
 * YK_EINVAL  YK_ARENA_MEASURE on a device that is not dry
 * YK_ENOMEM  the device has less; reported by the device with the bytes that are free
 */
yk_status yk_arena_create(yk_device *device, const char *name, yk_memory_kind kind,
                          int64_t capacity, int64_t red_zone, yk_arena **arena_out);

/* Give the memory back. NULL does nothing. */
void yk_arena_destroy(yk_arena *arena);

/* Put `bytes` >= 0 on top. The content is undefined.                                     [local]
 *
 * name  borrowed until the arena is destroyed
 *
 * YK_ENOMEM  the capacity is used up: what was planned and what runs differ
 */
yk_status yk_arena_push(yk_arena *arena, const char *name, int64_t bytes, void **piece_out);

/* The present top, for yk_arena_pop(). */
int yk_arena_mark(const yk_arena *arena);

/* Lend what is above the top to `stream`, as yk_stream_borrow_workspace() has it; the arena must outlive
 * the stream's last operation. A workspace that reaches above all else is a piece of the ledger. */
void yk_arena_lend(yk_arena *arena, yk_stream *stream);

/* Drop every piece pushed since `mark` was taken. */
void yk_arena_pop(yk_arena *arena, int mark);

int64_t yk_arena_used(const yk_arena *arena);
int64_t yk_arena_high(const yk_arena *arena);
int64_t yk_arena_capacity(const yk_arena *arena);

/* The pieces that were live when the high-water mark was last raised, bottom first. Names must
 * still be valid. */
int yk_arena_n_peak_items(const yk_arena *arena);
yk_arena_item yk_arena_get_peak_item(const yk_arena *arena, int i);

#endif
