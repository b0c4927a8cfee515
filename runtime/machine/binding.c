/* runtime/machine/binding.c - from the wishes of a node's ranks to their bindings, in three tries.
 *
 *   1  the unit that is shared out is a core
 *   2  where that leaves a rank without one: a processor
 *   3  where that leaves a rank without one: it and those who want the same run on all they want
 *
 * The sharing itself is share.c's.
 */
#include "runtime/machine/binding.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/arith.h"
#include "runtime/machine/machine_parts.h"
#include "runtime/machine/share.h"

/* ---- what is said about it ---------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void add_note(yk_binding *binding, const char *why,
                                                           ...)
{
    size_t used = strlen(binding->note);
    if (used && used + 2 < sizeof binding->note) {
        memcpy(binding->note + used, "; ", 3);
        used += 2;
    }
    va_list args;
    va_start(args, why);
    vsnprintf(binding->note + used, sizeof binding->note - used, why, args);
    va_end(args);
}

static const char *name_of(const yk_binding_wish *wish)
{
    return wish->bus_id[0] ? wish->bus_id : "its GPU";
}

/* ---- what a rank wants -------------------------------------------------------------------- */

void yk_binding_wish_for(const yk_machine *machine, const yk_gpu *gpu, yk_binding_wish *wish_out)
{
    yk_binding_wish wish = {
        .given = machine->given,
        .has_gpu = gpu != NULL,
        .is_started = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK"),
    };
    if (gpu) {
        wish.near = gpu->near;
        memcpy(wish.bus_id, gpu->bus_id, sizeof wish.bus_id);
    }
    *wish_out = wish;
}

static yk_cpus wanted(const yk_machine *machine, const yk_binding_wish *wish, yk_binding *binding)
{
    char given[YK_CPUS_TEXT], near[YK_CPUS_TEXT];
    if (!wish->has_gpu) return wish->given;
    if (yk_cpus_is_empty(&wish->near)) {
        if (machine->n_nodes > 1)
            add_note(binding,
                     "which of %d NUMA nodes %s belongs to cannot be seen here (a virtual machine "
                     "or a container hides it), so its rank may run far from it",
                     machine->n_nodes, name_of(wish));
        return wish->given;
    }
    yk_cpus both = yk_cpus_and(&wish->given, &wish->near);
    if (!yk_cpus_is_empty(&both)) return both;
    add_note(binding,
             "this rank was given processors %s, and none of them is near %s (%s are); ask for "
             "those, or let the ranks bind themselves (mpirun --bind-to none)",
             yk_cpus_write(&wish->given, given), name_of(wish), yk_cpus_write(&wish->near, near));
    return wish->given;
}

/* A launcher that binds to one core by default leaves most of a machine idle. */
static void note_narrow(const yk_machine *machine, const yk_binding_wish *wish, int n_ranks,
                        yk_binding *binding)
{
    int n_given = yk_machine_count_cores(machine, &wish->given);
    int n_fair = machine->n_cores / n_ranks;
    if (!wish->is_started || n_given >= n_fair || yk_cpus_is_equal(&wish->given, &machine->allowed))
        return;
    add_note(binding,
             "this rank was started on %d of %d cores; more are to be had with mpirun --bind-to "
             "none, srun --cpus-per-task, or yoke launch",
             n_given, machine->n_cores);
}

/* ---- what it gets ------------------------------------------------------------------------- */

/* The node that holds all of the processors and has memory, or -1. */
static int memory_node(const yk_machine *machine, const yk_cpus *cpus)
{
    for (int i = 0; i < machine->n_nodes; i++) {
        const yk_numa_node *node = &machine->nodes[i];
        if (yk_cpus_holds(&node->cpus, cpus)) return node->has_memory ? node->number : -1;
    }
    return -1;
}

static void share_what_is_wanted(const yk_cpus *wants, const yk_cpus *shares, int n,
                                 yk_binding *bindings)
{
    for (int i = 0; i < n; i++) {
        if (!yk_cpus_is_empty(&shares[i])) {
            bindings[i].cpus = shares[i];
            continue;
        }
        for (int j = 0; j < n; j++) bindings[j].is_shared |= yk_cpus_is_equal(&wants[j], &wants[i]);
    }
    for (int i = 0; i < n; i++) {
        if (!bindings[i].is_shared) continue;
        int n_ranks = 0;
        for (int j = 0; j < n; j++) n_ranks += yk_cpus_is_equal(&wants[j], &wants[i]);
        bindings[i].cpus = wants[i];
        add_note(&bindings[i], "%d ranks share %d processors, and each will wait for the others",
                 n_ranks, yk_cpus_count(&wants[i]));
    }
}

static bool all_have_some(const yk_cpus *shares, int n)
{
    for (int i = 0; i < n; i++)
        if (yk_cpus_is_empty(&shares[i])) return false;
    return true;
}

/* Every allowed processor by itself, core by core. */
static int split_cores(const yk_machine *machine, yk_cpus *units)
{
    int n = 0;
    for (int i = 0; i < machine->n_cores; i++)
        for (int cpu = 0; cpu < YK_CPUS_MAX; cpu++)
            if (yk_cpus_has(&machine->cores[i].cpus, cpu)) {
                units[n] = (yk_cpus){{0}};
                yk_cpus_add(&units[n++], cpu);
            }
    return n;
}

static yk_status share_out(const yk_machine *machine, const yk_cpus *wants, int n, yk_cpus *shares)
{
    int n_cpus = yk_cpus_count(&machine->allowed);
    yk_cpus *units = calloc((size_t)yk_max(n_cpus, machine->n_cores) + 1, sizeof *units);
    bool done = units != NULL;
    for (int i = 0; done && i < machine->n_cores; i++) units[i] = machine->cores[i].cpus;
    done = done && yk_share_units(units, machine->n_cores, wants, n, shares);
    if (done && !all_have_some(shares, n))
        done = yk_share_units(units, split_cores(machine, units), wants, n, shares);
    free(units);
    if (!done) return yk_fail(YK_ENOMEM, "binding", "no memory to share out %d processors", n_cpus);
    return YK_OK;
}

yk_status yk_binding_plan(const yk_machine *machine, const yk_binding_wish *wishes, int n,
                          yk_binding *bindings_out)
{
    yk_cpus *wants = calloc((size_t)n * 2, sizeof *wants), *shares = wants + n;
    if (!wants) return yk_fail(YK_ENOMEM, "binding", "no memory for the wishes of %d ranks", n);
    for (int i = 0; i < n; i++) {
        bindings_out[i] = (yk_binding){.node = -1};
        wants[i] = wanted(machine, &wishes[i], &bindings_out[i]);
        note_narrow(machine, &wishes[i], n, &bindings_out[i]);
    }
    yk_status status = share_out(machine, wants, n, shares);
    if (status == YK_OK) share_what_is_wanted(wants, shares, n, bindings_out);
    for (int i = 0; status == YK_OK && i < n; i++) {
        yk_binding *b = &bindings_out[i];
        int n_cores = yk_machine_count_cores(machine, &b->cpus);
        b->n_cores = b->is_shared || n_cores < 1 ? 1 : n_cores;
        b->node = memory_node(machine, &b->cpus);
    }
    free(wants);
    return status;
}

/* ---- doing it ----------------------------------------------------------------------------- */

static void bind_processors(const yk_machine *machine, yk_binding *binding)
{
    char cpus[YK_CPUS_TEXT];
    if (yk_cpus_is_equal(&binding->cpus, &machine->given)) return;
    hwloc_bitmap_t set = yk_cpus_to_bitmap(&binding->cpus);
    if (!set || hwloc_set_cpubind(machine->topology, set, HWLOC_CPUBIND_PROCESS) != 0)
        add_note(binding, "the system refuses to keep this rank on processors %s (%s)",
                 yk_cpus_write(&binding->cpus, cpus), strerror(errno));
    hwloc_bitmap_free(set);
}

/* Preferred, not required: a rank that needs more than its node has takes it from elsewhere. */
static void bind_memory(const yk_machine *machine, yk_binding *binding)
{
    if (binding->node < 0 || machine->n_nodes < 2) return;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int error = !set || hwloc_bitmap_set(set, (unsigned)binding->node) != 0 ||
                hwloc_set_membind(machine->topology, set, HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0;
    if (error)
        add_note(binding, "the system refuses to prefer the memory of NUMA node %d (%s)",
                 binding->node, strerror(errno));
    hwloc_bitmap_free(set);
}

/* OpenMP's library reads these before main() and then moves threads where it likes. */
static void note_openmp(yk_binding *binding)
{
    const char *bind = getenv("OMP_PROC_BIND"), *places = getenv("OMP_PLACES");
    const char *gnu = getenv("GOMP_CPU_AFFINITY");
    const char *set = bind && strcasecmp(bind, "false") != 0 ? "OMP_PROC_BIND"
                      : gnu                                  ? "GOMP_CPU_AFFINITY"
                      : places && !bind                      ? "OMP_PLACES"
                                                             : NULL;
    if (set)
        add_note(binding,
                 "%s is set, and OpenMP may put the threads of several ranks on the same cores; "
                 "unset it: ranks bind themselves",
                 set);
}

void yk_binding_apply(const yk_machine *machine, yk_binding *binding)
{
    if (!machine->is_here) return;
    bind_processors(machine, binding);
    bind_memory(machine, binding);
    note_openmp(binding);
}
