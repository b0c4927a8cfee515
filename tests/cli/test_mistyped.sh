#!/usr/bin/env bash
# tests/cli/test_mistyped.sh - words that are nearly right: what was meant is named, never taken silently.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

# refused MESSAGE WORD...: yoke refuses the words in one line that holds the message.
tried=("$yoke")

for ((i = 0; i < 400; i++)); do echo "the yoke of line $i is easy"; done >text.txt
cat >own.yaml <<'END_OF_FILE'
model: {family: llama, layers: 2, width: 32, heads: 2, vocab: 256}
data: {train: text.txt}
train: {batch: 2, seq_len: 32, steps: 1}
cpu: {threads: 1}
device: cpu
END_OF_FILE

case_is "a preset of another family than the file's is refused, by both names"
refused "gpt2-124m is of the family gpt2, and model.family is llama" train own.yaml --set model.preset=gpt2-124m
refused "gpt2-124m is of the family gpt2, and model.family is llama" plan own.yaml --set model.preset=gpt2-124m

case_is "keys that take the place of a preset's sizes are told"
run "$yoke" plan own.yaml --set model.preset=tiny-llama
expect_status 0
expect_text out "preset      tiny-llama with width 32, heads 2, "
run "$yoke" train own.yaml --set model.preset=tiny-llama --set run.dir=preset
expect_status 0
expect_text out "preset    tiny-llama with width 32, heads 2, "
run "$yoke" plan own.yaml
expect_no_text out "preset"

case_is "an option that begins so, is near, or is called so elsewhere is named; one that is not is not"
refused "the nearest is --temperature" generate runs/x --temp 1
refused "the nearest is --precision" bench step --dtype fp32
refused 'no option "--zzzzz" (`yoke generate --help` lists all)' generate runs/x --zzzzz
refused "README.md:3: unknown key" train "$YK_SOURCE/README.md"
expect_no_text err nearest

case_is "a key that is given as an option is --set's"
refused "device is a key of the configuration: --set device=cpu" train own.yaml --device cpu
refused "train.batch is a key of the configuration: --set train.batch=4" plan own.yaml --batch=4
refused "optim.lr is a key of the configuration: --set optim.lr=VALUE" train own.yaml --lr
mkdir runs
refused "model.init is a key of the configuration: --set model.init=runs" train own.yaml --resume runs
refused "--set model.init=preset" train own.yaml --resume=preset/config.yaml
refused "--set model.init=preset/model" train own.yaml --resume preset/model/model.safetensors
for words in "own.yaml --resume" "--resume own.yaml" "--resume absent own.yaml"; do
    # shellcheck disable=SC2086
    refused "--set model.init=FOLDER, of a run or a model" train $words
done

case_is "a file in the place of a run's folder leads to the folder"
refused "preset/config.yaml: it is a file; give its folder, preset" train own.yaml --set model.init=preset/config.yaml
refused "it is a file; give its folder, preset/model" generate preset/model/model.safetensors
refused "own.yaml: it is a file; give a model's or a run's folder" plan own.yaml --set model.init=own.yaml

case_is "an assignment without --set, or in pieces, is --set's, too"
refused '"train.batch=8" is one word too many; write --set KEY=VALUE, without spaces' train own.yaml train.batch=8
refused '"=" is one word too many; write --set KEY=VALUE, without spaces' train own.yaml --set train.batch = 8
refused '"a=b.yaml" is one word too many; the usage is: yoke plan CONFIG' plan own.yaml a=b.yaml

case_is "launch's options, given to train, lead there"
for words in "-n 2" -n2 --ranks=2 "--hosts a:2" "--hostfile f"; do
    # shellcheck disable=SC2086
    refused "is launch's, which starts ranks: yoke launch -n 4 train CONFIG" train $words own.yaml
done
refused "there is no option \"-nx\"" train -nx own.yaml
refused '"-n=2": there is no such key' train own.yaml --set -n=2

case_is "a benchmark or a device that there is not"
refused 'bench: there is no "stp"; choose among ops, step, comm' bench stp
refused "for another card take the one most like it, with memory.device_limit" plan own.yaml --device v100
refused "bytes of text need model.vocab: 256" train own.yaml --set model.vocab=100
printf hello >five.txt
refused "leaves nothing to validate on: a window takes 33; give more data, a larger fraction, or 0" \
    train own.yaml --set data.train=five.txt --set data.val_fraction=0.05

case_is "a device by its name in any case, the nearest to one that is none, and this machine's own"
run "$yoke" plan own.yaml --device 4090D
expect_status 0
refused "the nearest is 4090;" plan own.yaml --device rtx4090
refused "leave it out for this one's own device" plan own.yaml --device cuda
refused "leave it out for this one's own device" plan own.yaml --device auto

case_is "an empty word in the place of a file or a folder is told as such, and a folder in a file's place"
for words in "plan%CONFIG" "train%CONFIG" "data inspect%FILE..." "data prepare%FILE..." "eval%DIR" "generate%DIR"; do
    # shellcheck disable=SC2086
    refused "yoke: ${words%\%*}: \"\" is given for ${words#*%}, as by a variable that is not set" ${words%\%*} ''
done
refused '"" is given for CONFIG' launch -n 2 train ''
refused '"" is given for train CONFIG' launch -n 2 '' own.yaml
mkdir folder
for words in plan train "launch -n 2 train" "data inspect" "data prepare --out prepared"; do
    # shellcheck disable=SC2086
    refused "yoke: folder: cannot read: Is a directory; name a file" $words folder
done
[ ! -e prepared ] || fail "a folder was made"

case_is "a preset is no file, and no folder"
refused "model.init: tiny-gpt2 is a preset, without weights; write model.preset: tiny-gpt2, or give a folder" \
    train own.yaml --set model.init=tiny-gpt2
refused "write one with model.preset: gpt2-124m" plan gpt2-124m

case_is "a run's folder is the model that it saved"
run "$yoke" train own.yaml --set run.dir=next --set model.init=preset --set model.width=32
expect_status 0
expect_text out "2 layers of 32"
grep -q 'init: "preset/model"$' next/config.yaml || fail "config.yaml does not name the model"

case_is "launch names its option as it was typed"
refused "launch: -n is launch's" launch train own.yaml -n 2
refused "launch: --ranks is launch's" launch train own.yaml --ranks=2

case_is "help names what it is asked about, and no command is near to a word like none"
run "$yoke" help train
expect_status 0
expect_text out "usage: yoke train"
refused "the nearest is \`yoke train\`" trian
refused "there is no such command; \`yoke --help\` lists all" xylophone
refused "there is no such command" help xylophone

passed
