/* launch/mpirun.h - the mpirun command line of a run.
 *
 * Open MPI starts the processes and tells them who they are. It is told to bind nothing, since
 * ranks bind themselves (runtime/machine/binding.h), to fill hosts in order, and to take one
 * network.
 */
#ifndef YK_LAUNCH_MPIRUN_H
#define YK_LAUNCH_MPIRUN_H

#include "launch/command.h"
#include "launch/hosts.h"
#include "launch/network.h"

/* When one rank ends badly, mpirun sends the others SIGCONT at once, SIGTERM after this many
 * seconds and SIGKILL after as many again. Ranks begin to look for the missing one at SIGCONT
 * (comm/watchdog.c), so they have twice this time to say who it is; and it passes even when all are
 * gone, so it is short. */
#define YK_MPIRUN_KILL_S 1

/* Seconds in which a host's ssh has to answer, or ssh says that it did not. */
#define YK_MPIRUN_CONNECT_S 10

typedef struct yk_mpirun {
    const yk_hosts *hosts;     /* after yk_hosts_place() */
    const yk_network *network; /* as found for them */
    int n_ranks;
    int n_cores;         /* of this machine: with more ranks, waiting ranks give way */
    double timeout_s;    /* comm.timeout, for ranks that have not read it yet; 0: not known */
    bool is_on_terminal; /* what rank 0 prints is seen on one */
    char *const *env;    /* environment to forward from, as `environ` */
    char *const *words;  /* (n_words) the program and its arguments */
    int n_words;
} yk_mpirun;

/* Add mpirun's words to an empty command.                                                [local] */
yk_status yk_mpirun_command(const yk_mpirun *mpirun, yk_command *command);

/* The same for a question to every host that has ranks: one process on each, whose last two words are
 * the host's index and the number of its ranks. ssh is told to ask for no password and to wait
 * YK_MPIRUN_CONNECT_S for a host, unless the user has said how hosts are reached.        [local] */
yk_status yk_mpirun_survey_command(const yk_mpirun *mpirun, yk_command *command);

/* True when mpirun carries this variable to other hosts: NCCL_*, UCX_*, OMP_*, OPENBLAS_*, YK_*,
 * CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and LD_LIBRARY_PATH. */
bool yk_mpirun_forwards(const char *name);

#endif
