/* runtime/observe/progress.c - one live line, or plain lines now and then. */
#include "runtime/observe/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/clock.h"

#define REDRAW_S  0.1
#define BAR_WIDTH 20

/* mpirun gives its ranks a terminal of its own making, wherever what they print goes to from there;
 * `yoke launch` says when it goes to a real one. */
static bool is_on_terminal(void)
{
    if (isatty(STDOUT_FILENO) != 1) return false;
    return !getenv("OMPI_COMM_WORLD_SIZE") || getenv("YK_TERMINAL");
}

void yk_progress_init(yk_progress *p, int64_t steps, int64_t every)
{
    *p = (yk_progress){.steps = steps, .every = every < 1 ? 1 : every};
    p->live = is_on_terminal();
    p->last_s = -1.0;
}

/* "1.2k", "34.5k", "1.24M" */
static void print_rate(double rate)
{
    if (rate < 1e3)
        printf("%.0f", rate);
    else if (rate < 1e6)
        printf("%.1fk", rate / 1e3);
    else
        printf("%.2fM", rate / 1e6);
}

static void print_left(double seconds)
{
    int64_t s = isfinite(seconds) && seconds > 0 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600) printf("%" PRId64 "h", s / 3600);
    if (s >= 60) printf("%" PRId64 "m", s / 60 % 60);
    printf("%" PRId64 "s", s % 60);
}

static void print_row(const yk_progress *p, const yk_progress_row *row)
{
    printf("step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.2e  norm %.2f  ", row->step + 1, p->steps,
           row->loss, row->lr, row->grad_norm);
    print_rate(row->tokens_per_s);
    printf(" tok/s  ");
    print_left(row->left_s);
    printf(" left%s", row->skipped ? "  (skipped: gradient not finite)" : "");
}

static void draw_live(yk_progress *p, const yk_progress_row *row, bool last)
{
    double t = yk_clock_s();
    if (!last && p->last_s >= 0 && t - p->last_s < REDRAW_S) return;
    p->last_s = t;
    int done = (int)(BAR_WIDTH * (row->step + 1) / (p->steps > 0 ? p->steps : 1));
    printf("\r\033[K[");
    for (int i = 0; i < BAR_WIDTH; i++) putchar(i < done ? '=' : ' ');
    printf("] ");
    print_row(p, row);
    p->open = true;
    fflush(stdout);
    if (last) yk_progress_break(p);
}

void yk_progress_show(yk_progress *p, const yk_progress_row *row)
{
    bool last = row->step + 1 == p->steps;
    if (p->live) {
        draw_live(p, row, last);
    } else if (row->step == 0 || (row->step + 1) % p->every == 0 || last) {
        print_row(p, row);
        putchar('\n');
        fflush(stdout);
    }
}

void yk_progress_break(yk_progress *p)
{
    if (!p->open) return;
    p->open = false;
    putchar('\n');
    fflush(stdout);
}
