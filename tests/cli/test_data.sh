#!/usr/bin/env bash
# tests/cli/test_data.sh - `yoke data`: what inspect prints, what prepare makes, and that what is wrong
# gets one line, exit status 2 and writes nothing.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1
golden=$YK_SOURCE/tests/golden/tokenizers

tried=("$yoke" data)

# header INT...: little-endian 32-bit integers on stdout.
header() {
    local v
    for v; do
        printf "\\x$(printf %02x $((v & 255)))\\x$(printf %02x $((v >> 8 & 255)))"
        printf "\\x$(printf %02x $((v >> 16 & 255)))\\x$(printf %02x $((v >> 24 & 255)))"
    done
}

# shard MAGIC VERSION COUNT ID...: an llm.c shard with 16-bit ids on stdout.
shard() {
    header "$1" "$2" "$3"
    head -c 1012 /dev/zero
    shift 3
    local v
    for v; do printf "\\x$(printf %02x $((v & 255)))\\x$(printf %02x $((v >> 8 & 255)))"; done
}

printf 'In the beginning\nwas the yoke.\n' >text.txt
seq 1 2000 | tr '\n' ' ' >long.txt

case_is "help and the two commands"
run "$yoke" data --help
expect_status 0
expect_text out "usage: yoke data inspect"
refused "is missing"
refused "the nearest is \`yoke data prepare\`" prepar
for command in inspect prepare; do
    run "$yoke" data $command --help
    expect_status 0
    expect_text out "usage: yoke data $command FILE..."
done

case_is "inspect reads text"
run "$yoke" data inspect text.txt --seq-len 8 --doc-token 10
expect_status 0
expect_text out "format     text, 8 bits an id"
expect_text out "tokens     31"
expect_text out "ids        10 to 121"
expect_text out "documents  2, ended by token 10"
expect_text out "windows    3 of 8 tokens"
expect_text out 'begins     "In the beginning\nwas the"'

case_is "inspect shows no bytes that a terminal would not take for text"
printf '\033[2J\302\233\377k\303\266ln\302\240\tabcdefghijk\342\202\254' >odd.txt
run "$yoke" data inspect odd.txt --format text
expect_status 0
expect_text out $'begins     "?[2J?\357\277\275k\303\266ln\302\240?abcdefghi"'

case_is "inspect reads text through a tokenizer"
run "$yoke" data inspect text.txt --tokenizer "$golden/gpt2.json"
expect_status 0
expect_text out "format     text through a tokenizer, 32 bits an id"
expect_text out 'begins     "In the beginning\nwas the yoke.\n"'

case_is "inspect reads shards, by name and by pattern"
shard 20240520 1 4 7 50256 0 9 >a_0.bin
shard 20240520 1 2 104 105 >a_1.bin
run "$yoke" data inspect 'a_*.bin'
expect_status 0
expect_text out "a_0.bin
  format     llm.c, 16 bits an id
  tokens     4
  ids        0 to 50256
  first ids  7 50256 0 9
a_1.bin"
expect_text out 'begins     "hi"'

case_is "inspect refuses what is wrong"
refused "absent.bin" inspect absent.bin
refused "no file matches" inspect 'absent*'
: >empty.txt
refused "is empty" inspect empty.txt
shard 20240520 1 5 7 8 >short.bin
refused "truncated" inspect short.bin
shard 20240519 1 2 7 8 >wrong.bin
refused "magic number 20240519" inspect wrong.bin
refused "magic number 20240519" inspect wrong.bin --format llmc
refused "token 1 is id 50256, outside of the vocabulary of 50256" inspect a_0.bin --vocab 50256
refused "16 bits" inspect a_0.bin --vocab 151936
refused "data.format" inspect a_0.bin --format parquet

case_is "data without a command leads to both"
refused "data: inspect or prepare is missing; write yoke data inspect FILE, or yoke data prepare FILE --out DIR"

case_is "inspect reads raw ids when it is told their type"
printf '\1\0\2\0\3\0' >raw.bin
run "$yoke" data inspect raw.bin --format raw --dtype uint16
expect_status 0
expect_text out "first ids  1 2 3"
refused "no multiple of the 4" inspect raw.bin --format raw --dtype uint32

case_is "sizes over 4 GiB are not cut"
shard 20240520 1 2147483647 7 8 >large.bin
truncate -s 4294968317 large.bin # sparse, and a byte short
refused "2147483647 tokens, that is 4294968318 bytes, but it has 4294968317" inspect large.bin
rm large.bin

case_is "prepare makes shards that inspect and a configuration read"
run "$yoke" data prepare long.txt text.txt --out made --val-fraction 0.1 --shard-tokens 5000
expect_status 0
expect_text out " to train on in 2 files, "
expect_text out "train: made/train_*.bin"
expect_text out "val: made/val_*.bin"
expect_text out "vocab: 256"
[ "$(cd made && echo *)" = "train_000000.bin train_000001.bin val_000000.bin" ] || fail "other files"
for file in made/train_000000.bin made/train_000001.bin made/val_000000.bin; do
    tail -c +1025 $file | tr -d '\0' # the upper half of each id
done >back.txt
cat long.txt text.txt | cmp - back.txt || fail "the shards hold something else"
run "$yoke" data inspect made/*.bin
expect_status 0

case_is "one file is told as one"
run "$yoke" data prepare text.txt --out one
expect_status 0
expect_text out " to train on in 1 file, "

case_is "prepare refuses what is wrong and writes nothing"
mkdir room
refused "is there already" prepare text.txt --out made
refused "--out is missing" prepare text.txt
refused "absent.txt" prepare text.txt absent.txt --out room/x
refused "holds tokens already" prepare a_0.bin --out room/x
refused "leaves" prepare text.txt --out room/x --val-fraction 1
refused "outside of the tokenizer" prepare text.txt --out room/x --doc-token 300
refused "WordPiece" prepare text.txt --out room/x --tokenizer <(echo '{"model":{"type":"WordPiece"}}')
[ -z "$(ls room)" ] || fail "something was written"

case_is "a full disk leaves nothing behind"
if [ "$(id -u)" -eq 0 ] && mkdir disk && mount -t tmpfs -o size=64k tmpfs disk 2>/dev/null; then
    head -c 200000 /dev/zero | tr '\0' x >big.txt
    refused "No space left on device; free some space" prepare big.txt --out disk/out
    left=$(ls disk)
    umount disk
    [ -z "$left" ] || fail "left behind: $left"
fi

passed
