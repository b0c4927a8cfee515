/* runtime/device/cuda/cudnn_graph.c - descriptors of cuDNN's backend API. */
#include "runtime/device/cuda/cudnn_graph.h"

#include <string.h>

#include "runtime/base/status.h"

#define MAX_CANDIDATES 16

void yk_cudnn_graph_init(yk_cudnn_graph *g, const yk_cudnn *cudnn)
{
    memset(g, 0, sizeof *g);
    g->cudnn = cudnn;
    g->failed_at = "";
}

void yk_cudnn_graph_fini(yk_cudnn_graph *g)
{
    for (int i = g->n_made - 1; i >= 0; i--) (void)g->cudnn->destroy_descriptor(g->made[i]);
    g->n_made = g->n_operations = 0;
    g->plan = NULL;
}

/* ---- descriptors -------------------------------------------------------------------------- */

static bool is_good(const yk_cudnn_graph *g)
{
    return g->status == CUDNN_STATUS_SUCCESS;
}

static void note(yk_cudnn_graph *g, cudnnStatus_t status, const char *at)
{
    if (!is_good(g) || status == CUDNN_STATUS_SUCCESS) return;
    g->status = status;
    g->failed_at = at;
}

/* NULL after a failure, which no call looks at. */
static cudnnBackendDescriptor_t make(yk_cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    YK_CHECK(g->n_made < YK_CUDNN_MAX_MADE);
    if (!is_good(g)) return NULL;
    note(g, g->cudnn->create_descriptor(type, &made), "a descriptor");
    if (!is_good(g)) return NULL;
    g->made[g->n_made++] = made;
    return made;
}

static void set(yk_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (is_good(g)) note(g, g->cudnn->set_attribute(d, name, type, n, values), "an attribute");
}

static void set_descriptor(yk_cudnn_graph *g, cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    if (value) set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_data_type(yk_cudnn_graph *g, cudnnBackendDescriptor_t d,
                          cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void finish(yk_cudnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (is_good(g)) note(g, g->cudnn->finalize(d), what);
}

static void add_operation(yk_cudnn_graph *g, cudnnBackendDescriptor_t operation, const char *what)
{
    YK_CHECK(g->n_operations < YK_CUDNN_MAX_OPERATIONS);
    finish(g, operation, what);
    g->operations[g->n_operations++] = operation;
}

/* ---- tensors ------------------------------------------------------------------------------ */

typedef enum where { IN_MEMORY, INNER, BY_VALUE } where;

static cudnnBackendDescriptor_t tensor(yk_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                       const yk_cudnn_view *view, where w)
{
    const int64_t alignment = 16;
    const bool yes = true;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_data_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, view->size);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, view->stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (w == INNER) set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (w == BY_VALUE) set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(g, d, "a tensor");
    return d;
}

cudnnBackendDescriptor_t yk_cudnn_tensor(yk_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                         yk_cudnn_view view)
{
    return tensor(g, id, type, &view, IN_MEMORY);
}

cudnnBackendDescriptor_t yk_cudnn_inner(yk_cudnn_graph *g, cudnnDataType_t type, yk_cudnn_view view)
{
    return tensor(g, YK_CUDNN_FIRST_INNER + g->n_inner++, type, &view, INNER);
}

cudnnBackendDescriptor_t yk_cudnn_scalar(yk_cudnn_graph *g, int64_t id)
{
    const yk_cudnn_view one = {.size = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}};
    return tensor(g, id, CUDNN_DATA_FLOAT, &one, BY_VALUE);
}

/* ---- operations --------------------------------------------------------------------------- */

/* The kind of a pointwise operation; `axis` counts for GEN_INDEX alone. */
static cudnnBackendDescriptor_t pointwise_kind(yk_cudnn_graph *g, cudnnPointwiseMode_t mode,
                                               cudnnDataType_t arithmetic, int64_t axis)
{
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_data_type(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, arithmetic);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, d, "a pointwise operation");
    return d;
}

static void add_pointwise(yk_cudnn_graph *g, cudnnBackendDescriptor_t kind,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                          cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    add_operation(g, d, "a pointwise operation");
}

void yk_cudnn_pointwise(yk_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                        cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                        cudnnBackendDescriptor_t y)
{
    add_pointwise(g, pointwise_kind(g, mode, CUDNN_DATA_FLOAT, 0), x, b, t, y);
}

void yk_cudnn_at_least(yk_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                       cudnnBackendDescriptor_t y)
{
    add_pointwise(g, pointwise_kind(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0), x, b, NULL,
                  y);
}

void yk_cudnn_index(yk_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y,
                    int64_t axis)
{
    add_pointwise(g, pointwise_kind(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis), x, NULL,
                  NULL, y);
}

void yk_cudnn_product(yk_cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                      cudnnBackendDescriptor_t c)
{
    cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_data_type(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(g, kind, "a product");
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    add_operation(g, d, "a product");
}

void yk_cudnn_reduce(yk_cudnn_graph *g, cudnnReduceTensorOp_t what, cudnnBackendDescriptor_t x,
                     cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_data_type(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
    finish(g, kind, "a reduction");
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    add_operation(g, d, "a reduction");
}

void yk_cudnn_reshape(yk_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, d, "a reshape");
}

/* ---- plans -------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t make_graph(yk_cudnn_graph *g)
{
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnHandle_t handle = g->cudnn->handle;
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_operations,
        g->operations);
    finish(g, d, "the graph");
    return d;
}

/* cuDNN's candidates for `graph`, best first. Fewer may come than were announced. */
static int find_candidates(yk_cudnn_graph *g, cudnnBackendDescriptor_t graph,
                           cudnnBackendDescriptor_t *candidates)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t announced = 0, came = 0;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(g, d, "the heuristics");
    if (is_good(g))
        note(g,
             g->cudnn->get_attribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &announced, NULL),
             "the heuristics");
    if (announced > MAX_CANDIDATES) announced = MAX_CANDIDATES;
    for (int64_t i = 0; i < announced; i++)
        candidates[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (is_good(g))
        note(g,
             g->cudnn->get_attribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, announced, &came, candidates),
             "the heuristics");
    return is_good(g) ? (int)(came < announced ? came : announced) : 0;
}

/* The plan of one candidate, if it can be built and is modest. A failure is forgotten: the next
 * candidate is tried. */
static bool try_candidate(yk_cudnn_graph *g, cudnnBackendDescriptor_t candidate, int64_t limit)
{
    const cudnnHandle_t handle = g->cudnn->handle;
    int64_t bytes = 0, n = 0;
    cudnnBackendDescriptor_t plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate);
    finish(g, plan, "a plan");
    if (is_good(g))
        note(g,
             g->cudnn->get_attribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &n, &bytes),
             "a plan's workspace");
    if (!is_good(g)) return false;
    g->workspace_bytes = bytes;
    if (bytes > limit) {
        note(g, CUDNN_STATUS_NOT_SUPPORTED, "a workspace within its bound");
        return false;
    }
    g->plan = plan;
    return true;
}

bool yk_cudnn_graph_plan(yk_cudnn_graph *g, int64_t limit)
{
    cudnnBackendDescriptor_t candidates[MAX_CANDIDATES];
    int n = find_candidates(g, make_graph(g), candidates);
    if (is_good(g) && n == 0) note(g, CUDNN_STATUS_NOT_SUPPORTED, "a candidate");
    for (int i = 0; i < n; i++) {
        g->status = CUDNN_STATUS_SUCCESS;
        if (try_candidate(g, candidates[i], limit)) return true;
    }
    return false;
}

/* ---- running ------------------------------------------------------------------------------ */

bool yk_cudnn_graph_run(const yk_cudnn_graph *g, cudaStream_t stream, int n, const int64_t *ids,
                        void *const *pointers, void *workspace, cudnnStatus_t *status_out)
{
    yk_cudnn_graph call; /* its one descriptor is the pack of pointers */
    yk_cudnn_graph_init(&call, g->cudnn);
    cudnnBackendDescriptor_t pack = make(&call, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&call, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    set(&call, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    set(&call, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish(&call, pack, "the pointers");
    if (is_good(&call)) note(&call, g->cudnn->set_stream(g->cudnn->handle, stream), "the stream");
    if (is_good(&call))
        note(&call, g->cudnn->execute(g->cudnn->handle, g->plan, pack), "execution");
    yk_cudnn_graph_fini(&call);
    *status_out = call.status;
    return is_good(&call);
}
