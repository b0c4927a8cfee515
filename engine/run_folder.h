/* engine/run_folder.h - the folder of a run and what lies in it.
 *
 *   config.yaml    every key, as run
 *   metrics.jsonl  a line a step
 *   model/         the weights, a Hugging Face directory
 */
#ifndef YK_ENGINE_RUN_FOLDER_H
#define YK_ENGINE_RUN_FOLDER_H

#include "engine/engine.h"
#include "runtime/observe/metrics.h"

/* May a run begin in config->run.dir? Nothing is written.                                [local]
 *
 * YK_EINVAL  a finished run is there, or something that is no folder
 */
yk_status yk_run_folder_check(const yk_config *config);

/* Make the folder, write config.yaml, begin metrics.jsonl anew. */
yk_status yk_run_folder_create(const yk_config *config, yk_metrics **metrics_out);

/* Write the weights to model/; what was there stays until they are whole.           [collective]
 *
 * writes  false on ranks that only bring what they keep
 */
yk_status yk_run_folder_save(const yk_config *config, yk_engine *engine, bool writes);

/* The folder of a run or a model that a file lies in, as its config.yaml or its weights do; NULL: in none.
 * The caller owns it (free()). */
char *yk_run_folder_around(const char *file);

/* The Hugging Face directory that `dir` is, or has as a run's folder. The caller owns it (free()).
 *
 * YK_EINVAL  it is neither
 */
yk_status yk_run_folder_find_model(const char *dir, char **model_dir_out);

#endif
