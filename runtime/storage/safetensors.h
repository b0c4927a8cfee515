/* runtime/storage/safetensors.h - tensors in files, as Hugging Face's safetensors keeps them.
 *
 * Format.   8 bytes: the header's length, little-endian; the header, JSON: name -> dtype, shape and
 *           [begin, end) within the data; the data, where tensors lie one after the other without a
 *           gap up to the end of the file. Several files ("shards") are tied together by an index,
 *           model.safetensors.index.json: weight_map from name to file.
 * Reading.  Files are mapped; nothing is copied, and only what is looked at is read from the disk.
 *           Everything a file says of itself is checked before a pointer is handed out.
 * Writing.  All tensors are announced first, so that the header can be written; then pieces of data
 *           come in any order. Files take their names at commit, whole and on the disk.
 * Threads.  A reader may be shared. A writer's pieces may come from several threads.
 */
#ifndef YK_RUNTIME_STORAGE_SAFETENSORS_H
#define YK_RUNTIME_STORAGE_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

/* The element types of the format that have whole bytes. */
typedef enum yk_st_dtype {
    YK_ST_BOOL,
    YK_ST_U8,
    YK_ST_I8,
    YK_ST_F8_E5M2,
    YK_ST_F8_E4M3,
    YK_ST_I16,
    YK_ST_U16,
    YK_ST_F16,
    YK_ST_BF16,
    YK_ST_I32,
    YK_ST_U32,
    YK_ST_F32,
    YK_ST_F64,
    YK_ST_I64,
    YK_ST_U64,
} yk_st_dtype;

#define YK_ST_MAX_DIMS 8

/* What a tensor is, wherever its data lies. */
typedef struct yk_st_info {
    const char *name;
    yk_st_dtype dtype;
    int n_dims;                    /* 0: one value */
    int64_t shape[YK_ST_MAX_DIMS]; /* (n_dims) each >= 0 */
} yk_st_info;

/* A tensor in an open file. */
typedef struct yk_st_tensor {
    yk_st_info info;
    int64_t count;    /* elements */
    int64_t bytes;    /* count * bytes of an element */
    const void *data; /* (bytes), perhaps not aligned to its elements: copy with memcpy */
    const char *file; /* path of the file it lies in */
} yk_st_tensor;

/* Bytes of an element. */
int64_t yk_st_dtype_bytes(yk_st_dtype dtype);

/* As in the file: "F32", "BF16", ... */
const char *yk_st_dtype_name(yk_st_dtype dtype);

/* The type of our own that is stored the same way (F32, BF16, F16, I32); false if there is none. */
bool yk_st_dtype_own(yk_st_dtype dtype, yk_dtype *dtype_out);

/* The file's type for one of our own. */
yk_st_dtype yk_st_dtype_of(yk_dtype dtype);

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct yk_safetensors yk_safetensors;

/* Open tensors for reading; the caller owns the reader.                                 [local]
 *
 * path  a .safetensors file, an index (.json), or a directory that holds model.safetensors or
 *       model.safetensors.index.json
 *
 * YK_EINVAL   no such file; a directory without either
 * YK_EFORMAT  a header that is too long or no JSON; a tensor of unknown dtype, of a size that its
 *             shape does not give, that overlaps another or lies outside of the file; a name twice;
 *             bytes that no tensor claims; an index that names what is not there
 */
yk_status yk_safetensors_open(const char *path, yk_safetensors **reader_out);

/* Close and release the reader and all it has handed out. NULL does nothing. */
void yk_safetensors_close(yk_safetensors *reader);

/* How many tensors there are. */
int64_t yk_safetensors_count(const yk_safetensors *reader);

/* Tensor `index`, in order of name; borrowed until the reader is closed. */
const yk_st_tensor *yk_safetensors_at(const yk_safetensors *reader, int64_t index);

/* The tensor of that name, or NULL. */
const yk_st_tensor *yk_safetensors_find(const yk_safetensors *reader, const char *name);

/* The tensor of that name, which must be there, be F32, BF16 or F16, and have this shape. [local]
 *
 * YK_EFORMAT  it is missing, of another dtype, or of another shape: the message says which
 */
yk_status yk_safetensors_require(const yk_safetensors *reader, const char *name, int n_dims,
                                 const int64_t *shape, const yk_st_tensor **tensor_out);

/* ---- writing ------------------------------------------------------------------------------ */

typedef struct yk_safetensors_writer yk_safetensors_writer;

/* Begin to write `n` tensors into directory `dir`, which must be there; the caller owns the writer
 * and ends it with commit or abort.                                                     [local]
 *
 * tensors          (n) names and shapes, copied; names differ
 * max_shard_bytes  the most data in one file; 0: no limit. All in one file is named
 *                  model.safetensors; else tensors are dealt in the order given to files
 *                  model-00001-of-0000N.safetensors, and an index is written. A tensor that is
 *                  larger has a file of its own.
 *
 * YK_EINVAL  a name is empty, too long for the format, or given twice; a shape is negative; the
 *            directory cannot be written
 */
yk_status yk_safetensors_writer_open(const char *dir, const yk_st_info *tensors, int64_t n,
                                     int64_t max_shard_bytes, yk_safetensors_writer **writer_out);

/* Write `bytes` of tensor `index` from byte `offset` of it on. Each byte is to be written once.
 *                                                                                       [local] */
yk_status yk_safetensors_write(yk_safetensors_writer *writer, int64_t index, int64_t offset,
                               const void *data, int64_t bytes);

/* Bring all to the disk, give the files their names and remove those of another sharding that they
 * replace; takes the writer.                                                            [local]
 *
 * On failure before the first file has its name, what was there is untouched and nothing is left
 * behind. One file replaces another at once; to replace several at once, write into a new directory
 * and rename that.
 */
yk_status yk_safetensors_writer_commit(yk_safetensors_writer *writer);

/* Remove what was written; takes the writer. NULL does nothing. */
void yk_safetensors_writer_abort(yk_safetensors_writer *writer);

#endif
