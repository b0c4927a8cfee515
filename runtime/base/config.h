/* runtime/base/config.h - the description of a run: every key, once.
 *
 * Model.    yk_config is a plain struct. The table in config_keys.c holds each key's name, type,
 *           unit, default, range, text and place in the struct; parsing, `--set`, `yoke config`,
 *           the documentation page and the error messages all come from it.
 * Order.    yk_config_init() sets the defaults, yk_config_read() and yk_config_set() overwrite,
 *           yk_config_check() looks at the whole.
 * Strings.  Owned by the configuration, UTF-8; an unset string is "" and never NULL.
 * Failure.  The configuration stays valid; of a text, what stands before the failure is set.
 */
#ifndef YK_RUNTIME_BASE_CONFIG_H
#define YK_RUNTIME_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

/* A list of strings; `items` and each item are owned. */
typedef struct yk_string_list {
    char **items;
    int n_items;
} yk_string_list;

/* Add a copy of `text` to the list's end.                                                [local] */
yk_status yk_string_list_append(yk_string_list *list, const char *text);

/* Release the items and make it empty. */
void yk_string_list_fini(yk_string_list *list);

/* Where an integer may be `auto`. */
#define YK_AUTO (-1)

typedef enum yk_schedule_kind {
    YK_SCHEDULE_CONSTANT,
    YK_SCHEDULE_COSINE,
    YK_SCHEDULE_LINEAR,
    YK_SCHEDULE_WSD, /* warm-up, stable, decay */
} yk_schedule_kind;

/* What a block's backward pass makes again; each makes again what those before it do, and keeps
 * less. */
typedef enum yk_recompute {
    YK_RECOMPUTE_AUTO = YK_AUTO, /* the plan chooses; a plan's own choice is never this */
    YK_RECOMPUTE_NONE = 0,       /* nothing: keep every activation */
    YK_RECOMPUTE_CHEAP,          /* norms and activation functions */
    YK_RECOMPUTE_FFN,            /* the feed-forward's first product */
    YK_RECOMPUTE_QKV,            /* queries, keys and values */
    YK_RECOMPUTE_BLOCK, /* attention and its product: all of a block but its last product */
} yk_recompute;

/* What is kept in pinned host memory: bits. */
typedef enum yk_offload {
    YK_OFFLOAD_AUTO = YK_AUTO, /* the plan chooses; alone */
    YK_OFFLOAD_MASTER = 1,
    YK_OFFLOAD_MOMENTS = 2,
    YK_OFFLOAD_GRADS = 4,
    YK_OFFLOAD_PARAMS = 8,
    YK_OFFLOAD_INPUTS = 16, /* of blocks, kept for the backward pass */
} yk_offload;

typedef enum yk_shard_choice {
    YK_SHARD_WORLD, /* over all ranks */
    YK_SHARD_NODE,  /* over the ranks of a node; nodes hold the same */
    YK_SHARD_AUTO,  /* the plan chooses; a plan's own choice is never this */
} yk_shard_choice;

typedef enum yk_reduce_choice {
    YK_REDUCE_EXACT, /* one fixed order, in fp32 */
    YK_REDUCE_RING,  /* as the library adds, in the wire format */
} yk_reduce_choice;

typedef enum yk_reduce_every {
    YK_REDUCE_AUTO,  /* step in stages 0 and 1, micro in stages 2 and 3 */
    YK_REDUCE_STEP,  /* gradients are summed over ranks once a step */
    YK_REDUCE_MICRO, /* at each micro-batch */
} yk_reduce_every;

typedef enum yk_comm_choice {
    YK_COMM_AUTO, /* mpi on processors; hostmem where ranks share a GPU; else nccl, or the faster */
    YK_COMM_MPI,  /* from host memory */
    YK_COMM_NCCL, /* from GPU to GPU */
    YK_COMM_HOSTMEM, /* by copy engines through host memory that a node's ranks share */
} yk_comm_choice;

typedef enum yk_shelf_choice {
    YK_SHELF_AUTO, /* for parameters that are offloaded */
    YK_SHELF_ON,
    YK_SHELF_OFF,
} yk_shelf_choice;

typedef enum yk_graphs_choice {
    YK_GRAPHS_AUTO, /* where the device has them */
    YK_GRAPHS_ON,   /* the same */
    YK_GRAPHS_OFF,
} yk_graphs_choice;

typedef enum yk_attention_choice {
    YK_ATTENTION_CHOICE_AUTO, /* whichever is known to be faster */
    YK_ATTENTION_CHOICE_CUDNN,
    YK_ATTENTION_CHOICE_OWN,
} yk_attention_choice;

typedef enum yk_tune_choice {
    YK_TUNE_CHOICE_OFF,    /* the library's first choice */
    YK_TUNE_CHOICE_CACHED, /* what an earlier run found; a lone rank times what none has */
    YK_TUNE_CHOICE_FULL,   /* everything is timed anew */
} yk_tune_choice;

typedef enum yk_device_choice {
    YK_DEVICE_CHOICE_AUTO, /* cuda where there is a GPU, else cpu */
    YK_DEVICE_CHOICE_CPU,
    YK_DEVICE_CHOICE_CUDA,
} yk_device_choice;

typedef enum yk_data_format {
    YK_DATA_AUTO,     /* by magic number or an .idx beside; another .bin is an error; else text */
    YK_DATA_TEXT,     /* plain text: bytes, or through data.tokenizer */
    YK_DATA_LLMC,     /* llm.c shards */
    YK_DATA_RAW,      /* headerless token ids of type data.dtype (nanoGPT) */
    YK_DATA_MEGATRON, /* .bin and .idx */
} yk_data_format;

typedef enum yk_token_dtype {
    YK_TOKEN_U16,
    YK_TOKEN_U32,
} yk_token_dtype;

typedef struct yk_config {
    struct {
        char *dir; /* "" : runs/<name of the configuration file> */
    } run;
    struct {
        char *preset; /* "" : none */
        char *init;   /* "" : random weights; else a Hugging Face directory */
        char *family; /* "gpt2", "llama", "qwen2"; "" : from the preset */
        int64_t layers, width, heads, kv_heads, head_size, ffn, vocab,
            max_seq_len;             /* 0: from the preset */
        double norm_eps, rope_theta; /* 0: from the preset */
        int tied; /* head shares the embedding: 0, 1, or YK_AUTO: from the preset or family */
    } model;
    struct {
        yk_string_list train, val; /* paths and globs */
        double val_fraction;       /* of train, from its end, when val is empty */
        yk_data_format format;
        yk_token_dtype dtype;     /* of raw files */
        char *tokenizer;          /* "" : bytes */
        int64_t doc_token;        /* id that ends a document, or -1 */
        bool doc_mask;            /* attention stays inside a document */
        yk_string_list loss_mask; /* files of one byte a token beside train: 0 masks the loss */
    } data;
    struct {
        int64_t batch;       /* sequences a step, over all ranks and micro-batches */
        int64_t micro_batch; /* sequences a rank computes at a time, or YK_AUTO */
        int64_t seq_len;
        int64_t steps;
        int64_t seed;
    } train;
    struct {
        double lr, weight_decay, beta1, beta2, eps, clip;
    } optim;
    struct {
        yk_schedule_kind kind;
        int64_t warmup; /* steps */
        double decay;   /* wsd: the last part of the run that decays, as a fraction of the steps */
        double final;   /* the last learning rate as a fraction of optim.lr */
    } schedule;
    struct {
        yk_dtype compute;
        int grads;                /* yk_dtype, or YK_AUTO: as compute, fp32 for fp32 */
        yk_dtype master, moments; /* fp32 or bf16 */
        bool tf32;                /* fp32 products on a GPU may round their operands to TF32 */
        struct {
            double start, floor, ceiling;
            int64_t growth_interval;
        } loss_scale;
    } precision;
    struct {
        bool deterministic; /* equal runs have equal bits */
    } numerics;
    struct {
        yk_attention_choice provider; /* on a GPU */
    } attention;
    struct {
        int64_t
            zero; /* ZeRO stage: 0 replicates, 1 shards states, 2 also gradients, 3 also parameters */
        yk_shard_choice shard;
    } parallel;
    struct {
        yk_comm_choice backend;
        yk_comm_choice gathers;
        int wire; /* what gradients travel as: yk_dtype, or YK_AUTO: as precision.grads */
        yk_reduce_choice reduce;
        yk_reduce_every reduce_every;
        yk_shelf_choice shelf; /* parameters are gathered from host memory that a node shares */
        int64_t network; /* Gbit/s of a node to others, for the plan; YK_AUTO: as devices tell */
        double timeout;  /* seconds without a word from a rank that end the run */
    } comm;
    struct {
        int64_t ranks_per_gpu; /* ranks that may share a GPU */
    } launch;
    struct {
        yk_recompute recompute;
        int64_t recompute_blocks; /* the first so many blocks are under `recompute`, the others
                                   * under the next weaker; YK_AUTO: all, or as the plan chooses */
        int64_t kept_blocks;  /* beside two, whose fetched parameters stay for the backward pass;
                                   * YK_AUTO: as the plan chooses, elsewhere none */
        int64_t head_chunk;   /* rows of logits at a time; YK_AUTO: as the plan chooses on a GPU */
        int64_t device_limit; /* bytes; 0: what the device has */
        int64_t host_limit;   /* bytes of a machine; 0: what can be had */
        int offload;          /* yk_offload, several together; 0: nothing */
    } memory;
    struct {
        int64_t every; /* steps between savings of the weights; 0: at the end alone */
    } checkpoint;
    struct {
        int64_t max_skips; /* skipped steps in a row that end the run */
    } guard;
    struct {
        int64_t every;   /* steps; 0: at the end alone */
        int64_t batches; /* micro-batches an evaluation; 0: the whole validation set, once */
    } eval;
    struct {
        int64_t every; /* steps; 0: never */
        char *prompt;
        int64_t tokens;
    } sample;
    struct {
        int64_t every;
    } log;
    struct {
        int64_t check_replicas; /* steps between comparisons of the ranks' weights; 0: never */
    } debug;
    struct {
        int64_t threads; /* 0: one for each core that this process may use */
        bool amx;        /* products on the processor's matrix units, where it has any */
    } cpu;
    struct {
        yk_graphs_choice graphs;
    } cuda;
    struct {
        yk_string_list steps; /* numbers and ranges of steps: "7", "10-12" */
    } trace;
    yk_tune_choice tune;
    yk_device_choice device;
} yk_config;

/* The longest configuration file: 1 MiB. */
#define YK_CONFIG_TEXT_MAX (1 << 20)

/* Set every key to its default.                                                         [local] */
yk_status yk_config_init(yk_config *config_out);

/* Release what the configuration owns. */
void yk_config_fini(yk_config *config);

/* Read the YAML text of a configuration file over `config`.                             [local]
 *
 * name  what messages call it: the path it was read from
 * text  (n) bytes of UTF-8, at most YK_CONFIG_TEXT_MAX; none at all is legal and sets nothing
 *
 * YK_EINVAL  not YAML or more of YAML than a configuration needs (anchors, tags, documents), an
 *            unknown key (the line and the nearest key are given), a value of the wrong type or out
 *            of range, a key given twice
 */
yk_status yk_config_read(yk_config *config, const char *name, const char *text, size_t n);

/* Set one key from "key=value", for `--set`; the last one counts.                         [local]
 *
 * A value that begins with [ or a quote is YAML; any other is taken as it stands and read by the
 * key's type, so that a glob or a path needs no second pair of quotes. An empty value unsets a
 * string or a list.
 *
 * YK_EINVAL  as yk_config_read(); the message names the argument
 */
yk_status yk_config_set(yk_config *config, const char *assignment);

/* Check what no single key can: that a model is named and that keys go together. What needs
 * files or the models' shapes is checked by those who read them.                         [local]
 *
 * YK_EINVAL  they are not or do not; the message names the key
 */
yk_status yk_config_check(const yk_config *config);

/* Does a configuration name the data that a run needs, and a plan does not?              [local]
 *
 * YK_EINVAL  it does not
 */
yk_status yk_config_check_data(const yk_config *config);

/* Does the batch divide over so many ranks, each with micro-batches of so many sequences? */
yk_status yk_config_check_ranks(const yk_config *config, int64_t n_ranks, int64_t micro_batch);

/* Is every item of a list of steps a number, a range as "30-32", or several with commas between?
 *
 * YK_EINVAL  one is not; the message names `key`
 */
yk_status yk_config_check_steps(const char *key, const yk_string_list *steps);

/* Does a list of steps that has been checked hold `step`? */
bool yk_config_has_step(const yk_string_list *steps, int64_t step);

/* Write every key with its value as YAML that yk_config_read() reads back as equal bits.
 *
 * YK_EIO  `out` is in error
 */
yk_status yk_config_write(const yk_config *config, FILE *out);

/* Print the table of keys, for people or as Markdown: all of them when `key` is NULL, else the key
 * or the section of that name. docs/configuration.md is the whole table as Markdown.
 *
 * YK_EINVAL  no such key; the nearest is named
 * YK_EIO     `out` is in error
 */
yk_status yk_config_print_keys(const char *key, bool markdown, FILE *out);

#endif
