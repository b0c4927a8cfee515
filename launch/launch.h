/* launch/launch.h - starting a run of many ranks, and staying its parent. */
#ifndef YK_LAUNCH_LAUNCH_H
#define YK_LAUNCH_LAUNCH_H

#include <stdbool.h>

#include "runtime/base/config.h"
#include "runtime/base/status.h"

typedef struct yk_launch_options {
    const yk_config *config; /* of the run, whose batch has to divide over the ranks; or NULL */
    int n_ranks;             /* 0: one a slot; without hosts, one a GPU, or one */
    const char *hosts;       /* "a:4,b:4", or NULL */
    const char *host_file;   /* path, or NULL */
    bool is_on_gpus;         /* the ranks will compute on GPUs */
    int ranks_per_gpu;       /* that may share one; 0: as 1 */
    int n_threads;           /* threads a rank, for Slurm; 0: not said */
    const char *job_name;    /* for Slurm */
    double timeout_s;        /* after which ranks of which all were stopped are ended; 0: never */
    int restarts;            /* times to start a failed run again */
    const char *end_mark;    /* a file without which alone it can be started again; or NULL */
    bool dry_run;            /* print the command instead of running it */
    bool slurm;              /* print a batch script instead */
    bool submit;             /* and give it to sbatch */
    char *const *words; /* (n_words) what each rank runs: the program's path and its arguments */
    int n_words;
} yk_launch_options;

/* Place the ranks, print where they are, start them and wait for their end.              [local]
 *
 * YK_EINVAL    hosts are not understood or do not answer, a program is missing, or the ranks found
 *              their input wrong
 * YK_ESTOPPED  a signal ended the run after it was saved, or before anything was started
 * YK_EPEER     a rank failed
 */
yk_status yk_launch(const yk_launch_options *options);

/* Answer another host's question: print where `n_ranks` ranks of this host would be, as rows that
 * yk_launch() reads.                                                                     [local] */
yk_status yk_launch_place(int host, int n_ranks, bool is_on_gpus);

#endif
