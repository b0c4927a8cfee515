/* runtime/device/ops.c - the dispatcher: operations of the forward and backward pass.
 *
 * Every function has the same four steps: refuse arguments that do not fit together, deal with zero
 * rows, take the workspace that the device states, call the backend. Pointers are looked at only
 * where there are rows for them. The operations of the optimiser's step are in ops_step.c.
 */
#include "runtime/device/ops.h"

#include "runtime/device/dispatch.h"

/* ---- embedding ---------------------------------------------------------------------------- */

yk_status yk_embed_forward(yk_stream *stream, const yk_embed_forward_args *a)
{
    REQUIRE(a->rows >= 0 && a->cols > 0 && a->vocab > 0 && a->max_positions >= 0);
    REQUIRE(is_float(a->dtype));
    if (a->rows == 0) return YK_OK;
    REQUIRE(a->y && a->wte && a->tokens);
    REQUIRE(!a->wpe || (a->positions && a->max_positions > 0));
    REQUIRE_OFFERED(stream, embed_forward);
    ENQUEUE(stream, embed_forward, yk_embed_forward_cost(a), a);
}

yk_status yk_embed_backward(yk_stream *stream, const yk_embed_backward_args *a)
{
    REQUIRE(a->rows >= 0 && a->cols > 0 && a->vocab > 0 && a->max_positions >= 0);
    REQUIRE(is_float(a->dtype) && is_float(a->grad_dtype));
    REQUIRE(a->dwte);
    REQUIRE(!a->dwpe || a->max_positions > 0);
    if (a->rows == 0) {
        int64_t row_bytes = a->cols * yk_dtype_bytes(a->grad_dtype);
        if (!a->accumulate_wte) YK_TRY(yk_zero(stream, a->dwte, a->vocab * row_bytes));
        if (a->dwpe && !a->accumulate_wpe)
            YK_TRY(yk_zero(stream, a->dwpe, a->max_positions * row_bytes));
        return YK_OK;
    }
    REQUIRE(a->dy && a->tokens);
    REQUIRE(!a->dwpe || a->positions);
    REQUIRE_OFFERED(stream, embed_backward);
    TAKE_WORKSPACE(stream, embed_backward, a);
    ENQUEUE(stream, embed_backward, yk_embed_backward_cost(a), a, ws);
}

/* ---- norm --------------------------------------------------------------------------------- */

yk_status yk_norm_forward(yk_stream *stream, const yk_norm_forward_args *a)
{
    REQUIRE(a->rows >= 0 && a->cols > 0 && a->eps >= 0);
    REQUIRE(is_float(a->dtype));
    REQUIRE(a->kind == YK_NORM_LAYER || (a->kind == YK_NORM_RMS && !a->mean && !a->bias));
    if (a->rows == 0) return YK_OK;
    REQUIRE(a->y && a->rstd && a->x && a->weight);
    REQUIRE(a->kind == YK_NORM_RMS || (a->mean && a->bias));
    REQUIRE_OFFERED(stream, norm_forward);
    ENQUEUE(stream, norm_forward, yk_norm_forward_cost(a), a);
}

yk_status yk_norm_backward(yk_stream *stream, const yk_norm_backward_args *a)
{
    bool layer = a->kind == YK_NORM_LAYER;
    REQUIRE(a->rows >= 0 && a->cols > 0);
    REQUIRE(is_float(a->dtype) && is_float(a->grad_dtype));
    REQUIRE(layer || (a->kind == YK_NORM_RMS && !a->mean && !a->dbias));
    REQUIRE(a->dweight && (!layer || a->dbias));
    REQUIRE(!a->add_sum || a->add || a->rows == 0);
    if (a->rows == 0) {
        void *const sums[] = {a->dweight, a->dbias, a->dx_sum, a->add_sum};
        for (int i = 0; i < 4 && !a->accumulate; i++)
            if (sums[i]) YK_TRY(yk_zero(stream, sums[i], a->cols * yk_dtype_bytes(a->grad_dtype)));
        return YK_OK;
    }
    REQUIRE(a->dx && a->dy && a->x && a->weight && a->rstd && (!layer || a->mean));
    REQUIRE_OFFERED(stream, norm_backward);
    TAKE_WORKSPACE(stream, norm_backward, a);
    ENQUEUE(stream, norm_backward, yk_norm_backward_cost(a), a, ws);
}

/* ---- linear ------------------------------------------------------------------------------- */

yk_status yk_linear_forward(yk_stream *stream, const yk_linear_forward_args *a)
{
    REQUIRE(a->m >= 0 && a->n > 0 && a->k > 0);
    REQUIRE(is_float(a->dtype));
    REQUIRE(!(a->gelu && a->residual));
    REQUIRE(a->gelu || !a->z);
    if (a->m == 0) return YK_OK;
    REQUIRE(a->y && a->x && a->w);
    REQUIRE_OFFERED(stream, linear_forward);
    TAKE_WORKSPACE(stream, linear_forward, a);
    ENQUEUE(stream, linear_forward, yk_linear_forward_cost(a), a, ws);
}

yk_status yk_linear_backward_input(yk_stream *stream, const yk_linear_backward_input_args *a)
{
    REQUIRE(a->m >= 0 && a->n > 0 && a->k > 0);
    REQUIRE(is_float(a->dtype));
    REQUIRE(!(a->accumulate && a->z));
    REQUIRE(!a->dbias || (a->z && is_float(a->grad_dtype)));
    if (a->m == 0) {
        int64_t bytes = a->k * yk_dtype_bytes(a->grad_dtype);
        return a->dbias && !a->accumulate_dbias ? yk_zero(stream, a->dbias, bytes) : YK_OK;
    }
    REQUIRE(a->dx && a->dy && a->w);
    REQUIRE_OFFERED(stream, linear_backward_input);
    TAKE_WORKSPACE(stream, linear_backward_input, a);
    ENQUEUE(stream, linear_backward_input, yk_linear_backward_input_cost(a), a, ws);
}

yk_status yk_linear_backward_weight(yk_stream *stream, const yk_linear_backward_weight_args *a)
{
    REQUIRE(a->m >= 0 && a->n > 0 && a->k >= 0);
    REQUIRE(is_float(a->dtype) && is_float(a->grad_dtype));
    REQUIRE(a->dw || a->k == 0);
    if (a->m == 0) {
        int64_t element = yk_dtype_bytes(a->grad_dtype);
        if (!a->accumulate) YK_TRY(yk_zero(stream, a->dw, a->n * a->k * element));
        if (!a->accumulate && a->dbias) YK_TRY(yk_zero(stream, a->dbias, a->n * element));
        return YK_OK;
    }
    REQUIRE((a->x || a->k == 0) && a->dy);
    REQUIRE_OFFERED(stream, linear_backward_weight);
    TAKE_WORKSPACE(stream, linear_backward_weight, a);
    ENQUEUE(stream, linear_backward_weight, yk_linear_backward_weight_cost(a), a, ws);
}

/* ---- rotary positions --------------------------------------------------------------------- */

yk_status yk_rope(yk_stream *stream, const yk_rope_args *a)
{
    REQUIRE(a->rows >= 0 && a->heads > 0 && a->kv_heads > 0 && a->max_positions > 0);
    REQUIRE(a->head_size > 0 && a->head_size % 2 == 0);
    REQUIRE(is_float(a->dtype) && (!a->qkv_sum || is_float(a->grad_dtype)));
    if (a->rows == 0) {
        int64_t n = (a->heads + 2 * a->kv_heads) * a->head_size;
        return a->qkv_sum && !a->accumulate
                   ? yk_zero(stream, a->qkv_sum, n * yk_dtype_bytes(a->grad_dtype))
                   : YK_OK;
    }
    REQUIRE(a->qkv && a->cos && a->sin && a->positions);
    REQUIRE_OFFERED(stream, rope);
    TAKE_WORKSPACE(stream, rope, a);
    ENQUEUE(stream, rope, yk_rope_cost(a), a, ws);
}

/* ---- attention ---------------------------------------------------------------------------- */

yk_status yk_attention_forward(yk_stream *stream, const yk_attention_forward_args *a)
{
    REQUIRE(a->batch >= 0 && a->seq_len >= 0 && a->head_size > 0);
    REQUIRE(a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0);
    REQUIRE(is_float(a->dtype));
    if (a->batch == 0 || a->seq_len == 0) return YK_OK;
    REQUIRE(a->y && a->lse && a->qkv);
    REQUIRE_OFFERED(stream, attention_forward);
    TAKE_WORKSPACE(stream, attention_forward, a);
    ENQUEUE(stream, attention_forward, yk_attention_forward_cost(a), a, ws);
}

yk_status yk_attention_backward(yk_stream *stream, const yk_attention_backward_args *a)
{
    REQUIRE(a->batch >= 0 && a->seq_len >= 0 && a->head_size > 0);
    REQUIRE(a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0);
    REQUIRE(is_float(a->dtype));
    if (a->batch == 0 || a->seq_len == 0) return YK_OK;
    REQUIRE(a->dqkv && a->dy && a->y && a->lse && a->qkv);
    REQUIRE_OFFERED(stream, attention_backward);
    TAKE_WORKSPACE(stream, attention_backward, a, &stream->device->spec);
    ENQUEUE(stream, attention_backward, yk_attention_backward_cost(a), a, ws);
}

yk_status yk_attention_cached(yk_stream *stream, const yk_attention_cached_args *a)
{
    REQUIRE(a->batch >= 0 && a->seq_len >= 0 && a->head_size > 0);
    REQUIRE(a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0);
    REQUIRE(a->past >= 0 && a->past <= a->capacity && a->seq_len <= a->capacity - a->past);
    REQUIRE(is_float(a->dtype));
    if (a->batch == 0 || a->seq_len == 0) return YK_OK;
    REQUIRE(a->y && a->k_cache && a->v_cache && a->qkv);
    REQUIRE_OFFERED(stream, attention_cached);
    TAKE_WORKSPACE(stream, attention_cached, a);
    ENQUEUE(stream, attention_cached, yk_attention_cached_cost(a), a, ws);
}

/* ---- activations -------------------------------------------------------------------------- */

yk_status yk_swiglu_forward(yk_stream *stream, const yk_swiglu_forward_args *a)
{
    REQUIRE(a->rows >= 0 && a->cols > 0);
    REQUIRE(is_float(a->dtype));
    if (a->rows == 0) return YK_OK;
    REQUIRE(a->y && a->gate_up);
    REQUIRE_OFFERED(stream, swiglu_forward);
    ENQUEUE(stream, swiglu_forward, yk_swiglu_forward_cost(a), a);
}

yk_status yk_swiglu_backward(yk_stream *stream, const yk_swiglu_backward_args *a)
{
    REQUIRE(a->rows >= 0 && a->cols > 0);
    REQUIRE(is_float(a->dtype));
    if (a->rows == 0) return YK_OK;
    REQUIRE(a->dgate_up && a->dy && a->gate_up);
    REQUIRE_OFFERED(stream, swiglu_backward);
    ENQUEUE(stream, swiglu_backward, yk_swiglu_backward_cost(a), a);
}

/* ---- loss --------------------------------------------------------------------------------- */

yk_status yk_cross_entropy(yk_stream *stream, const yk_cross_entropy_args *a)
{
    REQUIRE(a->rows >= 0 && a->vocab > 0 && a->stride >= a->vocab);
    REQUIRE(is_float(a->dtype));
    REQUIRE(!a->backward || a->values);
    if (a->rows == 0) return YK_OK;
    REQUIRE(a->losses && a->logits && a->targets);
    REQUIRE_OFFERED(stream, cross_entropy);
    ENQUEUE(stream, cross_entropy, yk_cross_entropy_cost(a), a);
}

yk_status yk_loss_sum(yk_stream *stream, const yk_loss_sum_args *a)
{
    REQUIRE(a->rows >= 0);
    if (a->rows == 0) return YK_OK;
    REQUIRE(a->values && a->losses && a->targets);
    REQUIRE_OFFERED(stream, loss_sum);
    TAKE_WORKSPACE(stream, loss_sum, a);
    ENQUEUE(stream, loss_sum, yk_loss_sum_cost(a), a, ws);
}
