#!/usr/bin/env bash
# tests/cli/test_train_refuses.sh - wrong input of `yoke train`: one line on stderr that says what and
# why, exit status 2, and not a file written.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

# refused TEXT [KEY=VALUE]...: `yoke train c.yaml` with these keys is refused in a line that says TEXT.
refused() {
    local text=$1 sets=() assignment
    shift
    for assignment; do sets+=(--set "$assignment"); done
    refused_command "$text" "$yoke" train c.yaml "${sets[@]}"
}

refused_command() {
    run "${@:2}"
    expect_refusal "$1"
    [ ! -e runs ] || fail "a run's folder was written"
}

# le WIDTH INT...: little-endian integers on stdout.
le() {
    local width=$1 v i
    shift
    for v; do
        for ((i = 0; i < width; i++)); do printf "\\x$(printf %02x $((v >> 8 * i & 255)))"; done
    done
}

# llmc MAGIC VERSION COUNT: the header of an llm.c shard.
llmc() {
    le 4 "$1" "$2" "$3"
    head -c 1012 /dev/zero
}

for ((i = 0; i < 800; i++)); do echo "the yoke of line $i is easy"; done >text.txt
cat >c.yaml <<'END'
model: {preset: tiny-gpt2}
data: {train: text.txt}
train: {batch: 4, seq_len: 32, steps: 3}
cpu: {threads: 1}
device: cpu
END

case_is "the configuration"
refused_command "absent.yaml: cannot open: No such file" "$yoke" train absent.yaml
refused_command "/dev/zero: is longer than 1048576 bytes; is it another file?" "$yoke" train /dev/zero
truncate -s 3G huge.yaml
refused_command "huge.yaml: is longer than 1048576 bytes" "$yoke" train huge.yaml
refused_command "the usage is" "$yoke" train
refused_command "c.yaml" "$yoke" train c.yaml c.yaml
printf 'train:\n  batch: 4\n  stepz: 3\n' >typo.yaml
refused_command 'typo.yaml:3: ' "$yoke" train typo.yaml
expect_text err '"train.stepz"'
expect_text err "the nearest is train.steps"
refused 'the nearest is optim.lr' optim.learning_rate=1
refused '"fast" is not a number' optim.lr=fast
refused '"0" is out of range' train.steps=0
refused 'there is no =' train.steps
refused "lower schedule.warmup, or raise train.steps" schedule.warmup=4
refused "the nearest that is: 8" train.batch=7 train.micro_batch=2
refused "there is no 'tiny-gtp2', the nearest is tiny-gpt2; choose among gpt2-124m" model.preset=tiny-gtp2
refused "; choose among gpt2-124m" model.preset=zzzzzzzz
refused "no model is given" model.preset=
refused "does not divide into 3 heads; change one, or give model.head_size" model.heads=3
refused "129 is more than the model's 128 positions" train.seq_len=129
refused "nothing that was tried would fit; raise memory.device_limit, or take" memory.device_limit=1MiB
refused "and 10 bytes may be used (memory.device_limit); " memory.device_limit=10
refused "where documents end" data.doc_mask=true
refused "999 is outside of the vocabulary" data.doc_token=999
refused "outside the vocabulary of 123" sample.every=1 sample.prompt='}' model.vocab=123

case_is "a device that is not there"
"$yoke" plan c.yaml --set device=cuda >/dev/null 2>&1 || refused "device cuda" device=cuda
[ -n "${YK_HAVE_CUDA-}" ] ||
    refused 'run make CMAKE_ARGS="-DYK_CUDA=ON", or set device to cpu' device=cuda

case_is "missing, empty, short and truncated data"
refused "no data is given" data.train=
refused "absent.txt: cannot open: No such file" data.train=absent.txt
refused "no file matches" 'data.train=absent*.txt'
: >empty.txt
refused "empty.txt: it is empty" data.train=empty.txt
refused "empty.txt: it is empty" data.val=empty.txt
printf 'too short' >short.txt
refused "9 tokens are too few for a window" data.train=short.txt data.val_fraction=0
refused "leaves nothing to validate on" data.train=short.txt train.seq_len=4
mkdir folder
refused "folder: cannot read: Is a directory" data.train=folder
refused "short.txt: has 9 bytes" data.loss_mask=short.txt
{ llmc 20240520 1 5 && le 2 7 8; } >truncated.bin
refused "states 5 tokens, that is 1034 bytes, but it has 1028" data.train=truncated.bin
llmc 20240520 1 2147483647 >large.bin
truncate -s 4294968317 large.bin # sparse, over 4 GiB and a byte short
refused "that is 4294968318 bytes, but it has 4294968317" data.train=large.bin
rm large.bin

case_is "a wrong magic number"
{ llmc 20240519 1 2 && le 2 7 8; } >magic.bin
refused "begins with magic number 20240519" data.train=magic.bin
refused "begins with magic number 20240519" data.train=magic.bin data.format=llmc
refused "text.txt.bin: cannot open" data.train=text.txt data.format=megatron
printf 'text with a \0 byte' >zero.txt
refused "neither text in UTF-8 nor a known format" data.train=zero.txt

case_is "token ids outside of the vocabulary, wherever they stand"
ids=$(printf '%.0s\\x07\\x01' {1..500}) # 500 times the id 263
{ llmc 20240520 1 500 && printf "$ids"; } >ids.bin
refused "token 0 is id 263, outside of the vocabulary of 256" data.train=ids.bin
{ llmc 20240520 1 4000 && head -c 6000 /dev/zero && printf "$ids" && head -c 1000 /dev/zero; } >ids.bin
refused "token 3000 is id 263, outside of the vocabulary of 256" data.train=ids.bin
refused "token 3000 is id 263" data.val=ids.bin
refused "outside of the vocabulary of 100" model.vocab=100
refused "its ids have 16 bits and cannot name a vocabulary of 70000" data.train=ids.bin model.vocab=70000
head -c 4001 /dev/zero >odd.bin
refused "no multiple of the 2 of an id" data.train=odd.bin data.format=raw

# ---- model.init ----------------------------------------------------------------------------------

"$yoke" train c.yaml --set run.dir=good --set train.steps=1 >/dev/null || fail "no model to damage"
"$yoke" train c.yaml --set run.dir=good-llama --set train.steps=1 --set model.preset=tiny-llama \
    >/dev/null || fail "no model to damage"
sed 's/preset: tiny-gpt2/init: bad/' c.yaml >init.yaml
mv c.yaml preset.yaml && mv init.yaml c.yaml

# fresh [RUN]: bad/ is the model of a good run.
fresh() {
    rm -rf bad
    cp -r "${1-good}/model" bad
    weights=${1-good}/model/model.safetensors
    header_bytes=$(od -An -tu8 -N8 "$weights" | tr -d ' ')
}

# edit_config SED: bad/ with another config.json.
edit_config() {
    fresh "${2-good}"
    sed -i "$1" bad/config.json
    ! cmp -s "${2-good}/model/config.json" bad/config.json || fail "'$1' changes nothing"
}

# edit_header SED: bad/ with another safetensors header, of any length, before the same data.
edit_header() {
    local header
    fresh "${2-good}"
    header=$(tail -c +9 "$weights" | head -c "$header_bytes" | sed "$1")
    {
        le 8 ${#header}
        printf %s "$header"
        tail -c +$((header_bytes + 9)) "$weights"
    } >bad/model.safetensors
    ! cmp -s "$weights" bad/model.safetensors || fail "'$1' changes nothing"
}

case_is "model.init without its files"
refused "bad/config.json: cannot open: No such file" model.init=bad
fresh && rm bad/config.json
refused "bad/config.json: cannot open: No such file"
fresh && rm bad/model.safetensors
refused "holds neither model.safetensors nor model.safetensors.index.json"
fresh && : >bad/config.json
refused "bad/config.json: is not valid JSON"

case_is "a config.json that is not offered or does not fit together"
edit_config 's/GPT2LMHeadModel/BertModel/'
refused "the architecture 'BertModel' is not offered; GPT2LMHeadModel,"
edit_config 's/"n_head": 2/"n_head": 3/'
refused "n_embd 64 does not divide into n_head 3 heads"
edit_config 's/: 2,/: -2,/'
refused "it must be 1 to"
edit_config '/n_layer/d'
refused "n_layer is missing"
edit_config 's/"n_positions": 128/"n_positions": 16/'
refused "32 is more than the model's 16 positions"
edit_config 's/"rope_scaling": null/"rope_scaling": {"rope_type": "yarn", "factor": 4.0}/' good-llama
refused "the RoPE scaling 'yarn' is not offered; default, linear and llama3 are"
edit_config 's/"n_layer": 2/"n_layer": 3/'
refused "tensor transformer.h.2.ln_1.weight is missing"

case_is "a head that is missing, and one that differs"
edit_config 's/"tie_word_embeddings": true/"tie_word_embeddings": false/'
refused "tensor lm_head.weight is missing, and the head is not tied"
edit_config 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' good-llama
run "$yoke" train c.yaml
expect_status 0
expect_text err "yoke: warning: bad: lm_head.weight differs from model.embed_tokens.weight"
[ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line"
rm -r runs

case_is "a safetensors file that is damaged"
fresh && : >bad/model.safetensors
refused "0 bytes are too few"
fresh && { le 8 100000001 && tail -c +9 "$weights"; } >bad/model.safetensors
refused "states a header of 100000001 bytes, the format allows 100000000"
fresh && { le 8 9000000 && tail -c +9 "$weights"; } >bad/model.safetensors
refused "states a header of 9000000 bytes, but has"
fresh && head -c 1000 "$weights" >bad/model.safetensors
refused "it is truncated"
fresh && truncate -s -4 bad/model.safetensors
refused "lie outside of the file's"
fresh && echo more >>bad/model.safetensors
refused "belong to no tensor"
edit_header 's/{/[/'
refused "is not valid JSON"
edit_header 's/"data_offsets":\[0,768\]/"data_offsets":[0,99999999]/'
refused "bytes 0 to 99999999 lie outside of the file's"
edit_header 's/"data_offsets":\[49920,50176\]/"data_offsets":[49664,49920]/'
refused "c_proj.bias overlaps tensor transformer.h.0.attn.c_attn.weight"
edit_header 's/transformer.ln_f.bias/transformer.ln_f.weight/'
refused "duplicate object key"

case_is "a tensor of another dtype, shape or name"
edit_header 's/"dtype":"F32"/"dtype":"I32"/'
refused "dtype is I32; F32, BF16 or F16 is needed"
edit_header 's/"dtype":"F32"/"dtype":"F33"/'
refused "dtype F33 is not known"
edit_header 's/"dtype":"F32"/"dtype":"F16"/'
refused "do not give the 768 bytes it has"
edit_header 's/\[256,64\]/[64,256]/'
refused "shape is [64, 256]; [256, 64] is needed"
edit_header 's/transformer.ln_f.bias/transformer.ln_f.bais/'
refused "tensor transformer.ln_f.bias is missing"

# ---- where the run goes --------------------------------------------------------------------------

mv preset.yaml c.yaml

case_is "a folder that cannot be, or holds a finished run"
refused "text.txt: it is a file; give another run.dir" run.dir=text.txt
refused "text.txt: " run.dir=text.txt/run
before=$(find good -type f -exec cksum {} + | sort)
refused "good: a run is there already; give another run.dir, or remove this one; to go on from its weights add model.init: good" run.dir=good
[ "$(find good -type f -exec cksum {} + | sort)" = "$before" ] || fail "the finished run has changed"
refused "good/: a run is there already" run.dir=good/

passed
