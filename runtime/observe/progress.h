/* runtime/observe/progress.h - what a person sees of a run while it goes on.
 *
 * On a terminal one line is kept up to date, ten times a second at most; elsewhere a plain line is
 * printed every `every` steps and at the last. Everything goes to stdout.
 */
#ifndef YK_RUNTIME_OBSERVE_PROGRESS_H
#define YK_RUNTIME_OBSERVE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct yk_progress {
    int64_t steps; /* of the whole run */
    int64_t every; /* plain lines; >= 1 */
    bool live;     /* stdout is a terminal */
    double last_s; /* when the live line was last drawn */
    bool open;     /* a live line is on the screen */
} yk_progress;

/* What a step shows. */
typedef struct yk_progress_row {
    int64_t step; /* from 0 */
    double loss, lr, grad_norm, tokens_per_s;
    double left_s; /* estimate of the time that remains */
    bool skipped;
} yk_progress_row;

void yk_progress_init(yk_progress *progress, int64_t steps, int64_t every);
void yk_progress_show(yk_progress *progress, const yk_progress_row *row);

/* Leave the live line, so that something else can be printed on a line of its own. */
void yk_progress_break(yk_progress *progress);

#endif
