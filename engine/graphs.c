/* engine/graphs.c - see graphs.h.
 *
 * A key is the plain list of what a graph depends on, compared word by word: a wrong graph would
 * compute something else without a sign. Replaying counts the operations as well.
 */
#include "engine/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/device/graph.h"
#include "runtime/device/recorder.h"

/* Graphs of one unit and direction: two batch slots, overwriting or adding, and a few places of
 * gathered parameters. */
#define MAX_GRAPHS 12

/* More words than any unit's key has. */
#define MAX_WORDS 48

typedef struct key {
    int n_words;
    uintptr_t words[MAX_WORDS];
} key;

typedef struct unit_graph {
    key key;
    bool is_small;   /* so few operations that a graph brings nothing */
    yk_graph *graph; /* NULL: was run directly, once */
} unit_graph;

/* Of one unit and direction, or of the finish. */
typedef struct unit_graphs {
    int first, end; /* parameters among which are all that the unit uses */
    int n_items;
    unit_graph items[MAX_GRAPHS];
} unit_graphs;

struct yk_graphs {
    yk_graphs_options o;
    bool on;
    int n_places;
    unit_graphs *places; /* (n_places): forward and backward of each unit, and the finish */
};

/* One unit's part of a pass, or the finish, as it is called. */
typedef struct call {
    int place, unit;
    const yk_param_view *p;
    const yk_grad_view *g; /* NULL: forward */
    yk_graphs_fn finish;   /* NULL: a unit's part */
    void *context;
} call;

/* So that the others need not be looked at, of which a deep model has hundreds. */
static void find_params(yk_graphs *x)
{
    const yk_param *params = yk_model_params(x->o.model);
    int n_units = yk_model_n_units(x->o.model);
    for (int i = yk_model_n_params(x->o.model) - 1; i >= 0; i--) {
        const int units[] = {params[i].unit, params[i].shared_unit};
        for (int k = 0; k < 4; k++) {
            if (units[k / 2] < 0 || units[k / 2] >= n_units) continue;
            unit_graphs *u = &x->places[2 * units[k / 2] + k % 2];
            u->first = i;
            if (u->end == 0) u->end = i + 1;
        }
    }
}

yk_status yk_graphs_create(const yk_graphs_options *options, yk_graphs **graphs_out)
{
    int n_units = yk_model_n_units(options->model);
    yk_graphs *x = calloc(1, sizeof *x);
    if (x) x->places = calloc((size_t)n_units * 2 + 1, sizeof *x->places);
    if (!x || !x->places) {
        yk_graphs_destroy(x);
        return yk_fail(YK_ENOMEM, "graphs", "no memory for the tables of %d units", n_units);
    }
    x->o = *options;
    x->n_places = 2 * n_units + 1;
    find_params(x);
    x->on = options->choice != YK_GRAPHS_OFF &&
            yk_device_has_graphs(yk_stream_get_device(options->stream));
    *graphs_out = x;
    return YK_OK;
}

void yk_graphs_destroy(yk_graphs *x)
{
    if (!x) return;
    for (int i = 0; i < x->n_places; i++)
        for (int j = 0; j < x->places[i].n_items; j++)
            yk_graph_destroy(x->places[i].items[j].graph);
    free(x->places);
    free(x);
}

int yk_graphs_count(const yk_graphs *x)
{
    int n = 0;
    for (int i = 0; i < x->n_places; i++)
        for (int j = 0; j < x->places[i].n_items; j++) n += x->places[i].items[j].graph != NULL;
    return n;
}

/* ---- keys --------------------------------------------------------------------------------- */

static void add_word(key *k, uintptr_t word)
{
    if (k->n_words < MAX_WORDS) k->words[k->n_words] = word;
    k->n_words++;
}

/* What the operations of a call point at. The other fields of a batch lie behind its tokens. */
static key key_of(const yk_graphs *x, const yk_batch *batch, const call *c)
{
    key k = {.n_words = 0};
    if (c->finish) return k;
    const yk_param *params = yk_model_params(x->o.model);
    add_word(&k, (uintptr_t)batch->tokens);
    add_word(&k, (uintptr_t)yk_arena_used(x->o.activation));
    for (int i = x->places[c->place].first; i < x->places[c->place].end; i++) {
        if (params[i].unit != c->unit && params[i].shared_unit != c->unit) continue;
        if (c->p) add_word(&k, (uintptr_t)c->p[i].data);
        if (!c->g) continue;
        add_word(&k, (uintptr_t)c->g[i].data);
        add_word(&k, c->g[i].accumulate);
    }
    return k;
}

static bool is_equal(const key *a, const key *b)
{
    return a->n_words == b->n_words &&
           memcmp(a->words, b->words, (size_t)a->n_words * sizeof *a->words) == 0;
}

/* ---- running ------------------------------------------------------------------------------ */

static yk_status run_directly(const yk_graphs *x, const call *c)
{
    if (c->finish) return c->finish(c->context);
    return c->g ? yk_pass_backward(x->o.pass, c->unit, c->p, c->g)
                : yk_pass_forward(x->o.pass, c->unit, c->p);
}

/* The first time: algorithms are chosen and code is loaded, which a capture does not bear. */
static yk_status run_first(yk_graphs *x, const call *c, const key *k)
{
    unit_graphs *u = &x->places[c->place];
    int64_t before = yk_stream_n_ops(x->o.stream);
    YK_TRY(run_directly(x, c));
    if (u->n_items == MAX_GRAPHS) return YK_OK;
    u->items[u->n_items++] =
        (unit_graph){.key = *k, .is_small = yk_stream_n_ops(x->o.stream) - before < 2};
    return YK_OK;
}

/* The second time. */
static yk_status capture(const yk_graphs *x, const call *c, yk_graph **graph_out)
{
    yk_graph *graph;
    YK_TRY(yk_stream_capture_begin(x->o.stream));
    yk_status status = run_directly(x, c);
    yk_status ended = yk_stream_capture_end(x->o.stream, &graph);
    if (status == YK_OK) status = ended;
    if (status != YK_OK) {
        if (ended == YK_OK) yk_graph_destroy(graph);
        return status;
    }
    *graph_out = graph;
    return yk_graph_launch(graph, x->o.stream);
}

static yk_status replay(const yk_graphs *x, const call *c, yk_graph *graph)
{
    yk_graph_replay_begin(graph, x->o.stream);
    yk_status status = run_directly(x, c);
    yk_status launched = yk_graph_replay_end(graph, x->o.stream);
    return status == YK_OK ? launched : status;
}

static yk_status run(yk_graphs *x, const yk_batch *batch, const call *c)
{
    if (!x->on || yk_device_is_recorded(yk_stream_get_device(x->o.stream)))
        return run_directly(x, c);
    key k = key_of(x, batch, c);
    if (k.n_words > MAX_WORDS) return run_directly(x, c);
    unit_graphs *u = &x->places[c->place];
    unit_graph *found = NULL;
    for (int i = 0; i < u->n_items && !found; i++)
        if (is_equal(&u->items[i].key, &k)) found = &u->items[i];
    if (!found) return run_first(x, c, &k);
    if (found->is_small) return run_directly(x, c);
    return found->graph ? replay(x, c, found->graph) : capture(x, c, &found->graph);
}

yk_status yk_graphs_forward(yk_graphs *x, const yk_batch *batch, int unit, const yk_param_view *p)
{
    return run(x, batch, &(call){.place = 2 * unit, .unit = unit, .p = p});
}

yk_status yk_graphs_backward(yk_graphs *x, const yk_batch *batch, int unit, const yk_param_view *p,
                             const yk_grad_view *g)
{
    return run(x, batch, &(call){.place = 2 * unit + 1, .unit = unit, .p = p, .g = g});
}

yk_status yk_graphs_finish(yk_graphs *x, yk_graphs_fn fn, void *context)
{
    return run(x, NULL, &(call){.place = x->n_places - 1, .finish = fn, .context = context});
}
