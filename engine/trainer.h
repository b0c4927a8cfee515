/* engine/trainer.h - a whole run: from a configuration to saved weights.
 *
 * Everything that can be wrong with the input is found before anything is written. Then the run's
 * folder gets config.yaml (complete, as run), metrics.jsonl (a line a step) and, at the end,
 * model/, a Hugging Face directory.
 */
#ifndef YK_ENGINE_TRAINER_H
#define YK_ENGINE_TRAINER_H

#include "engine/engine.h"

/* How a run ended. */
typedef struct yk_train_summary {
    int64_t steps;     /* steps made */
    double train_loss; /* mean over the last steps, at most 50 */
    bool has_val_loss;
    double val_loss;     /* after the last step */
    int64_t tokens;      /* trained on */
    double train_s;      /* first step to last, evaluations and savings left out */
    double tokens_per_s; /* tokens over train_s */
    int64_t steps_skipped;
} yk_train_summary;

/* Train as `config` says. Rank 0 prints progress on stdout and writes files. Blocks.   [collective]
 *
 * world  the ranks that train together; NULL or of one: this process alone
 *
 * The signals that ask it to end must be blocked in every thread (yk_signals_block()): they are
 * looked for between steps, and end the run with its weights saved.
 *
 * YK_EINVAL, YK_EFORMAT  the configuration, the data or the weights to start from are wrong
 * YK_ENOFIT              the plan needs more memory than there is
 * YK_EDIVERGED           guard.max_skips steps in a row were skipped
 * YK_ESTOPPED            a signal ended the run; weights are saved
 */
yk_status yk_train(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                   yk_train_summary *summary_out);

#endif
