/* runtime/storage/json.c - see json.h. */
#include "runtime/storage/json.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/storage/file.h"
#include "runtime/storage/lfs.h"

yk_status yk_json_parse(const char *path, const char *text, int64_t bytes, json_t **object_out)
{
    json_error_t error;
    json_t *value = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        YK_TRY(yk_lfs_check(path, text, bytes));
        return yk_fail(YK_EFORMAT, path, "is not valid JSON: line %d, column %d: %s", error.line,
                       error.column, error.text);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return yk_fail(YK_EFORMAT, path, "is JSON, but not an object at the top");
    }
    *object_out = value;
    return YK_OK;
}

yk_status yk_json_read(const char *path, json_t **object_out)
{
    char *text;
    int64_t bytes;
    YK_TRY(yk_file_read_all(path, &text, &bytes));
    yk_status status = yk_json_parse(path, text, bytes, object_out);
    free(text);
    return status;
}

yk_status yk_json_replace(const char *path, const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags | JSON_INDENT(2));
    if (!text) return yk_fail(YK_ENOMEM, path, "no memory to write it as JSON");
    size_t n = strlen(text);
    text[n] = '\n'; /* in the place of the final 0 */
    yk_status status = yk_file_replace(path, text, (int64_t)n + 1);
    free(text);
    return status;
}
