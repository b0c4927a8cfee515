/* tests/runtime/data/shards.c - see shards.h. */
#include "tests/runtime/data/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

/* Put the ids at `to`, little-endian. */
static void put_ids(uint8_t *to, const int64_t *ids, int64_t n, int width)
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * width, &ids[i], (size_t)width);
}

const char *shard_write_raw(char path[SCRATCH_PATH], const char *dir, const char *name,
                            const int64_t *ids, int64_t n, int width)
{
    uint8_t *data = malloc((size_t)(n * width) + 1);
    YK_CHECK(data != NULL);
    put_ids(data, ids, n, width);
    scratch_write(path, dir, name, data, n * width);
    free(data);
    return path;
}

const char *shard_write_llmc(char path[SCRATCH_PATH], const char *dir, const char *name,
                             const int64_t *ids, int64_t n, int width)
{
    uint8_t *data = calloc(1, (size_t)(1024 + n * width));
    YK_CHECK(data != NULL);
    int32_t head[3] = {width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, (int32_t)n};
    memcpy(data, head, sizeof head);
    put_ids(data + 1024, ids, n, width);
    scratch_write(path, dir, name, data, 1024 + n * width);
    free(data);
    return path;
}

const char *shard_write_megatron(char path[SCRATCH_PATH], const char *dir, const char *name,
                                 const int64_t *ids, int width, const int32_t *sizes,
                                 int64_t n_sizes)
{
    char file[64];
    int64_t n = 0, version = 1, n_entries = n_sizes + 1, bytes = 34 + 12 * n_sizes + 8 * n_entries;
    uint8_t *index = calloc(1, (size_t)bytes), *sizes_at = index + 34;
    YK_CHECK(index != NULL);
    memcpy(index, "MMIDIDX\0", 9);
    memcpy(index + 9, &version, 8);
    index[17] = width == 2 ? 8 : 4;
    memcpy(index + 18, &n_sizes, 8);
    memcpy(index + 26, &n_entries, 8);
    memcpy(sizes_at, sizes, (size_t)(4 * n_sizes));
    for (int64_t i = 0; i <= n_sizes; i++) {
        int64_t at = n * width;
        if (i < n_sizes) memcpy(sizes_at + 4 * n_sizes + 8 * i, &at, 8);
        memcpy(sizes_at + 12 * n_sizes + 8 * i, &i, 8);
        if (i < n_sizes) n += sizes[i];
    }
    snprintf(file, sizeof file, "%s.idx", name);
    scratch_write(path, dir, file, index, bytes);
    free(index);
    snprintf(file, sizeof file, "%s.bin", name);
    return shard_write_raw(path, dir, file, ids, n, width);
}

void shard_set(yk_config *config, const char *key, const char *value)
{
    char text[4096];
    YK_CHECK(snprintf(text, sizeof text, "%s=%s", key, value) < (int)sizeof text);
    YK_CHECK(yk_config_set(config, text) == YK_OK);
}

void shard_config(yk_config *config, const char *train, int64_t seq_len)
{
    char number[32];
    YK_CHECK(yk_config_init(config) == YK_OK);
    snprintf(number, sizeof number, "%lld", (long long)seq_len);
    shard_set(config, "train.seq_len", number);
    shard_set(config, "data.train", train);
}
