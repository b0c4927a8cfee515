/* tests/ranks/launch/rank_launch.c - a program that is launched, and stands in for `yoke` when it
 * launches itself.
 *
 *   rank_launch rank DIR [75]        a rank: binds itself, and writes what it sees into DIR/<rank>. With
 *                                    75 it then waits for SIGUSR1 and ends with that status
 *   rank_launch start N HOSTS WORDS  launch N ranks (0: all slots) on HOSTS ("" : here) with these words
 *   rank_launch launch place ...     the answer that a launch asks of other hosts
 */
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/world.h"
#include "launch/launch.h"
#include "runtime/machine/binding.h"

/* Wishes of this node's ranks, by local rank. */
static yk_status gather_wishes(yk_world *world, const yk_machine *machine, yk_binding_wish *wishes)
{
    typedef struct card {
        int node, local_rank;
        yk_binding_wish wish;
    } card;
    card mine = {yk_world_node(world), yk_world_local_rank(world), {.has_gpu = 0}};
    card *all = calloc((size_t)yk_world_size(world), sizeof *all);
    YK_CHECK(all);
    yk_binding_wish_for(machine, NULL, &mine.wish);
    YK_TRY(yk_world_gather(world, &mine, sizeof mine, all));
    for (int i = 0; i < yk_world_size(world); i++)
        if (all[i].node == mine.node) wishes[all[i].local_rank] = all[i].wish;
    free(all);
    return YK_OK;
}

static yk_status bind_rank(yk_world *world, yk_binding *binding)
{
    yk_machine *machine;
    int n = yk_world_local_size(world);
    yk_binding_wish *wishes = calloc((size_t)n, sizeof *wishes);
    yk_binding *bindings = calloc((size_t)n, sizeof *bindings);
    YK_CHECK(wishes && bindings);
    YK_TRY(yk_machine_open(&machine));
    YK_TRY(gather_wishes(world, machine, wishes));
    YK_TRY(yk_binding_plan(machine, wishes, n, bindings));
    *binding = bindings[yk_world_local_rank(world)];
    yk_binding_apply(machine, binding);
    yk_machine_close(machine);
    free(bindings);
    free(wishes);
    return YK_OK;
}

/* The processors that the system lets this process run on. */
static yk_cpus bound_to(void)
{
    cpu_set_t set;
    yk_cpus cpus = {{0}};
    YK_CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) yk_cpus_add(&cpus, cpu);
    return cpus;
}

static void write_report(yk_world *world, const yk_binding *binding, const char *dir)
{
    char path[PATH_MAX], is[YK_CPUS_TEXT];
    int rank = yk_world_rank(world);
    yk_cpus cpus = bound_to();
    snprintf(path, sizeof path, "%s/%d", dir, rank);
    FILE *out = fopen(path, "w");
    YK_CHECK(out);
    fprintf(out, "size %d\nhost %s\nlocal %d of %d\nbound %s\nas planned %d\nnote %s\nnccl %s\n",
            yk_world_size(world), yk_world_host(world, rank), yk_world_local_rank(world),
            yk_world_local_size(world), yk_cpus_write(&cpus, is),
            yk_cpus_is_equal(&cpus, &binding->cpus), binding->note,
            getenv("NCCL_SOCKET_IFNAME") ? getenv("NCCL_SOCKET_IFNAME") : "");
    YK_CHECK(fclose(out) == 0);
}

static yk_status be_a_rank(const char *dir, bool waits)
{
    yk_world *world;
    yk_binding binding;
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    YK_TRY(yk_world_join(&world));
    YK_TRY(bind_rank(world, &binding));
    write_report(world, &binding, dir);
    YK_TRY(yk_world_barrier(world));
    if (waits) sigwait(&set, &signal);
    yk_world_leave(world);
    return waits ? YK_ESTOPPED : YK_OK;
}

static yk_status start(int argc, char **argv)
{
    static char program[PATH_MAX];
    YK_CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    const char *hosts = argv[3];
    argv[3] = program; /* what is launched: this, and the words after HOSTS */
    const yk_launch_options options = {
        .n_ranks = atoi(argv[2]),
        .hosts = hosts[0] ? hosts : NULL,
        .job_name = "rank_launch",
        .words = argv + 3,
        .n_words = argc - 3,
    };
    return yk_launch(&options);
}

int main(int argc, char **argv)
{
    yk_status status = YK_EINVAL;
    if (argc >= 3 && strcmp(argv[1], "rank") == 0)
        status = be_a_rank(argv[2], argc > 3);
    else if (argc >= 6 && strcmp(argv[1], "launch") == 0)
        status = yk_launch_place(atoi(argv[4]), atoi(argv[5]), strcmp(argv[3], "gpu") == 0);
    else if (argc >= 5 && strcmp(argv[1], "start") == 0)
        status = start(argc, argv);
    return yk_status_exit_code(status);
}
