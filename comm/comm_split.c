/* comm/comm_split.c - one group whose gathers and broadcasts go by one backend and all else by another: where
 * either is faster for its kind.
 *
 * Two groups of the same ranks; each collective is one of one of them.
 */
#include <stdio.h>

#include "comm/backend.h"

typedef struct split {
    yk_comm *whole;          /* the group that this is of */
    yk_comm *gathers, *sums; /* owned */
    char name[48];
} split;

static split *split_of(const yk_comm *c)
{
    return c->state;
}

const char *yk_comm_split_name(const yk_comm *c)
{
    return split_of(c)->name;
}

int64_t yk_comm_split_shared_bytes(const yk_comm *c)
{
    const split *s = split_of(c);
    return yk_comm_shared_bytes(s->gathers) + yk_comm_shared_bytes(s->sums);
}

void yk_comm_split_parts(const yk_comm *c, const yk_comm *parts_out[2])
{
    parts_out[0] = split_of(c)->gathers;
    parts_out[1] = split_of(c)->sums;
}

bool yk_comm_split_has_shelf(const yk_comm *c)
{
    return yk_comm_has_shelf(split_of(c)->gathers);
}

/* ---- making and releasing ----------------------------------------------------------------- */

static yk_status split_create(yk_comm *c)
{
    split *s = split_of(c);
    yk_comm_options o = c->o;
    s->whole = c;
    o.gathers = YK_COMM_AUTO;
    YK_TRY(yk_comm_create(&o, &s->sums));
    o.backend = c->o.gathers;
    o.whole = NULL;
    YK_TRY(yk_comm_create(&o, &s->gathers));
    c->greatest = s->sums->greatest;
    snprintf(s->name, sizeof s->name, "%s, gathers %s", yk_comm_backend_name(s->sums),
             yk_comm_backend_name(s->gathers));
    return YK_OK;
}

static void split_destroy(yk_comm *c)
{
    split *s = split_of(c);
    yk_comm_destroy(s->gathers); /* and the shelf, if there is one */
    c->shelf = NULL;
    yk_comm_destroy(s->sums);
}

static int64_t split_flushed(const yk_comm *c)
{
    const split *s = split_of(c);
    yk_comm_counts a = yk_comm_get_counts(s->gathers), b = yk_comm_get_counts(s->sums);
    atomic_store(&s->whole->bytes_sent, a.bytes_sent + b.bytes_sent);
    atomic_store(&s->whole->n_collectives, a.n_collectives + b.n_collectives);
    atomic_store(&s->whole->busy_ns, (int64_t)(1e9 * (a.busy_s + b.busy_s)));
    return b.n_flushed;
}

/* ---- collectives -------------------------------------------------------------------------- */

static yk_status begin(yk_comm *c)
{
    const split *s = split_of(c);
    return yk_comm_inherit_failure(c, s->gathers, s->sums);
}

static yk_status split_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                  yk_stream *stream)
{
    yk_comm *by = split_of(c)->gathers;
    YK_TRY(begin(c));
    return by->backend->all_gather(by, full, shard, bytes, stream);
}

static yk_status split_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root,
                                 yk_stream *stream)
{
    yk_comm *by = split_of(c)->gathers;
    YK_TRY(begin(c));
    return by->backend->broadcast(by, buffer, bytes, root, stream);
}

static yk_status split_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    yk_comm *by = split_of(c)->sums;
    YK_TRY(begin(c));
    return by->backend->reduce(by, r, stream);
}

static yk_status split_greatest(yk_comm *c, float *value, yk_stream *stream)
{
    yk_comm *by = split_of(c)->sums;
    return by->backend->greatest(by, value, stream);
}

static yk_status split_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    yk_comm *by = split_of(c)->sums;
    YK_TRY(begin(c));
    return by->backend->all_reduce_values(by, values, stream);
}

static yk_status split_barrier(yk_comm *c, yk_stream *stream)
{
    yk_comm *by = split_of(c)->sums;
    YK_TRY(begin(c));
    return by->backend->barrier(by, stream);
}

/* ---- a shelf, of the group that gathers --------------------------------------------------- */

static yk_status split_shelve(yk_comm *c)
{
    yk_comm *by = split_of(c)->gathers;
    by->shelf = c->shelf;
    return by->backend->shelve(by);
}

static yk_status split_put(yk_comm *c, int item, const void *data, yk_stream *stream)
{
    yk_comm *by = split_of(c)->gathers;
    YK_TRY(begin(c));
    return by->backend->put(by, item, data, stream);
}

static yk_status split_take(yk_comm *c, int item, void *full, const void *own, yk_stream *stream)
{
    yk_comm *by = split_of(c)->gathers;
    YK_TRY(begin(c));
    return by->backend->take(by, item, full, own, stream);
}

const yk_comm_backend yk_comm_split = {
    .name = "split",
    .state_bytes = sizeof(split),
    .create = split_create,
    .destroy = split_destroy,
    .all_gather = split_all_gather,
    .reduce = split_reduce,
    .greatest = split_greatest,
    .all_reduce_values = split_all_reduce_values,
    .broadcast = split_broadcast,
    .barrier = split_barrier,
    .shelve = split_shelve,
    .put = split_put,
    .take = split_take,
    .flushed = split_flushed,
};
