/* launch/launch.c - hosts, placement, command, run: the order of a launch. */
#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launch/hosts.h"
#include "launch/mpirun.h"
#include "launch/parent.h"
#include "launch/placement.h"
#include "launch/slurm.h"

static yk_status read_hosts(const yk_launch_options *o, yk_hosts *hosts_out)
{
    if (o->hosts && o->host_file)
        return yk_fail(YK_EINVAL, "launch", "--hosts and --hostfile are both given; give one");
    if (o->hosts) return yk_hosts_read_list(o->hosts, hosts_out);
    if (o->host_file) return yk_hosts_read_file(o->host_file, hosts_out);
    return yk_hosts_read_environment(hosts_out);
}

/* Ranks of a host that does not say how many it is for. */
static int usual_slots(const yk_launch_options *o, const yk_machine *machine)
{
    int n_gpus = o->is_on_gpus ? yk_machine_n_gpus(machine) : 0;
    return n_gpus > 0 ? n_gpus : 1;
}

/* ---- other hosts -------------------------------------------------------------------------- */

/* Seconds for all hosts to answer: ssh gives up on a silent one long before (launch/mpirun.h). */
#define SURVEY_S 60

/* Nobody answered in time: mpirun does not say who is missing, so all who were asked are named. */
static yk_status fail_late(const yk_hosts *hosts, const char *program)
{
    char names[512] = "";
    size_t used = 0;
    for (int i = 0; i < hosts->n_items; i++) {
        const yk_host *host = &hosts->items[i];
        if (host->is_local || host->n_ranks == 0 || used >= sizeof names) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 host->name);
    }
    return yk_fail(YK_EINVAL, "launch",
                   "no answer within %d s from (one of) %s, and nothing was started; see whether "
                   "ssh HOST %s --version works without a question, or leave the host out",
                   SURVEY_S, names, program);
}

/* Ask every host where its ranks will be. That each one answers also shows that it can be reached
 * and has this program, before anything is started. */
static yk_status survey(const yk_launch_options *o, const yk_mpirun *run, yk_placement *placement)
{
    char launch[] = "launch", place[] = "place", gpu[] = "gpu", cpu[] = "cpu";
    char *const words[] = {o->words[0], launch, place, o->is_on_gpus ? gpu : cpu};
    yk_mpirun question = *run;
    yk_command command = {.is_short = false};
    yk_ended ended = {.exit_status = 0};
    char *answer = NULL;
    question.words = words;
    question.n_words = sizeof words / sizeof words[0];
    yk_status status = yk_mpirun_survey_command(&question, &command);
    if (status == YK_OK) status = yk_parent_ask(&command, SURVEY_S, &answer, &ended);
    if (status == YK_OK && ended.was_asked)
        status = yk_fail(YK_ESTOPPED, "launch",
                         "asked to stop before the hosts had answered; nothing was started");
    if (status == YK_OK && ended.is_late) status = fail_late(run->hosts, o->words[0]);
    if (status == YK_OK && ended.exit_status != 0)
        status = yk_fail(YK_EINVAL, "launch",
                         "mpirun could not start %s on every host (exit status %d); see whether "
                         "each can be reached without a password, and has it at the same path: "
                         "mpirun --host NAME %s --version",
                         o->words[0], ended.exit_status, o->words[0]);
    if (status == YK_OK) status = yk_placement_read_rows(placement, answer);
    free(answer);
    yk_command_fini(&command);
    return status;
}

/* ---- the ways to go on -------------------------------------------------------------------- */

static yk_status print_slurm(const yk_launch_options *o, const yk_machine *machine,
                             const yk_hosts *hosts, int n_ranks)
{
    int usual = usual_slots(o, machine);
    const yk_slurm_job job = {
        .name = o->job_name,
        .hosts = o->hosts || o->host_file ? hosts : NULL,
        .n_ranks = n_ranks,
        .n_per_node = usual > 1 && n_ranks > usual ? usual : 0,
        .n_cores = o->n_threads,
        .is_on_gpus = o->is_on_gpus,
        .words = o->words,
        .n_words = o->n_words,
    };
    return o->submit && !o->dry_run ? yk_slurm_submit(&job) : yk_slurm_write(&job, stdout);
}

/* What the ranks would find when all of them have started. */
static yk_status check_batch(const yk_config *config, int n_ranks)
{
    int64_t micro_batch = config->train.micro_batch;
    return yk_config_check_ranks(config, n_ranks, micro_batch == YK_AUTO ? 1 : micro_batch);
}

/* Ranks of this machine. */
static int count_here(const yk_hosts *hosts)
{
    int n = 0;
    for (int i = 0; i < hosts->n_items; i++)
        n += hosts->items[i].is_local ? hosts->items[i].n_ranks : 0;
    return n;
}

/* Of a run on processors: more would keep a machine from all else for minutes, before a step is made. */
#define MAX_RANKS_A_CORE 32

static yk_status check_cores(const yk_hosts *hosts, int n_cores)
{
    int n = count_here(hosts);
    if (n <= n_cores * MAX_RANKS_A_CORE) return YK_OK;
    return yk_fail(
        YK_EINVAL, "launch",
        "%d ranks are more than %d for each of this machine's cores (%d); give fewer, as "
        "with -n %d, or more hosts with --hosts",
        n, MAX_RANKS_A_CORE, n_cores, n_cores);
}

static yk_status run_mpirun(const yk_launch_options *o, const yk_machine *machine,
                            const yk_hosts *hosts, int n_ranks)
{
    yk_placement placement = {.places = NULL};
    yk_command command = {.is_short = false};
    yk_network network;
    int n_cores = yk_machine_count_cores(machine, yk_machine_given(machine));
    if (!o->is_on_gpus) YK_TRY(check_cores(hosts, n_cores));
    YK_TRY(yk_network_find(hosts, !o->dry_run, &network));
    if (network.note[0]) yk_warn("network", "%s", network.note);
    const yk_mpirun run = {
        .hosts = hosts,
        .network = &network,
        .n_ranks = n_ranks,
        .n_cores = n_cores,
        .timeout_s = o->timeout_s,
        .is_on_terminal = isatty(STDOUT_FILENO) == 1,
        .env = environ,
        .words = o->words,
        .n_words = o->n_words,
    };
    int per_gpu = o->ranks_per_gpu > 0 ? o->ranks_per_gpu : 1;
    YK_TRY(yk_placement_make(machine, hosts, n_ranks, o->is_on_gpus ? per_gpu : 0, &placement));
    yk_status status = yk_mpirun_command(&run, &command);
    if (status == YK_OK && !o->dry_run && !yk_hosts_are_local(hosts))
        status = survey(o, &run, &placement);
    if (status == YK_OK) {
        yk_placement_print(&placement, stdout);
        fflush(stdout);
        /* Ranks that run say so themselves. */
        if (o->dry_run && placement.note[0]) yk_warn("binding", "%s", placement.note);
        if (o->dry_run)
            yk_command_print(&command, stdout);
        else
            status = yk_parent_run_mpirun(&command, o->timeout_s, count_here(hosts), o->restarts,
                                          o->end_mark);
    }
    yk_command_fini(&command);
    yk_placement_fini(&placement);
    return status;
}

yk_status yk_launch(const yk_launch_options *o)
{
    yk_hosts hosts = {NULL, 0};
    yk_machine *machine;
    int n_ranks = 0;
    if (o->is_on_gpus) yk_machine_order_gpus();
    YK_TRY(yk_machine_open(&machine));
    if (o->is_on_gpus && yk_machine_gpu_fault(machine)[0])
        yk_warn("GPUs", "the driver does not answer: %s", yk_machine_gpu_fault(machine));
    yk_status status = read_hosts(o, &hosts);
    if (status == YK_OK)
        status = yk_hosts_place(&hosts, o->n_ranks, usual_slots(o, machine), &n_ranks);
    if (status == YK_OK && o->config) status = check_batch(o->config, n_ranks);
    if (status == YK_OK)
        status = o->slurm ? print_slurm(o, machine, &hosts, n_ranks)
                          : run_mpirun(o, machine, &hosts, n_ranks);
    yk_hosts_fini(&hosts);
    yk_machine_close(machine);
    return status;
}

yk_status yk_launch_place(int host, int n_ranks, bool is_on_gpus)
{
    yk_machine *machine;
    YK_TRY(yk_machine_open(&machine));
    yk_status status = yk_placement_print_rows(machine, host, n_ranks, is_on_gpus, stdout);
    yk_machine_close(machine);
    return status;
}
