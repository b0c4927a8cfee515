/* engine/run_folder.c - making, filling and finding a run's folder. */
#include "engine/run_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/weights.h"
#include "models/hf.h"
#include "runtime/storage/file.h"

static yk_status join(const char *dir, const char *name, char **path_out)
{
    char *path = yk_path_join(dir, name);
    if (!path) return yk_fail(YK_ENOMEM, dir, "no memory for a path");
    *path_out = path;
    return YK_OK;
}

static bool holds_model(const char *dir)
{
    char *path = yk_path_join(dir, YK_HF_CONFIG_NAME);
    bool there = path && yk_file_exists(path);
    free(path);
    return there;
}

yk_status yk_run_folder_check(const yk_config *config)
{
    const char *dir = config->run.dir;
    char *model = NULL;
    if (yk_path_is_file(dir)) return yk_fail(YK_EINVAL, dir, "it is a file; give another run.dir");
    YK_TRY(join(dir, "model", &model));
    bool finished = holds_model(model);
    free(model);
    if (!finished) return YK_OK;
    return yk_fail(
        YK_EINVAL, dir,
        "a run is there already; give another run.dir, or remove this one; to go on from "
        "its weights add model.init: %s",
        dir);
}

/* The configuration as text, by way of a buffer, so that the file is replaced at once. */
static yk_status write_config(const yk_config *config, const char *path)
{
    char *text = NULL;
    size_t n = 0;
    FILE *buffer = open_memstream(&text, &n);
    if (!buffer) return yk_fail(YK_ENOMEM, path, "no memory for its text");
    yk_status status = yk_config_write(config, buffer);
    if (fclose(buffer) != 0 && status == YK_OK)
        status = yk_fail(YK_ENOMEM, path, "no memory for its text");
    if (status == YK_OK) status = yk_file_replace(path, text, (int64_t)n);
    free(text);
    return status;
}

static yk_status create_files(const yk_config *config, const char *config_path,
                              const char *metrics_path, yk_metrics **metrics_out)
{
    YK_TRY(yk_dir_create(config->run.dir));
    YK_TRY(write_config(config, config_path));
    if (yk_file_exists(metrics_path)) YK_TRY(yk_file_remove(metrics_path));
    return yk_metrics_open(metrics_path, metrics_out);
}

yk_status yk_run_folder_create(const yk_config *config, yk_metrics **metrics_out)
{
    char *config_path = NULL, *metrics_path = NULL;
    YK_TRY(join(config->run.dir, "config.yaml", &config_path));
    yk_status status = join(config->run.dir, "metrics.jsonl", &metrics_path);
    if (status == YK_OK) {
        status = create_files(config, config_path, metrics_path, metrics_out);
        free(metrics_path);
    }
    free(config_path);
    return status;
}

yk_status yk_run_folder_save(const yk_config *config, yk_engine *engine, bool writes)
{
    char *dir = NULL;
    const char *tokenizer = config->data.tokenizer;
    yk_weights_save_options o = {
        .dtype = engine->compute_dtype,
        .tokenizer = tokenizer[0] ? tokenizer : NULL,
        .only_read = !writes,
    };
    YK_TRY(join(config->run.dir, "model", &dir));
    yk_status status = yk_weights_save(engine->store, engine->model, dir, &o, engine->compute);
    free(dir);
    return status;
}

char *yk_run_folder_around(const char *file)
{
    if (!yk_path_is_file(file)) return NULL;
    const char *slash = strrchr(file, '/');
    char *dir = !slash ? strdup(".") : strndup(file, slash == file ? 1 : (size_t)(slash - file));
    char *model = dir ? yk_path_join(dir, "model") : NULL;
    bool has_model = model && (holds_model(dir) || holds_model(model));
    free(model);
    if (has_model) return dir;
    free(dir);
    return NULL;
}

static yk_status fail_file(const char *file)
{
    char *dir = yk_run_folder_around(file);
    yk_status status =
        yk_fail(YK_EINVAL, file, "it is a file; give %s%s",
                dir ? "its folder, " : "a model's or a run's folder", dir ? dir : "");
    free(dir);
    return status;
}

static bool has_dir(const char *dir, const char *name)
{
    char *path = yk_path_join(dir, name);
    bool there = path && yk_dir_exists(path);
    free(path);
    return there;
}

/* A folder that holds no model, or does not let that be seen. */
static yk_status fail_folder(const char *dir)
{
    if (has_dir(dir, "snapshots"))
        return yk_fail(YK_EINVAL, dir,
                       "it is of the Hugging Face Hub's cache; give the folder in its snapshots/ "
                       "that holds config.json");
    if (!has_dir(dir, "."))
        return yk_fail(YK_EINVAL, dir, "it cannot be looked into; check who may use it");
    return yk_fail(YK_EINVAL, dir,
                   "it holds neither config.json nor model/config.json; give a Hugging Face "
                   "directory or the folder of a run that has saved its weights");
}

yk_status yk_run_folder_find_model(const char *dir, char **model_dir_out)
{
    char *model = NULL;
    if (yk_path_is_file(dir)) return fail_file(dir);
    if (!yk_dir_exists(dir))
        return yk_fail(YK_EINVAL, dir,
                       "there is no such directory; give a model's or a run's folder");
    model = holds_model(dir) ? strdup(dir) : yk_path_join(dir, "model");
    if (!model) return yk_fail(YK_ENOMEM, dir, "no memory for a path");
    if (!holds_model(model)) {
        free(model);
        return fail_folder(dir);
    }
    *model_dir_out = model;
    return YK_OK;
}
