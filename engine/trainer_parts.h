/* engine/trainer_parts.h - the state of a run under way; included by engine/start.c and trainer.c. */
#ifndef YK_ENGINE_TRAINER_PARTS_H
#define YK_ENGINE_TRAINER_PARTS_H

#include "comm/race.h"
#include "engine/feed.h"
#include "engine/plan.h"
#include "engine/trainer.h"
#include "optim/schedule.h"
#include "runtime/observe/gpu_watch.h"
#include "runtime/observe/metrics.h"
#include "runtime/observe/progress.h"
#include "runtime/observe/trace.h"

/* Steps whose mean is reported as the training loss. */
#define YK_LOSS_WINDOW 50

typedef struct yk_trainer {
    const yk_config *config;
    yk_world *world; /* the other ranks; NULL: none */
    int rank, n_ranks;
    yk_watchdog *watchdog; /* NULL: one rank */
    const yk_model_shape *shape;
    yk_dataset *data;
    yk_device *device;
    yk_plan plan;
    yk_race race; /* between what may carry collectives */
    yk_engine *engine;
    yk_loader *loader;
    yk_feed feed;
    yk_schedule schedule;
    yk_metrics *metrics;
    yk_progress progress;
    yk_recorder *recorder; /* of the steps that are traced; NULL: none has come yet */
    yk_trace *trace;

    yk_gpu_watch *gpu;  /* NULL: not a GPU, or its driver does not say */
    double model_flops; /* that a step of this rank needs */
    double sheet_rate;  /* operations/s by the data sheet, and of a measured product or 0 */
    double product_rate;
    bool started;        /* the first step's outcome was read */
    double train_s;      /* of steps */
    double begin_s;      /* when the step whose outcome is read next began, as far as is known */
    double wait_s;       /* for data, before it */
    double exposed_s;    /* waited for other ranks, before it */
    yk_comm_counts sent; /* before it */
    int64_t n_read;      /* steps whose outcome was read */
    int64_t tokens;
    double recent[YK_LOSS_WINDOW]; /* a ring of the last losses */
    int64_t last_saved;            /* step of the last saving, or -1 */
    bool stopping;                 /* a signal has come to some rank */
    bool is_asking;                /* whether one has; the answer is under way */
    yk_train_summary summary;
} yk_trainer;

/* Rank 0 speaks for all. */
static inline bool yk_trainer_speaks(const yk_trainer *t)
{
    return t->rank == 0;
}

/* Everything before the first step: check the input, find a place to run, prepare the folder, the
 * memory and the first weights. What is wrong with the input shows before a file is written.
 *                                                                                   [collective] */
yk_status yk_trainer_start(yk_trainer *t);

/* Has a signal asked any rank to stop? `stopping` says so, the same on all ranks: at once; or after the
 * next such call, or after yk_trainer_hear(), which ends what is under way.        [collective] */
yk_status yk_trainer_ask_now(yk_trainer *t);
yk_status yk_trainer_ask(yk_trainer *t);
yk_status yk_trainer_hear(yk_trainer *t);

#endif
