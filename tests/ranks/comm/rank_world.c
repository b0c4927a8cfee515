/* tests/ranks/comm/rank_world.c - who is where, agreement, and what is said. Started by test_world.sh
 * with the name of a case. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/ranks/rig.h"

typedef struct world_case {
    const char *name;
    yk_status (*run)(rank_rig *r); /* what the process ends with */
} world_case;

/* ---- who is where ------------------------------------------------------------------------- */

/* YK_NODE_SIZE makes nodes of consecutive ranks. */
static yk_status places(rank_rig *r)
{
    int k = atoi(getenv("YK_NODE_SIZE")), n_nodes = (r->size + k - 1) / k;
    yk_world *w = r->world;
    EXPECT(r, yk_world_n_nodes(w) == n_nodes);
    EXPECT(r, yk_world_node(w) == r->rank / k);
    EXPECT(r, yk_world_local_rank(w) == r->rank % k);
    int rest = r->size - r->rank / k * k;
    EXPECT(r, yk_world_local_size(w) == (rest < k ? rest : k));
    EXPECT(r, yk_world_is_regular(w) == (r->size % k == 0 || n_nodes == 1));
    char host[64] = {0};
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < r->size; i++) EXPECT(r, strcmp(yk_world_host(w, i), host) == 0);
    for (int i = 0; i < r->size; i++) EXPECT(r, yk_world_rank_at(w, i / k, i % k) == i);
    return YK_OK;
}

/* Groups across nodes want as many ranks on each; the others do not. */
static yk_status irregular(rank_rig *r)
{
    yk_comm *comm = NULL;
    yk_comm_options o = {.world = r->world, .device = r->device, .axis = YK_AXIS_WORLD};
    EXPECT(r, !yk_world_is_regular(r->world));
    EXPECT(r, yk_comm_create(&o, &comm) == YK_EINVAL);
    o.axis = YK_AXIS_ACROSS;
    EXPECT(r, yk_comm_create(&o, &comm) == YK_EINVAL);
    o.axis = YK_AXIS_NODE;
    EXPECT(r, yk_comm_create(&o, &comm) == YK_OK);
    EXPECT(r, yk_comm_size(comm) == yk_world_local_size(r->world));
    EXPECT(r, yk_comm_rank(comm, yk_comm_index(comm)) == r->rank);
    yk_comm_destroy(comm);
    return YK_OK;
}

/* A group's index counts the nodes of a local rank side by side. */
static yk_status indices(rank_rig *r)
{
    int k = yk_world_n_nodes(r->world), n = yk_world_local_size(r->world);
    for (int axis = YK_AXIS_WORLD; axis <= YK_AXIS_ACROSS; axis++) {
        rank_group g = rank_group_open(r, (yk_axis)axis, YK_REDUCE_EXACT, YK_F32, 0, 10);
        int size = axis == YK_AXIS_WORLD ? r->size : axis == YK_AXIS_NODE ? n : k;
        int local = yk_world_local_rank(r->world), node = yk_world_node(r->world);
        int index = axis == YK_AXIS_WORLD ? local * k + node : axis == YK_AXIS_NODE ? local : node;
        EXPECT(r, yk_comm_size(g.comm) == size && yk_comm_index(g.comm) == index);
        for (int i = 0; i < size; i++) {
            int rank = axis == YK_AXIS_WORLD  ? i % k * n + i / k
                       : axis == YK_AXIS_NODE ? node * n + i
                                              : i * n + local;
            EXPECT(r, yk_comm_rank(g.comm, i) == rank);
        }
        rank_group_close(&g);
    }
    return YK_OK;
}

/* ---- agreement ---------------------------------------------------------------------------- */

static yk_status small_calls(rank_rig *r)
{
    yk_world *w = r->world;
    int64_t got;
    EXPECT(r, yk_world_min(w, INT64_C(-7000000000) + r->rank, &got) == YK_OK);
    EXPECT(r, got == INT64_C(-7000000000));
    EXPECT(r, yk_world_max(w, INT64_C(7000000000) + r->rank, &got) == YK_OK);
    EXPECT(r, got == INT64_C(7000000000) + r->size - 1);
    EXPECT(r, yk_world_max_begin(w, r->rank % 2 ? r->rank : -1) == YK_OK);
    EXPECT(r, yk_world_min(w, r->rank, &got) == YK_OK && got == 0); /* another one between */
    EXPECT(r, yk_world_max_end(w, &got) == YK_OK);
    EXPECT(r, got == (r->size == 1 ? -1 : (r->size - 1) - r->size % 2));
    for (int root = 0; root < r->size; root++) {
        int data[3] = {r->rank, r->rank * 2, 9};
        EXPECT(r, yk_world_broadcast(w, data, sizeof data, root) == YK_OK);
        EXPECT(r, data[0] == root && data[1] == root * 2 && data[2] == 9);
        EXPECT(r, yk_world_broadcast(w, NULL, 0, root) == YK_OK);
    }
    int mine[2] = {r->rank * 3, 5}, all[64][2];
    EXPECT(r, yk_world_gather(w, mine, sizeof mine, all) == YK_OK);
    for (int i = 0; i < r->size; i++) EXPECT(r, all[i][0] == i * 3 && all[i][1] == 5);
    EXPECT(r, yk_world_barrier(w) == YK_OK);
    EXPECT(r, yk_world_agree(w, YK_OK) == YK_OK);
    return YK_OK;
}

/* ---- what is said ------------------------------------------------------------------------- */

/* All ranks have the same complaint. */
static yk_status all_fail(rank_rig *r)
{
    yk_world_hold(r->world);
    yk_status mine = yk_fail(YK_EFORMAT, "config.yaml", "line 3 is wrong");
    return yk_world_agree(r->world, mine);
}

/* Ranks 1 and 2 fail, for reasons of their own; rank 0 has a warning that does not matter then. */
static yk_status some_fail(rank_rig *r)
{
    yk_world_hold(r->world);
    yk_status mine = YK_OK;
    if (r->rank == 0) yk_warn("cores", "there are few");
    if (r->rank == 1) mine = yk_fail(YK_EIO, "data.bin", "no such file");
    if (r->rank == 2) mine = yk_fail(YK_EINVAL, "gpu", "there is none");
    return yk_world_agree(r->world, mine);
}

/* Nothing was held: the rank that failed has said so. */
static yk_status one_fails_unheld(rank_rig *r)
{
    yk_status mine = r->rank == 1 ? yk_fail(YK_ENOMEM, "memory", "there is too little") : YK_OK;
    return yk_world_agree(r->world, mine);
}

/* One warning that all have, one of rank 1, one that ranks 1 and 2 have. */
static yk_status warnings(rank_rig *r)
{
    yk_world_hold(r->world);
    yk_world_hold(r->world); /* held already */
    yk_warn("all", "the same everywhere");
    if (r->rank == 1) yk_warn("first", "on rank 1 alone");
    if (r->rank > 0) yk_warn("both", "not on rank 0");
    yk_status status = yk_world_agree(r->world, YK_OK);
    if (r->rank == 0) yk_warn("after", "not held any more");
    EXPECT(r, yk_world_agree(r->world, YK_OK) == YK_OK);
    return status;
}

/* More than is compared: said by every rank, whole. */
static yk_status many_words(rank_rig *r)
{
    yk_world_hold(r->world);
    for (int i = 0; i < 1000; i++) yk_warn("line", "%d of a thousand", i);
    return yk_world_agree(r->world, YK_OK);
}

/* Who leaves or dies while holding says what it held. */
static yk_status leave_holding(rank_rig *r)
{
    yk_world_hold(r->world);
    if (r->rank == 1) yk_warn("leaving", "with words unsaid");
    return YK_OK;
}

static yk_status crash_holding(rank_rig *r)
{
    yk_world_hold(r->world);
    YK_CHECK(r->rank != 1);
    return yk_world_agree(r->world, YK_OK);
}

static yk_status abort_holding(rank_rig *r)
{
    yk_world_hold(r->world);
    if (r->rank == 1) {
        yk_warn("aborting", "with words unsaid");
        yk_world_abort(r->world, 5);
    }
    return yk_world_agree(r->world, YK_OK);
}

static const world_case cases[] = {
    {"places", places},
    {"irregular", irregular},
    {"indices", indices},
    {"small_calls", small_calls},
    {"all_fail", all_fail},
    {"some_fail", some_fail},
    {"one_fails_unheld", one_fails_unheld},
    {"warnings", warnings},
    {"many_words", many_words},
    {"leave_holding", leave_holding},
    {"crash_holding", crash_holding},
    {"abort_holding", abort_holding},
};

static yk_status run_case(rank_rig *r, const char *name)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, name) == 0) return cases[i].run(r);
    rank_fail(r->world, __FILE__, __LINE__, name);
}

/* rank_world join: join, say how many there are, leave. rank_world CASE...: the cases, in one world; ends
 * as the last one does. */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "join") == 0) {
        yk_world *world;
        yk_status status = yk_world_join(&world);
        if (status != YK_OK) return yk_status_exit_code(status);
        if (yk_world_rank(world) == 0) printf("joined %d\n", yk_world_size(world));
        if (argc > 2) { /* a rank that is stopped as it leaves */
            yk_world_set_timeout(world, 1);
            if (yk_world_rank(world) == atoi(argv[2])) raise(SIGSTOP);
        }
        yk_world_leave(world);
        return 0;
    }
    rank_rig r;
    rank_open(&r);
    yk_status status = YK_OK;
    for (int i = 1; i < argc; i++) status = run_case(&r, argv[i]);
    rank_close(&r);
    return yk_status_exit_code(status);
}
