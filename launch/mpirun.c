/* launch/mpirun.c - words for mpirun (Open MPI 4.1). */
#include "launch/mpirun.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool yk_mpirun_forwards(const char *name)
{
    static const char *const families[] = {"NCCL_", "UCX_", "OMP_", "OPENBLAS_", "YK_"};
    static const char *const single[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                         "LD_LIBRARY_PATH"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0) return true;
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        if (strcmp(name, single[i]) == 0) return true;
    return false;
}

/* True when the user has set the variable; `name` ends with '='. */
static bool is_set(char *const *env, const char *name)
{
    for (; *env; env++)
        if (strncmp(*env, name, strlen(name)) == 0) return true;
    return false;
}

static void add_parameter(yk_command *command, const char *name, const char *value)
{
    yk_command_add(command, "--mca");
    yk_command_add(command, "%s", name);
    yk_command_add(command, "%s", value);
}

/* mpirun refuses root unless it is told twice. */
static void allow_root(yk_command *command)
{
    if (geteuid() != 0) return;
    yk_command_set(command, "OMPI_ALLOW_RUN_AS_ROOT", "1");
    yk_command_set(command, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

/* One interface for MPI's daemons, MPI's messages and NCCL's. A subnet names it on every host,
 * whatever it is called there; NCCL knows names alone. What the user has set counts. */
static void add_network(const yk_mpirun *m, yk_command *command)
{
    const yk_network *network = m->network;
    const char *value = network->subnet[0] ? network->subnet : network->interface;
    if (!value[0]) return;
    if (!is_set(m->env, "OMPI_MCA_btl_tcp_if_include=") &&
        !is_set(m->env, "OMPI_MCA_btl_tcp_if_exclude="))
        add_parameter(command, "btl_tcp_if_include", value);
    if (!is_set(m->env, "OMPI_MCA_oob_tcp_if_include=") &&
        !is_set(m->env, "OMPI_MCA_oob_tcp_if_exclude="))
        add_parameter(command, "oob_tcp_if_include", value);
}

/* ssh waits for minutes for a host that drops packets, and for ever for a password. */
static void add_patience(const yk_mpirun *m, yk_command *command)
{
    char value[64];
    if (is_set(m->env, "OMPI_MCA_plm_rsh_agent=") || is_set(m->env, "OMPI_MCA_orte_rsh_agent=") ||
        is_set(m->env, "OMPI_MCA_plm_rsh_args="))
        return;
    snprintf(value, sizeof value, "-o BatchMode=yes -o ConnectTimeout=%d", YK_MPIRUN_CONNECT_S);
    add_parameter(command, "plm_rsh_args", value);
}

static void forward_environment(const yk_mpirun *m, yk_command *command)
{
    for (char *const *variable = m->env; *variable; variable++) {
        char name[128];
        size_t n = strcspn(*variable, "=");
        if (n == 0 || n >= sizeof name || (*variable)[n] != '=') continue;
        memcpy(name, *variable, n);
        name[n] = '\0';
        if (!yk_mpirun_forwards(name)) continue;
        yk_command_add(command, "-x");
        yk_command_add(command, "%s", name);
    }
    if (m->network->interface[0] && !is_set(m->env, "NCCL_SOCKET_IFNAME=")) {
        yk_command_add(command, "-x");
        yk_command_add(command, "NCCL_SOCKET_IFNAME==%s", m->network->interface);
    }
}

/* Ranks cannot see it: what they print goes through a terminal that mpirun made. */
static void tell_of_terminal(const yk_mpirun *m, yk_command *command)
{
    if (!m->is_on_terminal || is_set(m->env, "YK_TERMINAL=")) return;
    yk_command_add(command, "-x");
    yk_command_add(command, "YK_TERMINAL=1");
}

/* Ranks read the configuration when all have met, and have to know before how long to wait for one
 * that is stopped. */
static void tell_timeout(const yk_mpirun *m, yk_command *command)
{
    if (m->timeout_s <= 0 || is_set(m->env, "YK_TIMEOUT=")) return;
    yk_command_add(command, "-x");
    yk_command_add(command, "YK_TIMEOUT=%.9g", m->timeout_s);
}

static void add_words(const yk_mpirun *m, yk_command *command)
{
    for (int i = 0; i < m->n_words; i++) yk_command_add(command, "%s", m->words[i]);
}

/* Hosts with as many slots as they get ranks, so that these numbers are the placement. */
static void add_hosts(const yk_mpirun *m, yk_command *command)
{
    char *list = NULL;
    size_t size;
    FILE *text = open_memstream(&list, &size);
    if (!text) {
        command->is_short = true;
        return;
    }
    for (int i = 0; i < m->hosts->n_items; i++) {
        const yk_host *host = &m->hosts->items[i];
        if (host->n_ranks == 0) continue;
        fprintf(text, "%s%s:%d", ftell(text) > 0 ? "," : "", host->name, host->n_ranks);
    }
    if (fclose(text) != 0) command->is_short = true;
    yk_command_add(command, "--host");
    yk_command_add(command, "%s", list ? list : "");
    free(list);
}

/* More ranks than slots or cores: Open MPI refuses the first and spins through the second. */
static bool is_crowded(const yk_mpirun *m, bool *on_cores_out)
{
    bool crowded = false;
    *on_cores_out = false;
    for (int i = 0; i < m->hosts->n_items; i++) {
        const yk_host *host = &m->hosts->items[i];
        if (host->n_ranks > host->slots) crowded = true;
        if (host->is_local && host->n_ranks > m->n_cores) crowded = *on_cores_out = true;
    }
    return crowded;
}

yk_status yk_mpirun_command(const yk_mpirun *m, yk_command *command)
{
    bool on_cores;
    allow_root(command);
    yk_command_add(command, "mpirun");
    yk_command_add(command, "-q");
    yk_command_add(command, "-n");
    yk_command_add(command, "%d", m->n_ranks);
    yk_command_add(command, "--map-by");
    yk_command_add(command, "slot");
    yk_command_add(command, "--bind-to");
    yk_command_add(command, "none");
    if (!yk_hosts_are_local(m->hosts)) add_hosts(m, command);
    if (is_crowded(m, &on_cores)) yk_command_add(command, "--oversubscribe");
    if (on_cores) add_parameter(command, "mpi_yield_when_idle", "1");
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", YK_MPIRUN_KILL_S);
    add_parameter(command, "odls_base_sigkill_timeout", seconds);
    add_network(m, command);
    forward_environment(m, command);
    tell_of_terminal(m, command);
    tell_timeout(m, command);
    add_words(m, command);
    return yk_command_check(command);
}

yk_status yk_mpirun_survey_command(const yk_mpirun *m, yk_command *command)
{
    bool first = true;
    allow_root(command);
    yk_command_add(command, "mpirun");
    yk_command_add(command, "-q");
    add_patience(m, command);
    add_network(m, command);
    forward_environment(m, command);
    for (int i = 0; i < m->hosts->n_items; i++) {
        const yk_host *host = &m->hosts->items[i];
        if (host->n_ranks == 0) continue;
        if (!first) yk_command_add(command, ":");
        first = false;
        yk_command_add(command, "--bind-to");
        yk_command_add(command, "none");
        yk_command_add(command, "--host");
        yk_command_add(command, "%s:1", host->name);
        yk_command_add(command, "-n");
        yk_command_add(command, "1");
        add_words(m, command);
        yk_command_add(command, "%d", i);
        yk_command_add(command, "%d", host->n_ranks);
    }
    return yk_command_check(command);
}
