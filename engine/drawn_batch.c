/* engine/drawn_batch.c - random tokens by Zipf's law (1935): as frequent as one over their rank. */
#include "engine/drawn_batch.h"

#include <math.h>
#include <string.h>

#include "runtime/base/arith.h"

void yk_drawn_batch_fill(const yk_engine *e, uint64_t seed, int32_t *fields)
{
    int64_t rows = e->micro_batch * e->seq_len, vocab = yk_model_get_shape(e->model)->vocab;
    int32_t *tokens = fields, *targets = tokens + rows, *positions = targets + rows;
    uint64_t s = 88172645463325252u + seed * 1000003u; /* xorshift (Marsaglia 2003) */
    for (int64_t i = 0; i < rows; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        double token = exp((double)(s >> 11) * 0x1p-53 * log((double)vocab)) - 1;
        tokens[i] = (int32_t)yk_min((int64_t)token, vocab - 1);
        positions[i] = (int32_t)(i % e->seq_len);
        if (i > 0) targets[i - 1] = tokens[i];
    }
    targets[rows - 1] = tokens[0];
    memset(positions + rows, 0, (size_t)((e->n_fields - 3) * rows) * sizeof *positions);
}
