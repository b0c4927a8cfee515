/* tests/models/shapes.h - shapes of models for tests: presets, and tiny ones with every odd size. */
#ifndef YK_TESTS_MODELS_SHAPES_H
#define YK_TESTS_MODELS_SHAPES_H

#include "models/model.h"

/* The shape that `model.preset` gives. Aborts when there is none. */
yk_model_shape shape_of_preset(const char *preset);

/* Small enough for finite differences; no two sizes are equal, and the vocabulary is padded.
 * Rotary ones have grouped-query heads whose size is not width / heads. */
yk_model_shape shape_tiny(yk_family family, bool tied);

/* Every shape that shape_tiny() makes, for loops. */
#define N_TINY_SHAPES 6
yk_model_shape shape_tiny_at(int i);

/* Such as "llama tied". Static storage. */
const char *shape_tiny_name(int i);

#endif
