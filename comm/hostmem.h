/* comm/hostmem.h - what the files of the hostmem backend share; included by comm/ alone.
 *
 * Model.    The ranks of a group lie on one node and map one segment of host memory. What a rank has
 *           for others it copies from its device to slots of its own part of the segment; the others
 *           copy it to their devices from there. Both are work of copy streams, and what orders the
 *           streams of different processes are words in the segment: a stream writes a number when
 *           it has come so far, another one waits for it. No processor touches the data.
 * Channels. A way for chunks from a rank to one other, or to all others, with HOSTMEM_DEPTH slots, of
 *           which a chunk takes one, or two when it is long: `width`. What goes through slots is
 *           numbered from 0 on: number s is slot s % HOSTMEM_DEPTH. When slots s .. s + width - 1 are
 *           written, the writer says `ready` = s + width to each reader, who says `taken` = s + width
 *           when it has its copy; they are written again when all their readers have said so. All
 *           ranks issue the same collectives, so each knows every number without being told.
 * Lanes.    Reductions, gathers and values may be under way beside each other. The first two have a
 *           pair of copy streams each, `down` to the host and `up` from it, since a copy engine
 *           serves one direction; values go by the stream that was given.
 * Shelf.    What is gathered again and again lies in a second segment, in a place of its own, and words
 *           say how often it has been put there; it is taken by the stream that was given.
 * Memory.   hostmem_layout says where everything lies; it is a function of the group's options.
 */
#ifndef YK_COMM_HOSTMEM_H
#define YK_COMM_HOSTMEM_H

#include <mpi.h>
#include <pthread.h>

#include "comm/backend.h"

#define HOSTMEM_DEPTH 4

/* Chunks of a sum that may have arrived, or be arriving, in staging memory. The sum must find a place among
 * the model's own kernels, which may take long; and where ranks share a GPU, one sends so many while
 * the other waits for the copy engine. So many are added at once where nothing waits for their sum. */
#define HOSTMEM_ARRIVALS 4

/* Events of each kind, which chunks take in turns: that of a chunk can be waited for until so many more have
 * been issued. */
#define HOSTMEM_TURNS 8

/* Words of the segment, each from a rank to a rank; they grow, modulo 2^32. */
typedef enum hostmem_word {
    HOSTMEM_PART_READY, /* channels of parts to be summed, each to one rank */
    HOSTMEM_PART_TAKEN,
    HOSTMEM_SUM_READY, /* of sums, to all */
    HOSTMEM_SUM_TAKEN,
    HOSTMEM_GATHER_READY, /* of gathers and broadcasts, to all */
    HOSTMEM_GATHER_TAKEN,
    HOSTMEM_MET_REDUCE, /* how often a rank has come to a meeting of all, in reductions */
    HOSTMEM_MET_VALUES, /* likewise, of values and barriers */
    HOSTMEM_N_WORDS,
} hostmem_word;

typedef enum hostmem_lane {
    HOSTMEM_LANE_REDUCE,
    HOSTMEM_LANE_GATHER,
    HOSTMEM_LANE_VALUES,
    HOSTMEM_LANE_SHELF, /* what is taken from a shelf, by the stream that was given */
    HOSTMEM_N_LANES,
} hostmem_lane;

/* What has happened to a chunk of a sum, so that its staging memory may be read or written next. */
typedef enum hostmem_event {
    HOSTMEM_PACKED,
    HOSTMEM_SENT, /* its parts */
    HOSTMEM_ARRIVED,
    HOSTMEM_SUMMED,
    HOSTMEM_SUM_SENT,
    HOSTMEM_BACK, /* the others' sums */
    HOSTMEM_UNPACKED,
    HOSTMEM_N_EVENTS,
} hostmem_event;

/* Offsets are in bytes; those of slots are in a rank's part of the segment. */
typedef struct hostmem_layout {
    int n;                                    /* ranks */
    int64_t chunk_bytes;                      /* the longest chunk of a sum's part: two slots */
    int64_t gather_bytes;                     /* likewise of a gather */
    int64_t marks, values, greatest, flushed; /* behind the words, at the segment's begin */
    int64_t control_bytes;
    int64_t sums, gathers;      /* slots; those of parts come first */
    int64_t rank_bytes;         /* of a rank's part */
    int64_t segment_bytes;      /* all */
    int64_t out, in, sum, back; /* in staging memory: slots, by what a chunk is there */
    int64_t values_of_all, greatest_of_all, n_flushed; /* and what is small */
    int64_t staging_bytes;
} hostmem_layout;

/* Memory that the ranks share: a begin that all use, and a part for each rank, which it touches first. */
typedef struct hostmem_segment {
    int64_t control_bytes, rank_bytes, bytes;
    char *memory;
    bool is_pinned;
} hostmem_segment;

/* A pair of copy streams. */
typedef struct hostmem_copies {
    yk_stream *down, *up;
    yk_event *begun; /* the stream that was given has come to the collective */
    yk_event *down_done, *up_done;
} hostmem_copies;

typedef struct hostmem_group {
    hostmem_layout layout;
    hostmem_segment segment;
    hostmem_segment shelf; /* with a shelf: words, then what ranks have put there */
    atomic_bool has_shelf; /* it is mapped: the guard looks at it */
    MPI_Comm mpi;
    hostmem_copies copies[2]; /* HOSTMEM_LANE_REDUCE and _GATHER */
    yk_event *events[HOSTMEM_N_EVENTS][HOSTMEM_TURNS];
    uint32_t n_begun[HOSTMEM_N_LANES];
    int64_t begun_ns[HOSTMEM_N_LANES];                    /* where streams pass */
    uint32_t n_parts, n_sums, n_met_reduce, n_met_values; /* slots and meetings issued */
    uint32_t *n_gathered;                                 /* (n) slots of each rank */

    /* The guard, a thread that looks whether streams wait in vain. */
    pthread_t guard;
    bool is_guarded;
    int wake;      /* an eventfd: the guard is to end */
    uint32_t *far; /* (HOSTMEM_N_WORDS, n) what words are released with */
} hostmem_group;

static inline hostmem_group *yk_hostmem_of(const yk_comm *c)
{
    return c->state;
}

/* hostmem_layout.c */

/* Lay out a group. Pure. `staging_bytes` and `rank_bytes` are what it takes of each memory. */
hostmem_layout yk_hostmem_lay_out(const yk_comm *c);

/* The word `kind` from rank `from` to rank `to`; whether the collective that a lane is at has begun and
 * has ended on rank `rank`, as numbers. */
uint32_t *yk_hostmem_word(const hostmem_group *g, hostmem_word kind, int from, int to);
uint32_t *yk_hostmem_begun(const hostmem_group *g, int rank, hostmem_lane lane);
uint32_t *yk_hostmem_ended(const hostmem_group *g, int rank, hostmem_lane lane);

/* What ranks bring to a meeting: two rows of (n), taken in turns. */
yk_step_values *yk_hostmem_values(const hostmem_group *g, uint32_t meeting);
float *yk_hostmem_greatest(const hostmem_group *g, uint32_t meeting);

/* What a rank's gradients lost on the wire so far. */
int64_t *yk_hostmem_flushed(const hostmem_group *g, int rank);

/* Slots that a chunk takes, where the longest has `longest` bytes. */
static inline uint32_t yk_hostmem_width(int64_t bytes, int64_t longest)
{
    return bytes > longest / 2 ? 2 : 1;
}

/* The next number that as many slots can begin with and lie behind each other. */
static inline uint32_t yk_hostmem_align(uint32_t number, uint32_t width)
{
    return (number + width - 1) / width * width;
}

/* A slot of the channel whose word is `ready`, from rank `from`; `to` counts for parts alone. */
char *yk_hostmem_slot(const hostmem_group *g, hostmem_word ready, int from, int to,
                      uint32_t number);

/* hostmem_segment.c */

/* Make a segment, whose sizes are set, and map it on all ranks; zeros. The first one joins the ranks.
 *                                                                                   [collective]
 * mine  what this rank has made so far: a failure of one rank is that of all
 *
 * YK_ENOMEM       there is not so much memory, or it cannot be pinned
 * YK_EUNSUPPORTED the system does not let the ranks share memory
 */
yk_status yk_hostmem_map(yk_comm *c, hostmem_segment *s, yk_status mine);
void yk_hostmem_unmap(yk_comm *c, hostmem_segment *s);

/* hostmem_chunk.c: one chunk through a channel. */

/* A place in a channel. */
typedef struct hostmem_place {
    hostmem_word ready;
    uint32_t number, width; /* the first slot, and how many */
} hostmem_place;

/* Copy `bytes` of device memory to the own channel, for rank `to`, or for all. */
yk_status yk_hostmem_send(yk_comm *c, hostmem_place place, int to, const void *data, int64_t bytes);
/* Copy from a channel from rank `from` to this rank, or to all, to device memory. */
yk_status yk_hostmem_receive(yk_comm *c, hostmem_place place, int from, void *data, int64_t bytes);

#define HOSTMEM_ALL (-1)

/* A collective begins when `stream` is there; it ends there when its copies have. */
yk_status yk_hostmem_begin(yk_comm *c, hostmem_lane lane, yk_stream *stream);
yk_status yk_hostmem_end(yk_comm *c, hostmem_lane lane, yk_stream *stream);

/* Let `stream` pass when the streams of all ranks have come here for time number `meeting`. */
yk_status yk_hostmem_meet(yk_comm *c, hostmem_word met, uint32_t meeting, yk_stream *stream);

/* hostmem_reduce.c, hostmem_move.c: as in backend.h */
yk_status yk_hostmem_find_greatest(yk_comm *c, float *value, yk_stream *stream);
yk_status yk_hostmem_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream);
yk_status yk_hostmem_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                yk_stream *stream);
yk_status yk_hostmem_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root,
                               yk_stream *stream);
yk_status yk_hostmem_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream);
yk_status yk_hostmem_barrier(yk_comm *c, yk_stream *stream);

/* hostmem_shelf.c: likewise */
yk_status yk_hostmem_shelve(yk_comm *c);
yk_status yk_hostmem_put(yk_comm *c, int item, const void *data, yk_stream *stream);
yk_status yk_hostmem_take(yk_comm *c, int item, void *full, const void *own, yk_stream *stream);

/* Let this rank's streams pass that wait for what others put on the shelf, now and ever after. */
void yk_hostmem_release_shelf(const yk_comm *c, const hostmem_group *g);

/* hostmem_guard.c */
yk_status yk_hostmem_guard_start(yk_comm *c, hostmem_group *g);
void yk_hostmem_guard_stop(hostmem_group *g);

#endif
