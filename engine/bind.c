/* engine/bind.c - every rank of a node computes the node's bindings from all wishes, and applies
 * its own. */
#include "engine/bind.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/machine/binding.h"

/* What ranks tell each other; plain bytes. */
typedef struct wish {
    yk_binding_wish wish;
    int node;
} wish;

/* The GPU that this rank opens: ranks take turns through what they see. With one visible GPU a
 * rank (as Slurm gives them) each takes the first. */
static const yk_gpu *choose_gpu(const yk_world *world, const yk_machine *machine, int *index_out)
{
    int n = yk_machine_n_gpus(machine);
    if (n == 0) return NULL;
    *index_out = yk_world_local_rank(world) % n;
    return yk_machine_gpu(machine, *index_out);
}

static yk_status check_gpus(const yk_world *world, const yk_binding_wish *wishes, int n,
                            int64_t ranks_per_gpu)
{
    int64_t n_there = 1;
    int me = yk_world_local_rank(world);
    if (!wishes[me].has_gpu)
        return yk_fail(YK_EINVAL, "device", "rank %d on %s sees no GPU; start fewer ranks there",
                       yk_world_rank(world), yk_world_host(world, yk_world_rank(world)));
    for (int i = 0; i < n; i++) {
        if (i == me || !wishes[i].bus_id[0] || strcmp(wishes[i].bus_id, wishes[me].bus_id) != 0)
            continue;
        if (++n_there <= ranks_per_gpu) continue;
        return yk_fail(
            YK_EINVAL, "device",
            "local ranks %d and %d on %s would share GPU %s; start as many ranks as there "
            "are GPUs, or allow more with launch.ranks_per_gpu",
            i < me ? i : me, i < me ? me : i, yk_world_host(world, yk_world_rank(world)),
            wishes[me].bus_id);
    }
    return YK_OK;
}

/* The wishes of this node's ranks, in order of local rank. */
static yk_status gather_wishes(yk_world *world, const yk_binding_wish *mine,
                               yk_binding_wish *wishes_out)
{
    wish one = {*mine, yk_world_node(world)};
    wish *all = calloc((size_t)yk_world_size(world), sizeof *all);
    if (!all) return yk_fail(YK_ENOMEM, "binding", "no memory for the ranks' wishes");
    yk_status status = yk_world_gather(world, &one, sizeof one, all);
    int n = 0;
    for (int i = 0; status == YK_OK && i < yk_world_size(world); i++)
        if (all[i].node == one.node) wishes_out[n++] = all[i].wish;
    free(all);
    return status;
}

/* Has a lower local rank, whose binding all know, the same to say? */
static bool is_said_below(const yk_binding *bindings, int me)
{
    for (int i = 0; i < me; i++)
        if (strcmp(bindings[i].note, bindings[me].note) == 0) return true;
    return false;
}

static yk_status bind(yk_world *world, const yk_machine *machine, bool wants_gpu,
                      int64_t ranks_per_gpu, yk_binding_wish *wishes, yk_binding *bindings,
                      int *gpu_out, int *n_cores_out)
{
    int n = yk_world_local_size(world), me = yk_world_local_rank(world);
    yk_binding_wish mine;
    yk_binding_wish_for(machine, wants_gpu ? choose_gpu(world, machine, gpu_out) : NULL, &mine);
    mine.is_started = 1;
    YK_TRY(gather_wishes(world, &mine, wishes));
    if (wants_gpu) YK_TRY(check_gpus(world, wishes, n, ranks_per_gpu));
    YK_TRY(yk_binding_plan(machine, wishes, n, bindings));
    bool is_said = is_said_below(bindings, me);
    yk_binding_apply(machine, &bindings[me]);
    if (bindings[me].note[0] && !is_said) yk_warn("binding", "%s", bindings[me].note);
    *n_cores_out = bindings[me].n_cores;
    return YK_OK;
}

yk_status yk_bind_rank(yk_world *world, bool wants_gpu, int64_t ranks_per_gpu, int *gpu_out,
                       int *n_cores_out)
{
    yk_machine *machine;
    size_t n = (size_t)yk_world_local_size(world);
    *gpu_out = 0;
    YK_TRY(yk_machine_open(&machine));
    yk_binding_wish *wishes = calloc(n, sizeof *wishes);
    yk_binding *bindings = calloc(n, sizeof *bindings);
    yk_status status =
        wishes && bindings
            ? bind(world, machine, wants_gpu, ranks_per_gpu, wishes, bindings, gpu_out, n_cores_out)
            : yk_fail(YK_ENOMEM, "binding", "no memory for %zu ranks", n);
    free(wishes);
    free(bindings);
    yk_machine_close(machine);
    return status;
}

int yk_bind_count_cores(void)
{
    yk_machine *machine;
    if (yk_machine_open(&machine) != YK_OK) return 0;
    int n = yk_machine_count_cores(machine, yk_machine_given(machine));
    yk_machine_close(machine);
    return n;
}
