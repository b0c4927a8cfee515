/* launch/slurm.h - the batch script of a run under Slurm.
 *
 * srun starts the ranks, with PMIx to tell MPI who they are; the job's status is theirs. Two
 * minutes before its time is over the job gets SIGUSR1: the ranks save and end with status 75. The
 * script does not put the job back into the queue then, since a run does not go on in a folder that
 * holds weights.
 */
#ifndef YK_LAUNCH_SLURM_H
#define YK_LAUNCH_SLURM_H

#include <stdio.h>

#include "launch/hosts.h"

typedef struct yk_slurm_job {
    const char *name;      /* of the job; what would not be a word of Slurm's becomes "_" */
    const yk_hosts *hosts; /* to run on by name; NULL: Slurm chooses */
    int n_ranks;
    int n_per_node;     /* ranks a node; 0: as Slurm likes. Ignored where hosts are named */
    int n_cores;        /* cores a rank; 0: as Slurm likes */
    bool is_on_gpus;    /* a GPU a rank */
    char *const *words; /* (n_words) the program and its arguments */
    int n_words;
} yk_slurm_job;

/* Write the script.                                                                      [local]
 *
 * YK_EINVAL  hosts are named and have different numbers of ranks
 */
yk_status yk_slurm_write(const yk_slurm_job *job, FILE *out);

/* Give the script to sbatch, which prints the job's number.                              [local]
 *
 * YK_EINVAL  there is no sbatch, or it refuses the job and has said why
 */
yk_status yk_slurm_submit(const yk_slurm_job *job);

#endif
