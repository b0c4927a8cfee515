/* runtime/storage/json.h - reading and writing JSON files by jansson.
 *
 * Integers have 64 bits. A key that an object repeats is an error: of two values for one name
 * neither can be trusted. Errors give the line.
 */
#ifndef YK_RUNTIME_STORAGE_JSON_H
#define YK_RUNTIME_STORAGE_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "runtime/base/status.h"

/* Read a JSON file whose top is an object. The caller owns the value (json_decref()).   [local]
 *
 * YK_EINVAL   the file cannot be read
 * YK_EFORMAT  it is not JSON, repeats a key, or its top is no object
 */
yk_status yk_json_read(const char *path, json_t **object_out);

/* The same from `bytes` of text that came from `path`.                                  [local] */
yk_status yk_json_parse(const char *path, const char *text, int64_t bytes, json_t **object_out);

/* Replace the file by `value`, indented by two spaces and ended by a newline. Keys keep their
 * order, or are sorted with `flags` JSON_SORT_KEYS.                                     [local] */
yk_status yk_json_replace(const char *path, const json_t *value, size_t flags);

#endif
