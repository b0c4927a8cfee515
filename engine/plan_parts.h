/* engine/plan_parts.h - what the files that make plans share; included by engine/plan*.c alone. */
#ifndef YK_ENGINE_PLAN_PARTS_H
#define YK_ENGINE_PLAN_PARTS_H

#include "engine/plan.h"

/* What is planned for; all borrowed. */
typedef struct yk_plan_target {
    const yk_model_shape *shape;
    const yk_device_spec *spec;
    const yk_topology *topology; /* NULL: one rank */
    int64_t red_zone;
    FILE *refusal; /* gets one as JSON; NULL: it is said alone */
} yk_plan_target;

static inline int64_t yk_plan_target_ranks(const yk_plan_target *target)
{
    return target->topology ? target->topology->ranks : 1;
}

/* Open a dry device and make the engine of a plan on it; both are the caller's to release. */
yk_status yk_plan_open_dry(const yk_plan_target *target, const yk_config *config,
                           yk_device **device_out, yk_engine **engine_out);

/* Plan `config`, which leaves nothing to choose, whatever it takes. */
yk_status yk_plan_try(const yk_plan_target *target, const yk_config *config, yk_plan *plan_out);

/* Device memory that may be used. */
int64_t yk_plan_limit(const yk_config *config, const yk_device_spec *spec);

static inline int64_t yk_plan_pinned_bytes(const yk_plan *plan)
{
    return plan->sizes.pinned + plan->sizes.shared;
}

/* Of the memory that is limited: on processors what is pinned comes out of the same. */
static inline int64_t yk_plan_taken_bytes(const yk_plan *plan)
{
    bool cpu = plan->spec.kind == YK_DEVICE_CPU;
    return yk_plan_device_bytes(plan) + (cpu ? yk_plan_pinned_bytes(plan) : 0);
}

/* Bytes/s, nominal, of the link by which ranks of a node meet. */
static inline double yk_plan_link_rate(const yk_plan *plan)
{
    const yk_device_spec *s = &plan->spec;
    if (s->kind == YK_DEVICE_CPU) return plan->topology.node_rate;
    return s->peer_rate > 0 ? s->peer_rate : s->host_link_rate;
}

static inline bool yk_plan_fits_device(const yk_plan *plan)
{
    return yk_plan_taken_bytes(plan) <= plan->limit;
}

/* The device and, as far as that is known, the host. */
static inline bool yk_plan_fits(const yk_plan *plan)
{
    int64_t host_bytes = plan->spec.host_bytes;
    return yk_plan_fits_device(plan) &&
           (host_bytes == 0 || yk_plan_pinned_bytes(plan) <= host_bytes);
}

/* The item of a plan that takes most of the host; one of no bytes where nothing is pinned. */
const yk_plan_item *yk_plan_largest_pinned(const yk_plan *plan);

/* Does the configuration leave something for the plan to choose? */
bool yk_plan_has_choices(const yk_plan_target *target, const yk_config *config);

/* Choices that fit, the fastest first. */
typedef struct yk_plan_row {
    yk_config config; /* nothing left to choose; its strings are those of the given one */
    int64_t bytes;    /* of the memory that is limited */
    int64_t pinned_bytes;
    double step_s;
} yk_plan_row;

/* Search what `config` leaves open for what fits.
 *
 * unlike    of rows that let the same go to the host, the fastest alone
 * rows_out  (max_rows) the fastest; n_out of them
 *
 * YK_EINVAL  the batch does not divide; whatever a plan fails with
 */
yk_status yk_plan_search(const yk_plan_target *target, const yk_config *config, bool unlike,
                         yk_plan_row *rows_out, int max_rows, int *n_out);

/* Are there several nodes, of several ranks each? */
bool yk_plan_has_nodes(const yk_plan_target *target);

/* Set a policy of recomputation by its strength: 0 makes nothing again, each number up to
 * yk_plan_strengths() lets one block more make more again. */
int64_t yk_plan_strengths(const yk_model_shape *shape);
void yk_plan_set_strength(yk_config *config, const yk_model_shape *shape, int64_t strength);
int64_t yk_plan_strength_of(const yk_config *config, const yk_model_shape *shape);

/* Sets of what goes to the host, in the order in which they are tried; the first is empty, and the
 * only one on processors, whose memory is the host's. */
int yk_plan_n_offloads(const yk_plan_target *target);
int yk_plan_offload(const yk_config *config, int level);

/* The least number for which something holds that holds for all that are greater, by asking. */
typedef struct yk_plan_hunt {
    int64_t low;  /* it does not hold */
    int64_t high; /* it holds, or this is beyond the last */
    int64_t at;   /* to be asked about, while high - low > 1 */
    int64_t reach;
    bool went_down, went_up;
} yk_plan_hunt;

/* It holds at `high`, not at `low`, and probably from `guess` on. */
void yk_plan_hunt_begin(yk_plan_hunt *hunt, int64_t low, int64_t high, int64_t guess);
void yk_plan_hunt_answer(yk_plan_hunt *hunt, bool holds);

static inline bool yk_plan_hunt_ends(const yk_plan_hunt *hunt)
{
    return hunt->high - hunt->low <= 1;
}

/* What a strength is looked for with. */
typedef struct yk_plan_aim {
    int64_t above; /* this one does not fit, as is known; -1: none is known */
    int64_t guess; /* looked at first; afterwards what was found, or the last that did not fit */
    double bar_s;  /* a step that takes so long is of no use */
} yk_plan_aim;

/* The least strength with which `config` fits and is of use. *plan_out is its plan where *fits_out. */
yk_status yk_plan_find_strength(const yk_plan_target *target, const yk_config *config,
                                yk_plan_aim *aim, bool *fits_out, yk_plan *plan_out);

/* A candidate of the search: what recomputation and rows of logits are chosen for. */
typedef struct yk_plan_trial {
    double bar_s; /* a step that takes so long is of no use */
    double
        least_s; /* of a step with the largest micro-batch that makes nothing again; 0: not known */
    int64_t strength; /* to begin with; afterwards what was found */
    double limit_s;   /* afterwards: where larger micro-batches, as strong, are not of use either */
    bool ends;        /* afterwards: nothing took less than that */
    double
        bare_s; /* afterwards, where recomputation is open: with nothing made again, if it fits or not */
    double ease_s; /* by which it was lessened for blocks that might be kept */
} yk_plan_trial;

/* Plan a candidate. *plan_out is the fastest plan of it where *fits_out; one that is of no use need not be
 * found. */
yk_status yk_plan_try_out(const yk_plan_target *target, const yk_config *config,
                          yk_plan_trial *trial, bool *fits_out, yk_plan *plan_out);

/* Does `config` with the fewest rows of logits and everything made again, or `bare`, nothing, fit? What is
 * given stays. */
yk_status yk_plan_least_fits(const yk_plan_target *target, const yk_config *config, bool bare,
                             bool *fits_out);

/* Seconds of a step that makes nothing again, with the most rows of logits, whatever memory it takes. */
yk_status yk_plan_bare_step_s(const yk_plan_target *target, const yk_config *config,
                              double *seconds_out);

/* Is memory.head_chunk to be chosen? On processors it follows from the model. */
bool yk_plan_head_is_open(const yk_plan_target *target, const yk_config *config);

/* Rows of logits to choose from, for the micro-batch of `config`, the most first; returns how many. */
#define YK_PLAN_HEAD_CHUNKS 5
int yk_plan_head_chunks(const yk_plan_target *target, const yk_config *config,
                        int64_t chunks_out[YK_PLAN_HEAD_CHUNKS]);

/* Seconds that a step must gain by the head chunk of `config` to be worth its memory. */
double yk_plan_head_price(const yk_plan_target *target, const yk_config *config);

/* Is a micro-batch cut into more chunks than can be wanted, by a memory.head_chunk that is given?
 *
 * YK_EINVAL  yk_plan_check_head(): it is, even of one sequence where train.micro_batch is open
 */
bool yk_plan_head_is_cut_up(const yk_config *config);
yk_status yk_plan_check_head(const yk_config *config);

/* The fewest rows, or the most, where they are to be chosen. */
void yk_plan_take_least_head(const yk_plan_target *target, yk_config *config);
void yk_plan_take_most_head(const yk_plan_target *target, yk_config *config);

/* Where a plan leaves memory.kept_blocks open, keep as many as fit. */
yk_status yk_plan_keep(const yk_plan_target *target, yk_plan *plan);

/* Could more blocks be kept than `config` has, which leaves nothing open, if there were room? */
bool yk_plan_may_keep_more(const yk_plan_target *target, const yk_config *config);

/* The seconds that it could gain by that, if there were room for all. */
yk_status yk_plan_find_ease(const yk_plan_target *target, const yk_plan *plan, double *seconds_out);

/* As memory.recompute has them, by yk_recompute. */
extern const char *const yk_plan_recompute_names[];

/* Write what was chosen: "train.micro_batch: 8, memory.recompute: none, parallel.zero: 1". Of what
 * `given` leaves open when it is there, else everything. */
void yk_plan_write_choices(const yk_config *config, const yk_config *given, char *text,
                           size_t room);

/* A change to a configuration, of one key or of several, with which it fits. */
typedef struct yk_plan_change {
    char text[280]; /* "memory.recompute: cheap" */
    int64_t bytes;  /* of the memory that is limited */
    int64_t pinned_bytes;
    double step_s;
} yk_plan_change;

#define YK_PLAN_CHANGES 3 /* that are told */

/* Find changes with which `config`, what it leaves open chosen anew, fits; the fastest first. */
yk_status yk_plan_find_changes(const yk_plan_target *target, const yk_config *config,
                               yk_plan_change changes_out[YK_PLAN_CHANGES], int *n_out);

/* Seconds of a step of `config` if the device had `bytes`, and the host no end. */
yk_status yk_plan_roomy_step_s(const yk_plan_target *target, const yk_config *config, int64_t bytes,
                               double *seconds_out);

/* Print the same as a JSON object. `open`: what it takes is the least. */
void yk_plan_print_refusal(const yk_plan *plan, bool open, double roomy_s,
                           const yk_plan_change *changes, int n_changes, FILE *out);

/* Report that `config` does not fit, and what would; `plan` is of it or, where it leaves something open,
 * of what takes the least. */
yk_status yk_plan_refuse(const yk_plan_target *target, const yk_config *config,
                         const yk_plan *plan);

/* The same of a configuration that leaves something open. */
yk_status yk_plan_refuse_all(const yk_plan_target *target, const yk_config *config);

#endif
