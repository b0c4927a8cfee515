/* runtime/base/config_keys.c - every key of a configuration, once.
 *
 * A row's name and its place in yk_config are made from one word, so they cannot part; its type is
 * checked against the member's by the compiler. Ranges keep out what can only be a slip of the pen
 * and what would overflow later; whether a value is wise is left to its user.
 */
#include "runtime/base/config_keys.h"

#define MEMBER(path) ((yk_config *)0)->path
#define PLACE(path)  .name = #path, .offset = offsetof(yk_config, path), .size = sizeof MEMBER(path)

/* The first initialisers of a row: its name, place and type. */
#define INT(path)     PLACE(path), .type = _Generic(MEMBER(path), int64_t : YK_KEY_INT)
#define BYTES(path)   PLACE(path), .type = _Generic(MEMBER(path), int64_t : YK_KEY_BYTES)
#define REAL(path)    PLACE(path), .type = _Generic(MEMBER(path), double : YK_KEY_REAL)
#define BOOL(path)    PLACE(path), .type = _Generic(MEMBER(path), bool : YK_KEY_BOOL)
#define TERNARY(path) PLACE(path), .type = _Generic(MEMBER(path), int : YK_KEY_TERNARY)
#define STRING(path)  PLACE(path), .type = _Generic(MEMBER(path), char * : YK_KEY_STRING)
#define LIST(path)    PLACE(path), .type = _Generic(MEMBER(path), yk_string_list : YK_KEY_LIST)
#define ENUM(path)    PLACE(path), .type = YK_KEY_ENUM
#define DTYPE(path)   PLACE(path), .type = YK_KEY_DTYPE
#define SET(path)     PLACE(path), .type = _Generic(MEMBER(path), int : YK_KEY_SET)

#define COUNT_MAX 1000000000 /* of steps and the like */
#define IDS_MAX   INT32_MAX  /* of tokens, which are int32 */

static const yk_choice data_formats[] = {
    {"auto", YK_DATA_AUTO}, {"text", YK_DATA_TEXT},         {"llmc", YK_DATA_LLMC},
    {"raw", YK_DATA_RAW},   {"megatron", YK_DATA_MEGATRON}, {NULL, 0},
};
static const yk_choice token_dtypes[] = {
    {"uint16", YK_TOKEN_U16},
    {"uint32", YK_TOKEN_U32},
    {NULL, 0},
};
static const yk_choice schedule_kinds[] = {
    {"constant", YK_SCHEDULE_CONSTANT},
    {"cosine", YK_SCHEDULE_COSINE},
    {"linear", YK_SCHEDULE_LINEAR},
    {"wsd", YK_SCHEDULE_WSD},
    {NULL, 0},
};
static const yk_choice compute_dtypes[] = {
    {"fp32", YK_F32},
    {"bf16", YK_BF16},
    {"fp16", YK_F16},
    {NULL, 0},
};
static const yk_choice grad_dtypes[] = {
    {"auto", YK_AUTO}, {"fp32", YK_F32}, {"bf16", YK_BF16}, {"fp16", YK_F16}, {NULL, 0},
};
static const yk_choice state_dtypes[] = {
    {"fp32", YK_F32},
    {"bf16", YK_BF16},
    {NULL, 0},
};
static const yk_choice offloads[] = {
    {"master", YK_OFFLOAD_MASTER},
    {"moments", YK_OFFLOAD_MOMENTS},
    {"grads", YK_OFFLOAD_GRADS},
    {"params", YK_OFFLOAD_PARAMS},
    {"inputs", YK_OFFLOAD_INPUTS},
    {"auto", YK_OFFLOAD_AUTO},
    {NULL, 0},
};
static const yk_choice recomputes[] = {
    {"auto", YK_RECOMPUTE_AUTO},
    {"none", YK_RECOMPUTE_NONE},
    {"cheap", YK_RECOMPUTE_CHEAP},
    {"ffn", YK_RECOMPUTE_FFN},
    {"qkv", YK_RECOMPUTE_QKV},
    {"block", YK_RECOMPUTE_BLOCK},
    {NULL, 0},
};
static const yk_choice shards[] = {
    {"world", YK_SHARD_WORLD},
    {"node", YK_SHARD_NODE},
    {"auto", YK_SHARD_AUTO},
    {NULL, 0},
};
static const yk_choice comm_backends[] = {
    {"auto", YK_COMM_AUTO},
    {"mpi", YK_COMM_MPI},
    {"nccl", YK_COMM_NCCL},
    {"hostmem", YK_COMM_HOSTMEM},
    {NULL, 0},
};
static const yk_choice reductions[] = {
    {"exact", YK_REDUCE_EXACT},
    {"ring", YK_REDUCE_RING},
    {NULL, 0},
};
static const yk_choice reduce_times[] = {
    {"auto", YK_REDUCE_AUTO},
    {"step", YK_REDUCE_STEP},
    {"micro", YK_REDUCE_MICRO},
    {NULL, 0},
};
static const yk_choice shelves[] = {
    {"auto", YK_SHELF_AUTO},
    {"on", YK_SHELF_ON},
    {"off", YK_SHELF_OFF},
    {NULL, 0},
};
static const yk_choice graphs[] = {
    {"auto", YK_GRAPHS_AUTO},
    {"on", YK_GRAPHS_ON},
    {"off", YK_GRAPHS_OFF},
    {NULL, 0},
};
static const yk_choice attention_providers[] = {
    {"auto", YK_ATTENTION_CHOICE_AUTO},
    {"cudnn", YK_ATTENTION_CHOICE_CUDNN},
    {"own", YK_ATTENTION_CHOICE_OWN},
    {NULL, 0},
};
static const yk_choice tunes[] = {
    {"off", YK_TUNE_CHOICE_OFF},
    {"cached", YK_TUNE_CHOICE_CACHED},
    {"full", YK_TUNE_CHOICE_FULL},
    {NULL, 0},
};
static const yk_choice devices[] = {
    {"auto", YK_DEVICE_CHOICE_AUTO},
    {"cpu", YK_DEVICE_CHOICE_CPU},
    {"cuda", YK_DEVICE_CHOICE_CUDA},
    {NULL, 0},
};

const yk_config_key yk_config_keys[] = {
    {STRING(run.dir), .initial = "", .also = "out_dir output_dir save_dir",
     .text =
         "The folder that the run writes. Unset: runs/ and the configuration file's name without "
         "its ending."},

    {STRING(model.preset), .initial = "", .also = "name model_name model_type",
     .text =
         "A known model, such as gpt2-124m, llama3-8b or qwen2.5-0.5b, with random weights. Single "
         "keys below change its shape."},
    {STRING(model.init), .initial = "",
     .also = "init_from model_name_or_path pretrained resume resume_from_checkpoint",
     .text =
         "A Hugging Face directory (config.json, safetensors), or the folder of a run, to start "
         "from. Unset: random weights."},
    {STRING(model.family), .initial = "", .also = "arch architecture",
     .text = "gpt2, llama or qwen2, for a model of one's own shape. Unset: the preset's."},
    {INT(model.layers), .initial = "0", .min = 0, .max = 4096,
     .also = "n_layer num_hidden_layers num_layers depth", .text = "Blocks. 0: the preset's."},
    {INT(model.width), .initial = "0", .min = 0, .max = 1 << 20,
     .also = "n_embd hidden_size d_model dim",
     .text = "Size of a token's vector between blocks. 0: the preset's."},
    {INT(model.heads), .initial = "0", .min = 0, .max = 1 << 16,
     .also = "n_head num_attention_heads num_heads",
     .text = "Attention heads of a block. 0: the preset's."},
    {INT(model.kv_heads), .initial = "0", .min = 0, .max = 1 << 16,
     .also = "num_key_value_heads n_kv_head num_query_groups",
     .text =
         "Key and value heads; divides model.heads. 0: the preset's, or as many as model.heads."},
    {INT(model.head_size), .initial = "0", .min = 0, .max = 1024, .also = "head_dim kv_channels",
     .text = "Size of a head's vectors. 0: the preset's, or model.width / model.heads."},
    {INT(model.ffn), .initial = "0", .min = 0, .max = 1 << 22,
     .also = "n_inner intermediate_size ffn_hidden_size hidden_dim",
     .text = "Inner width of the feed-forward layer. 0: the preset's, or what is usual for "
             "model.width."},
    {INT(model.vocab), .initial = "0", .unit = "tokens", .min = 0, .max = 1 << 24,
     .also = "vocab_size padded_vocab_size",
     .text = "Token ids that exist: 0 to model.vocab - 1. Bytes need 256. 0: the preset's."},
    {INT(model.max_seq_len), .initial = "0", .unit = "tokens", .min = 0, .max = 1 << 24,
     .also = "n_ctx n_positions max_position_embeddings",
     .text = "Longest sequence that the model can take. 0: the preset's, or train.seq_len."},
    {REAL(model.norm_eps), .initial = "0", .low = 0, .high = 1, .below_high = true,
     .also = "layer_norm_epsilon rms_norm_eps layernorm_epsilon",
     .text = "Added to the variance or mean square in a norm. 0: the preset's or family's."},
    {REAL(model.rope_theta), .initial = "0", .low = 0, .high = 1e12, .below_high = true,
     .also = "rotary_base rope_base",
     .text =
         "Base of the rotary position's frequencies; not for gpt2. 0: the preset's or family's."},
    {TERNARY(model.tied), .initial = "auto", .also = "tie_word_embeddings tie_embeddings",
     .text =
         "Whether the head uses the embedding's matrix. auto: as the preset has it, else true."},

    {LIST(data.train), .initial = "", .also = "dataset train_file train_files data_path input",
     .text = "Files to train on: paths or globs. Needed to train."},
    {LIST(data.val), .initial = "", .also = "valid validation val_file validation_file",
     .text = "Files to validate on: paths or globs. Unset: the end of data.train, by "
             "data.val_fraction."},
    {REAL(data.val_fraction), .initial = "0.05", .low = 0, .high = 1, .below_high = true,
     .also = "validation_split val_split",
     .text =
         "Part of data.train, at its end, kept for validation when data.val is unset. 0: none."},
    {ENUM(data.format), .initial = "auto", .choices = data_formats,
     .text =
         "text: plain text, as bytes or through data.tokenizer. llmc: shards with llm.c's header. "
         "raw: token ids alone, of type data.dtype (nanoGPT). megatron: .bin with .idx beside it. "
         "auto: by the file's first bytes, then by its name."},
    {ENUM(data.dtype), .initial = "uint16", .choices = token_dtypes, .also = "token_dtype",
     .text = "Type of the ids in raw files, little-endian."},
    {STRING(data.tokenizer), .initial = "", .also = "tokenizer_name tokenizer_path",
     .text = "A tokenizer.json for text files. Unset: that of model.init, if it has one, else each "
             "byte is a token."},
    {INT(data.doc_token), .initial = "-1", .min = -1, .max = IDS_MAX - 1,
     .also = "eos_token_id eot_token eod_token bos_token_id",
     .text = "Id of the token that stands between documents. -1: there is none."},
    {BOOL(data.doc_mask), .initial = "false", .also = "reset_attention_mask intra_document_mask",
     .text = "Whether attention stays inside a document."},
    {LIST(data.loss_mask), .initial = "", .also = "label_mask eod_mask_loss",
     .text =
         "Files of one byte a token, one for each file of data.train: 0 leaves the token out of "
         "the loss. Unset: every token counts."},

    {INT(train.batch), .initial = "32", .unit = "sequences", .min = 1, .max = 1000000,
     .also = "batch_size global_batch_size train_batch_size",
     .text =
         "Sequences of one step, over all ranks and micro-batches. Gradients are accumulated over "
         "batch / (ranks x micro_batch) micro-batches, which must be whole."},
    {INT(train.micro_batch), .initial = "auto", .unit = "sequences", .min = 1, .max = 1000000,
     .may_be_auto = true, .also = "micro_batch_size per_device_train_batch_size device_batch_size",
     .text = "Sequences that a rank computes at a time. auto: the fastest that fit and divide "
             "train.batch."},
    {INT(train.seq_len), .initial = "1024", .unit = "tokens", .min = 1, .max = 1 << 24,
     .also = "block_size sequence_length context_length seq_length max_length",
     .text = "Length of a sequence; at most what the model can take."},
    {INT(train.steps), .initial = "1000", .unit = "steps", .min = 1, .max = COUNT_MAX,
     .also = "max_steps max_iters train_iters num_iterations",
     .text = "Optimiser steps of the run; a skipped one counts."},
    {INT(train.seed), .initial = "1337", .min = 0, .max = INT64_MAX, .also = "random_seed",
     .text = "Initial weights, sample order and rounding follow from it."},

    {REAL(optim.lr), .initial = "3e-4", .low = 0, .high = 100, .also = "learning_rate max_lr",
     .text = "Learning rate after warm-up: the schedule's highest."},
    {REAL(optim.weight_decay), .initial = "0.1", .low = 0, .high = 100, .also = "wd",
     .text = "AdamW's decoupled decay, a part of the weight per unit of learning rate; of matrices "
             "alone."},
    {REAL(optim.beta1), .initial = "0.9", .low = 0, .high = 1, .below_high = true,
     .also = "adam_beta1 betas momentum", .text = "Decay of the mean of gradients."},
    {REAL(optim.beta2), .initial = "0.95", .low = 0, .high = 1, .below_high = true,
     .also = "adam_beta2", .text = "Decay of the mean of squared gradients."},
    {REAL(optim.eps), .initial = "1e-8", .low = 1e-30, .high = 1,
     .also = "adam_epsilon adam_eps epsilon",
     .text = "Added to the root of the squared gradients' mean."},
    {REAL(optim.clip), .initial = "1", .low = 0, .high = 1e30,
     .also = "grad_clip max_grad_norm clip_grad gradient_clipping",
     .text =
         "Greatest norm of the whole gradient; a longer one is scaled down to it. 0: no clipping."},

    {ENUM(schedule.kind), .initial = "cosine", .choices = schedule_kinds,
     .also = "lr_scheduler_type scheduler lr_decay_style",
     .text =
         "How the learning rate goes down after warm-up. constant: not at all. cosine, linear: to "
         "schedule.final over the rest of the run. wsd: constant, then linear to schedule.final in "
         "the last part, schedule.decay."},
    {INT(schedule.warmup), .initial = "0", .unit = "steps", .min = 0, .max = COUNT_MAX,
     .also = "warmup_steps warmup_iters lr_warmup_iters num_warmup_steps",
     .text = "Steps over which the learning rate rises from 0 in a line; at most train.steps."},
    {REAL(schedule.decay), .initial = "0.2", .unit = "fraction of train.steps", .low = 0, .high = 1,
     .also = "lr_decay_iters decay_steps",
     .text = "wsd alone: the last part of the run, in which the learning rate goes down."},
    {REAL(schedule.final), .initial = "0.1", .unit = "fraction of optim.lr", .low = 0, .high = 1,
     .also = "min_lr final_lr min_lr_ratio", .text = "The learning rate at the end of the run."},

    {DTYPE(precision.compute), .initial = "fp32", .choices = compute_dtypes,
     .also = "dtype mixed_precision torch_dtype",
     .text = "Type of the weights and activations in computing; sums, norms, softmax and loss are "
             "fp32. fp16 turns loss scaling on."},
    {DTYPE(precision.grads), .initial = "auto", .choices = grad_dtypes, .also = "grad_dtype",
     .text = "Type that gradients are kept and accumulated in. auto: that of precision.compute."},
    {DTYPE(precision.master), .initial = "fp32", .choices = state_dtypes, .also = "master_dtype",
     .text =
         "Type of the weights that the optimiser keeps. bf16: each update is rounded up or down "
         "by chance, so that the mean is right; where precision.compute is bf16 too, these are "
         "the weights that the model reads, and there is no second copy."},
    {DTYPE(precision.moments), .initial = "fp32", .choices = state_dtypes,
     .also = "optimizer_dtype adam_dtype optim_states_dtype",
     .text = "Type of AdamW's two moments. bf16: rounded by chance likewise."},
    {BOOL(precision.tf32), .initial = "false", .also = "allow_tf32",
     .text =
         "fp32 on a GPU alone: matrix products round their operands to TF32, 10 bits of fraction, "
         "and are several times as fast."},
    {REAL(precision.loss_scale.start), .initial = "65536", .low = 1e-6, .high = 1e12,
     .also = "init_scale initial_scale_power initial_loss_scale",
     .text = "fp16 alone: the loss is multiplied by it at first; a power of 2 keeps every bit."},
    {REAL(precision.loss_scale.floor), .initial = "1", .low = 1e-6, .high = 1e12,
     .also = "min_loss_scale min_scale", .text = "Halving on overflow stops here."},
    {REAL(precision.loss_scale.ceiling), .initial = "16777216", .low = 1e-6, .high = 1e12,
     .also = "max_loss_scale max_scale", .text = "Doubling stops here."},
    {INT(precision.loss_scale.growth_interval), .initial = "2000", .unit = "steps", .min = 1,
     .max = COUNT_MAX, .also = "loss_scale_window scale_window",
     .text = "Steps without overflow after which the loss scale doubles."},

    {BOOL(numerics.deterministic), .initial = "true",
     .also = "deterministic use_deterministic_algorithms deterministic_mode",
     .text = "Whether equal runs on equal machines have equal bits. false lets cuDNN add up the "
             "gradient of attention in no fixed order, which is some 10 % of attention faster."},

    {ENUM(attention.provider), .initial = "auto", .choices = attention_providers,
     .also = "attn_implementation use_flash_attention flash_attention",
     .text = "Whose attention kernels a GPU uses. cudnn: cuDNN's where it serves the shape; data "
             "with doc_mask and fp32 take our own. own: our own. auto: for heads of 64 to 128 and "
             "sequences of 512 and more, whichever tune finds faster; where nothing is timed, "
             "cuDNN's on sm_90 and our own elsewhere."},

    {INT(parallel.zero), .initial = "1", .min = 0, .max = 3, .may_be_auto = true,
     .also = "zero_stage stage",
     .text = "ZeRO stage: what ranks share out instead of each keeping it. 0: nothing. 1: master "
             "weights and moments. 2: also gradients. 3: also parameters. auto: the fastest that "
             "fits. It changes no result, for one choice of comm.reduce_every."},
    {ENUM(parallel.shard), .initial = "world", .choices = shards,
     .also = "hybrid_shard sharding_strategy",
     .text = "Who shares out. world: all ranks. node: the ranks of a node, and nodes keep the "
             "same, so that parameters travel inside nodes alone. auto: the faster that fits. It "
             "changes no result."},

    {ENUM(comm.backend), .initial = "auto", .choices = comm_backends,
     .also = "ddp_backend distributed_backend",
     .text =
         "What carries collectives. mpi: Open MPI, from host memory, for processors. nccl: NCCL, "
         "for GPUs. hostmem: copies to and from host memory that the ranks of a node share, for "
         "GPUs without peer-to-peer and for several ranks on one; between nodes one of the other "
         "two. auto: mpi on processors, hostmem where ranks share a GPU, nccl on GPUs that reach "
         "each other, and on others the faster of the two when the run starts."},
    {ENUM(comm.gathers), .initial = "auto", .choices = comm_backends,
     .text = "What carries gathers of parameters, where another than comm.backend is faster there. "
             "auto: what carries sums; on GPUs that let backends race, the faster for its kind."},
    {DTYPE(comm.wire), .initial = "auto", .choices = grad_dtypes,
     .also = "fp16_compress communication_data_type",
     .text = "What gradients travel as between ranks. auto: as precision.grads. fp16 has a scale "
             "that ranks agree on, so that nothing finite becomes infinite."},
    {ENUM(comm.reduce), .initial = "exact", .choices = reductions,
     .text = "How gradients are summed over ranks. exact: in fp32 in one order, the same bits in "
             "every stage. ring: as the library adds, in the wire's type."},
    {ENUM(comm.reduce_every), .initial = "auto", .choices = reduce_times,
     .text = "When gradients are summed over ranks. step: once, after the last micro-batch. micro: "
             "at each micro-batch, so that whole gradients are never kept. auto: step in stages 0 "
             "and 1, micro in 2 and 3."},
    {ENUM(comm.shelf), .initial = "auto", .choices = shelves, .also = "offload_param shared_memory",
     .text =
         "With comm.backend: hostmem, whether parameters that are gathered (parallel.zero: 3, "
         "memory.offload: params) lie in host memory that the ranks of a node share: each rank "
         "puts its part there once an update, and all read it from there, as often as they need "
         "it. It takes host memory for the parameters, once a node. auto: where they are "
         "offloaded, and lie there anyway. It changes no result."},
    {INT(comm.network), .initial = "auto", .unit = "Gbit/s", .min = 1, .max = 100000,
     .may_be_auto = true, .also = "network_bandwidth",
     .text = "The nominal rate of a node's network to other nodes, each way, as a plan takes it. "
             "auto: what the InfiniBand ports or the network interface of the slowest node tell, "
             "else 10. It touches only what is auto."},
    {REAL(comm.timeout), .initial = "60", .unit = "seconds", .low = 1, .high = 86400,
     .also = "nccl_timeout ddp_timeout",
     .text = "A rank that is not heard of for so long ends the run."},

    {INT(launch.ranks_per_gpu), .initial = "1", .unit = "ranks", .min = 1, .max = 16,
     .also = "processes_per_gpu",
     .text =
         "Ranks that may share a GPU, each with its part of the memory. More than one is for "
         "trying out several ranks where there are fewer GPUs; collectives go by hostmem then."},

    {ENUM(memory.recompute), .initial = "auto", .choices = recomputes,
     .also = "gradient_checkpointing activation_checkpointing recompute_granularity",
     .text =
         "What the backward pass computes again instead of keeping it, each with what stands "
         "before it. none: nothing. cheap: norms and activation functions. ffn: the first product "
         "of the feed-forward. qkv: queries, keys and values. block: attention and its product, so "
         "all of a block but its last product. auto: the least that fits. It changes no result."},
    {INT(memory.recompute_blocks), .initial = "auto", .unit = "blocks", .min = 0, .max = 4096,
     .may_be_auto = true, .also = "recompute_num_layers",
     .text = "The first so many blocks are under memory.recompute, and those after them one step "
             "less. auto: all of them, or what memory.recompute: auto chooses."},
    {INT(memory.kept_blocks), .initial = "auto", .unit = "blocks", .min = 0, .max = 4096,
     .may_be_auto = true, .also = "reshard_after_forward",
     .text =
         "Where parameters are gathered or come from the host (parallel.zero: 3, "
         "memory.offload: params), so many blocks beside two keep theirs on the device from the "
         "forward to the backward pass. auto: on GPUs that train together as many as fit, "
         "elsewhere none. It changes no result."},
    {INT(memory.head_chunk), .initial = "auto", .unit = "tokens", .min = 1, .max = 1 << 24,
     .may_be_auto = true, .also = "loss_chunk_size",
     .text = "Tokens whose logits are in memory at a time. auto: on a GPU as the plan finds it "
             "fastest, 16384 at the most; on processors what 32 MiB hold. A number under "
             "256 cuts a micro-batch into 4096 chunks at the most."},
    {BYTES(memory.device_limit), .initial = "0", .min = 0, .max = INT64_C(1) << 46,
     .also = "max_memory gpu_memory_limit",
     .text = "Use no more of the device's memory than this. 0: all of a GPU's; on processors what "
             "is available when a run starts, less a part for the system."},
    {BYTES(memory.host_limit), .initial = "0", .min = 0, .max = INT64_C(1) << 46,
     .also = "cpu_memory_limit max_cpu_memory",
     .text =
         "Pin no more of a machine's memory than this, all of its ranks together. 0: what can be "
         "had."},
    {SET(memory.offload), .initial = "", .choices = offloads,
     .also = "cpu_offload offload_optimizer offload_param zero_offload",
     .text =
         "What is kept in pinned host memory and comes to the device when it is needed. master: "
         "master weights, where they are not what the model reads. moments: AdamW's. grads: "
         "gradients. params: what the model reads. inputs: the blocks' inputs, kept for the "
         "backward pass. auto, alone: what is fastest and fits. It changes no result."},

    {INT(checkpoint.every), .initial = "1000", .unit = "steps", .min = 0, .max = COUNT_MAX,
     .also = "save_steps save_interval save_every",
     .text = "Steps between savings. 0: at the end alone."},

    {INT(guard.max_skips), .initial = "50", .unit = "steps", .min = 1, .max = COUNT_MAX,
     .also = "max_skipped_steps",
     .text =
         "That many steps skipped in a row, because gradients were infinite or NaN, end the run. "
         "From 65536, fp16 needs 16 to come down to a loss scale of 1."},

    {INT(eval.every), .initial = "0", .unit = "steps", .min = 0, .max = COUNT_MAX,
     .also = "eval_steps eval_interval val_interval",
     .text = "Steps between evaluations of the validation loss. 0: at the end alone."},
    {INT(eval.batches), .initial = "0", .unit = "micro-batches", .min = 0, .max = COUNT_MAX,
     .also = "eval_iters eval_batches",
     .text = "Micro-batches of an evaluation. 0: the whole validation data, once."},

    {INT(sample.every), .initial = "0", .unit = "steps", .min = 0, .max = COUNT_MAX,
     .also = "sample_every generate_every",
     .text = "Steps between samples of what the model writes. 0: never."},
    {STRING(sample.prompt), .initial = "", .also = "start", .text = "What a sample goes on from."},
    {INT(sample.tokens), .initial = "128", .unit = "tokens", .min = 1, .max = 1 << 20,
     .also = "max_new_tokens max_tokens genT", .text = "Length of a sample."},

    {INT(log.every), .initial = "10", .unit = "steps", .min = 1, .max = COUNT_MAX,
     .also = "logging_steps log_interval",
     .text = "Steps between lines of progress where there is no terminal. metrics.jsonl has every "
             "step."},

    {INT(debug.check_replicas), .initial = "0", .unit = "steps", .min = 0, .max = COUNT_MAX,
     .text = "Steps between comparisons of the weights that several ranks keep, bit by bit; a rank "
             "that "
             "differs is named and ends the run. 0: never."},

    {INT(cpu.threads), .initial = "0", .unit = "threads", .min = 0, .max = 1024,
     .also = "num_threads n_threads omp_num_threads",
     .text = "Threads that compute; their number changes no result. 0: one for each core that the "
             "process may use."},
    {BOOL(cpu.amx), .initial = "true",
     .text =
         "Make matrix products on the processor's units for them (Intel AMX), where it has any. "
         "fp32 products are made of bf16 ones without loss, but their bits differ from those of "
         "a processor without."},

    {ENUM(cuda.graphs), .initial = "auto", .choices = graphs, .also = "cuda_graphs use_cuda_graph",
     .text = "Whether each block's forward and backward pass is launched as one CUDA graph, which "
             "spares the host's time. auto, on: where there is a GPU. It changes no result."},

    {LIST(trace.steps), .initial = "", .also = "profile_steps profile",
     .text = "Steps of which trace.json shows every operation and communication with its time, for "
             "Perfetto: numbers and ranges, such as 20, 30-32. Such a step takes longer. Unset: "
             "none."},

    {ENUM(tune), .initial = "cached", .choices = tunes, .also = "autotune tuning benchmark",
     .text =
         "Which of cuBLASLt's algorithms a GPU's matrix products take. off: the first that it "
         "names. cached: what an earlier run on such a GPU, driver and library found fastest; a "
         "shape that none has met is timed and kept in ~/.cache/yoke: at its first use, and where "
         "there are several ranks by the first with each kind of card, before the first step. "
         "full: likewise, every shape anew. Ranks with one kind of card choose alike."},
    {ENUM(device), .initial = "auto", .choices = devices,
     .text = "Where to compute. auto: on a GPU if there is one, else on the processors."},
};

const int yk_config_n_keys = (int)(sizeof yk_config_keys / sizeof yk_config_keys[0]);
