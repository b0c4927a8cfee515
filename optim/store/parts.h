/* optim/store/parts.h - the inside of a store; included by optim/store/ alone.
 *
 * Ranges are in elements of a unit's flat layout. With one rank every range is the whole and
 * nothing travels.
 */
#ifndef YK_OPTIM_STORE_PARTS_H
#define YK_OPTIM_STORE_PARTS_H

#include "optim/store/store.h"
#include "runtime/device/timer.h"

/* Tensors start at multiples of this many elements, and so does every shard. */
#define YK_STORE_TENSOR_ALIGN 128

/* A part of a unit's flat buffers. */
typedef struct yk_store_range {
    int64_t begin, count;
} yk_store_range;

/* What is kept of a unit, and where. A buffer that holds a range begins with that range's first
 * element. */
typedef struct yk_store_unit {
    int64_t count;        /* elements, padding included; a multiple of 128 * world */
    int64_t used_count;   /* up to the end of the last tensor, rounded up to 128 */
    yk_store_range shard; /* this rank's part of one copy of the state */
    yk_store_range mine;  /* what this rank alone squares: the world's ranks tile the unit */

    yk_store_range param_range, state_range, grad_range; /* what the buffers below hold */
    void *param;                                         /* compute dtype */
    void *master;   /* master dtype; where that is the compute dtype, a part of `param` */
    void *m, *v;    /* moments dtype */
    void *grad;     /* grads dtype: what the model writes, or the sums of micro-batches */
    int param_slot; /* of gathered parameters, or -1 */
    int grad_slot;  /* that the model's gradient is written to, or -1 */
    int64_t param_back, grad_back; /* elements in them, or on their way, from host memory */
    yk_event *readable;            /* parameters have arrived where the model reads them */
    yk_event *reduced;             /* the gradient's sum over ranks is there */
    yk_event *stored;              /* what went to host memory last is there */
    yk_event *put;                 /* the shard has gone to the shelf */
    bool is_put;                   /* what lies on the shelf, or is on its way, is what is kept */
    int n_uses;                    /* units that use its tensors */
    int uses_also;                 /* the unit whose tensors it uses beside its own, or -1 */
    int uses_left;                 /* of the backward pass under way */
    int first_tensor, n_tensors;   /* of `order` */
    int64_t micro_left; /* micro-batches of this step whose gradients are still to come */
} yk_store_unit;

/* Memory that units take turns in: gathered parameters, or gradients on their way to a sum. */
typedef struct yk_store_slot {
    void *data;
    int64_t count;    /* elements that it has room for */
    int unit;         /* whose content it is, or -1 */
    bool held;        /* may not be given to another unit now */
    int64_t used_at;  /* on the clock of the slots: the oldest is given away first */
    yk_event *free;   /* passed when the last use of the content is done */
    yk_event *filled; /* what came from host memory is there */
} yk_store_slot;

/* Waits of a compute stream that are timed and not passed yet: two steps of a deep model. */
#define YK_STORE_WAITS 1024

typedef struct yk_store_slots {
    yk_store_slot *items; /* (n_items) owned */
    int n_items;
    int64_t clock;
} yk_store_slots;

/* Device memory through which an update takes a piece of what lies in host memory, in and out
 * again. */
typedef struct yk_store_lane {
    void *param, *master, *m, *v, *grad; /* (piece); NULL for what is on the device anyway */
    yk_event *filled, *used, *free;
} yk_store_lane;

/* One comes in, one is worked on, one goes out. */
#define YK_STORE_LANES 3

struct yk_store {
    yk_store_options o;
    yk_store_groups g;
    yk_host_side host;
    int n_shards;         /* ranks that share one copy of the state */
    int64_t n_micro;      /* micro-batches of the step under way */
    yk_store_unit *units; /* (n_units) */
    int64_t *offsets;     /* (n_params) of each tensor in its unit, in elements */
    int *order;           /* (n_params) tensors by unit, and by offset within */
    yk_param_view *views; /* (n_params) */
    yk_grad_view *grads;  /* (n_params) */
    uint64_t *keys;       /* (n_params) of the bits that rounding draws */
    yk_store_slots param_slots, grad_slots;
    int n_block_slots; /* of param_slots, those that blocks take turns in; the ends' lie behind */
    yk_store_slots sum_slots; /* of gradients that are summed at each micro-batch and offloaded */
    yk_store_lane lanes[YK_STORE_LANES];
    int next_lane;
    bool has_lanes;
    yk_timer *waits;  /* of a compute stream, for other ranks */
    yk_event *passed; /* for letting one stream follow another */

    yk_step_values *values; /* of the step under way; borrowed */
};

/* The element of a unit's layout with number `index`, in a buffer that holds `range`. */
static inline void *yk_store_at(void *buffer, yk_store_range range, int64_t index, yk_dtype dtype)
{
    return (char *)buffer + (index - range.begin) * yk_dtype_bytes(dtype);
}

/* Are there other ranks? */
static inline bool yk_store_is_shared(const yk_store *st)
{
    return st->g.all && yk_comm_size(st->g.all) > 1;
}

/* Does a kind of state lie in host memory? */
static inline bool yk_store_offloads(const yk_store *st, yk_offload kind)
{
    return (st->o.offload & (int)kind) != 0;
}

/* Are there master weights beside what the model reads? */
static inline bool yk_store_has_master(const yk_store *st)
{
    return st->o.train && st->o.compute != st->o.master;
}

/* Must parameters be gathered before they are read? */
static inline bool yk_store_gathers(const yk_store *st)
{
    int from = yk_store_offloads(st, YK_OFFLOAD_PARAMS) ? 1 : 3;
    return st->o.zero >= from && st->n_shards > 1;
}

/* Are they gathered from a shelf? */
static inline bool yk_store_has_shelf(const yk_store *st)
{
    return st->o.shelf && yk_store_gathers(st) && yk_comm_has_shelf(st->g.shard);
}

/* Are parameters brought to a slot before they are read? */
static inline bool yk_store_fetches(const yk_store *st)
{
    return yk_store_gathers(st) || yk_store_offloads(st, YK_OFFLOAD_PARAMS);
}

/* Are gradients summed over ranks micro-batch by micro-batch? */
static inline bool yk_store_reduces_each(const yk_store *st)
{
    return st->o.train && st->o.reduce_each_micro && yk_store_is_shared(st);
}

/* Are gradients squared as they leave for host memory? Alone, what leaves last is the whole sum. */
static inline bool yk_store_squares_leaving(const yk_store *st)
{
    return yk_store_offloads(st, YK_OFFLOAD_GRADS) && !yk_store_is_shared(st);
}

/* Does the model write gradients to slots? */
static inline bool yk_store_slots_grads(const yk_store *st)
{
    return yk_store_reduces_each(st) || yk_store_offloads(st, YK_OFFLOAD_GRADS);
}

/* Does `unit` use tensors that `owner` owns? */
bool yk_store_uses(const yk_store *st, int unit, int owner);

/* Point the views of a unit's tensors into `data`, its whole layout. */
void yk_store_point_params(yk_store *st, int unit, void *data);
void yk_store_point_grads(yk_store *st, int unit, void *data);

/* Let work that follows on `later` start after what is enqueued on `earlier`. */
yk_status yk_store_follow(yk_store *st, yk_stream *later, yk_stream *earlier);

/* Let `stream` wait for communication, and count how long it is held; what one rank waits for alone
 * comes from host memory and does not count. */
yk_status yk_store_wait(yk_store *st, yk_event *event, yk_stream *stream);

/* Give `unit` the smallest slot that is large enough, of equal ones that unused for longest, and let
 * work that follows on `stream` wait for its last use. A block never takes the place that the
 * embedding needs. */
yk_status yk_store_slot_take(yk_store_slots *slots, int unit, int64_t count, yk_stream *stream,
                             int *slot_out);

/* Add the square of a unit's gradient in `grad`, which holds all of it, to the values of the step. */
yk_status yk_store_square_leaving(yk_store *st, int unit, void *grad, yk_stream *stream);

/* Take the memory of the lanes, where an update needs them; the size of a piece is settled. */
yk_status yk_store_push_lanes(yk_store *st, yk_arena *arena, yk_stream *stream);
void yk_store_destroy_lanes(yk_store *st);

/* After an update on `stream`: let every rank have the unit's new parameters. */
yk_status yk_store_publish(yk_store *st, int unit, yk_stream *stream);

#endif
