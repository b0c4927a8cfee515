/* models/table.h - which entry of the parameter table is what; included by models/ alone.
 *
 * The decoder finds its weights by these indices. An index of -1 stands for a parameter that the
 * family does not have; views of it read as NULL.
 */
#ifndef YK_MODELS_TABLE_H
#define YK_MODELS_TABLE_H

#include "models/model.h"

typedef struct yk_norm_ids {
    int weight, bias;
} yk_norm_ids;

typedef struct yk_linear_ids {
    int weight, bias;
} yk_linear_ids;

typedef struct yk_embed_ids {
    int tokens;    /* (V,C) */
    int positions; /* (P,C) */
} yk_embed_ids;

typedef struct yk_block_ids {
    yk_norm_ids norm1;
    yk_linear_ids qkv;  /* ((H+2G)D,C) */
    yk_linear_ids proj; /* (C,HD) */
    yk_norm_ids norm2;
    yk_linear_ids up;   /* (F,C), or (2F,C): gate rows, then up rows */
    yk_linear_ids down; /* (C,F) */
} yk_block_ids;

typedef struct yk_head_ids {
    yk_norm_ids norm;
    int out; /* (V,C); the token embedding when tied */
} yk_head_ids;

struct yk_model {
    yk_model_shape shape;
    yk_param *params;
    int n_params, n_units;
    yk_embed_ids embed;
    yk_block_ids *blocks; /* (L) */
    yk_head_ids head;
};

#endif
