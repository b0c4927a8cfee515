/* engine/speed.h - what a device can multiply at the most, and what a model asks for.
 *
 * A step's model FLOPs utilisation (Chowdhery et al. 2022, appendix B) is the operations that the
 * model needs, over the time of the step times a rate: the data sheet's, or that of a large product
 * measured on this very device. What a model needs are the products and the causal attention of a
 * forward pass, three times: what is recomputed does not count.
 */
#ifndef YK_ENGINE_SPEED_H
#define YK_ENGINE_SPEED_H

#include "engine/engine.h"

/* Operations/s of dense products in `dtype` by the data sheet of the device with this description, or
 * by its description where no data sheet is known.
 *
 * tf32  fp32 products round their operands
 */
double yk_speed_sheet(const yk_device_spec *spec, yk_dtype dtype, bool tf32);

/* Operations/s of a large product of random matrices on `device`, the best of a few. Takes memory of
 * its own and gives it back; some tens of milliseconds on a GPU, a quarter of a second on
 * processors.                                                                             [local]
 *
 * YK_ENOMEM  there is not enough memory
 */
yk_status yk_speed_measure(yk_device *device, yk_dtype dtype, double *rate_out);

/* A large product of random matrices, for who wants many of them under way. It has memory and a stream of
 * its own. */
typedef struct yk_product yk_product;

/* YK_ENOMEM  there is not enough memory                                                   [local] */
yk_status yk_product_create(yk_device *device, yk_dtype dtype, yk_product **product_out);

/* Release it, when its stream has passed what was enqueued. NULL does nothing. */
void yk_product_destroy(yk_product *product);

/* Enqueue `n` of them; let `event` mark the end of those; wait for all that were enqueued. */
yk_status yk_product_enqueue(yk_product *product, int n);
yk_status yk_product_mark(yk_product *product, yk_event *event);
yk_status yk_product_wait(yk_product *product);

/* Operations of one. */
double yk_product_flops(const yk_product *product);

/* Operations that training on one micro-batch needs.                                     [local] */
yk_status yk_speed_model_flops(const yk_config *config, const yk_model_shape *shape,
                               const yk_device_spec *spec, int64_t micro_batch, double *flops_out);

#endif
