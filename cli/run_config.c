/* cli/run_config.c - reading the configuration of a run. */
#include "cli/run_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/run_folder.h"
#include "models/hf.h"
#include "runtime/storage/file.h"

static yk_status read_file(yk_config *config, const char *path)
{
    char *text;
    int64_t bytes;
    if (yk_model_is_preset(path) && !yk_file_exists(path))
        return yk_fail(YK_EINVAL, path,
                       "it is a preset, and a file is wanted; write one with model.preset: %s, or "
                       "give yours and --set model.preset=%s",
                       path, path);
    YK_TRY(yk_file_read_short(path, YK_CONFIG_TEXT_MAX, &text, &bytes));
    yk_status status = yk_config_read(config, path, text, (size_t)bytes);
    free(text);
    return status;
}

/* runs/<name> for a file <anything>/<name>.yaml */
static yk_status set_run_dir(yk_config *config, const char *path)
{
    if (config->run.dir[0]) return YK_OK;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int length = dot && dot != name ? (int)(dot - name) : (int)strlen(name);
    char assignment[512];
    int n = snprintf(assignment, sizeof assignment, "run.dir=runs/%.*s", length, name);
    if (n >= (int)sizeof assignment)
        return yk_fail(YK_EINVAL, path, "the name is too long to name a run after; give run.dir");
    return yk_config_set(config, assignment);
}

/* For the folder of a run, the model that the run has saved. */
static yk_status set_init(yk_config *config)
{
    char *own = NULL, *model = NULL, *saved = NULL;
    if (!config->model.init[0]) return YK_OK;
    if (yk_path_is_file(config->model.init))
        return yk_run_folder_find_model(config->model.init, &model);
    if (yk_model_is_preset(config->model.init) && !yk_dir_exists(config->model.init))
        return yk_fail(YK_EINVAL, "model.init",
                       "%s is a preset, without weights; write model.preset: %s, or give a folder",
                       config->model.init, config->model.init);
    own = yk_path_join(config->model.init, YK_HF_CONFIG_NAME);
    model = yk_path_join(config->model.init, "model");
    if (model) saved = yk_path_join(model, YK_HF_CONFIG_NAME);
    yk_status status = YK_OK;
    if (!own || !saved) {
        status = yk_fail(YK_ENOMEM, config->model.init, "no memory for a path");
    } else if (!yk_file_exists(own) && yk_file_exists(saved)) {
        free(config->model.init);
        config->model.init = model;
        model = NULL;
    }
    free(own);
    free(model);
    free(saved);
    return status;
}

/* Text for a model that has a tokenizer is read through it. */
static yk_status set_tokenizer(yk_config *config)
{
    if (!config->model.init[0] || config->data.tokenizer[0]) return YK_OK;
    char *path = yk_path_join(config->model.init, "tokenizer.json");
    if (!path) return yk_fail(YK_ENOMEM, config->model.init, "no memory for a path");
    if (yk_file_exists(path)) {
        free(config->data.tokenizer);
        config->data.tokenizer = path;
    } else {
        free(path);
    }
    return YK_OK;
}

static yk_status fill(yk_config *config, const char *path, const yk_cli_list *sets)
{
    YK_TRY(read_file(config, path));
    for (int i = 0; i < sets->n_items; i++) YK_TRY(yk_config_set(config, sets->items[i]));
    YK_TRY(set_run_dir(config, path));
    YK_TRY(set_init(config));
    YK_TRY(set_tokenizer(config));
    return yk_config_check(config);
}

yk_status yk_cli_read_config(const char *path, const yk_cli_list *sets, yk_config *config_out)
{
    yk_config config;
    YK_TRY(yk_config_init(&config));
    yk_status status = fill(&config, path, sets);
    if (status != YK_OK) {
        yk_config_fini(&config);
        return status;
    }
    *config_out = config;
    return YK_OK;
}

yk_status yk_cli_read_run_config(const char *path, const yk_cli_list *sets, yk_config *config_out)
{
    yk_config config;
    YK_TRY(yk_cli_read_config(path, sets, &config));
    yk_status status = yk_config_check_data(&config);
    if (status != YK_OK) {
        yk_config_fini(&config);
        return status;
    }
    *config_out = config;
    return YK_OK;
}

yk_status yk_cli_find_shape(const yk_config *config, yk_model_shape *shape_out)
{
    if (!config->model.init[0]) return yk_model_shape_from_config(config, shape_out);
    YK_TRY(yk_hf_config_read(config->model.init, shape_out));
    return yk_model_shape_agrees(shape_out, config);
}
