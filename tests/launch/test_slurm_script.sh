#!/usr/bin/env bash
# tests/launch/test_slurm_script.sh - the batch script that `yoke launch --slurm` writes, and what it does
# when it runs. sbatch, srun and scontrol are fakes; tests/slurm/ has real ones.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/launch/fakes.sh" || exit 1
unset "${!SLURM_@}" CUDA_VISIBLE_DEVICES

case_is "the script says how many ranks, and when to save"
launch -n 4 --slurm train "$config" --set device=cpu
expect_status 0
[ -z "$err" ] || fail "a word on stderr"
bash -n <<<"$out" || fail "bash does not understand it"
[ "$(head -n 1 <<<"$out")" = "#!/bin/bash" ] || fail "no script"
for option in job-name=demo ntasks=4 signal=USR1@120 requeue open-mode=append; do
    grep -qx -e "#SBATCH --$option" <<<"$out" || fail "no --$option"
done
expect_text out "srun --mpi=pmix "
expect_text out " $(readlink -f "$yoke") train $config --set device=cpu"
expect_no_text out gpus
expect_no_text out nodelist

case_is "a folder's name of several words or lines is one word of the script"
launch -n 4 --slurm train "$config" --set device=cpu --set run.dir=$'runs/my run, 2\n#SBATCH --exclusive'
expect_status 0
grep -qx -e '#SBATCH --job-name=my_run__2__SBATCH_--exclusive' <<<"$out" || fail "not one word"
[ "$(sed '/^srun/,$d' <<<"$out" | grep -c '^#SBATCH --exclusive')" -eq 0 ] || fail "an option that nobody gave"

case_is "on GPUs each rank gets one"
launch -n 8 --slurm train "$config" --set device=cuda
expect_text out "#SBATCH --gpus-per-task=1"

case_is "where device is auto and there is no GPU here, it is said"
launch -n 8 --slurm train "$config"
expect_status 0
if grep -qx -e "#SBATCH --gpus-per-task=1" <<<"$out"; then
    [ -z "$err" ] || fail "a warning"
else
    expect_text err "there is no GPU here, so the script asks for none"
fi

case_is "threads become cores a rank"
launch -n 2 --slurm train "$config" --set device=cpu --set cpu.threads=6
grep -qx -e "#SBATCH --cpus-per-task=6" <<<"$out" || fail "no --cpus-per-task"

case_is "hosts become nodes with the same number of ranks"
launch --hosts a:4,b:4 --slurm train "$config" --set device=cpu
expect_status 0
for option in nodelist=a,b ntasks=8 ntasks-per-node=4 nodes=2; do
    grep -qx -e "#SBATCH --$option" <<<"$out" || fail "no --$option"
done
launch --hosts a:4,b:2 --slurm train "$config" --set device=cpu
expect_status 2
expect_text err "different numbers of ranks"

# batch STATUS: run the script with an srun that ends so.
batch() {
    fake srun <<<"exit $1"
    fake scontrol <<<'exit 0'
    launch -n 2 --slurm train "$config" --set device=cpu --set "sample.prompt=it's two"
    run env PATH="$scratch/bin:$PATH" SLURM_JOB_ID=77 SLURM_CPUS_PER_TASK="${cores-}" bash -c "$out"
}

case_is "srun gets the program's words as they were given"
batch 0
expect_status 0
tail -n 2 "$scratch/srun.words" | grep -qx "sample.prompt=it's two" || fail "other words"
grep -q cpus-per-task "$scratch/srun.words" && fail "cores, though none were asked for"
cores=3 batch 0
grep -qx -e --cpus-per-task=3 "$scratch/srun.words" || fail "the cores of the job do not reach srun"

case_is "the status of the ranks is that of the job, which never puts itself back into the queue"
for status_ in 0 1 2 75; do
    batch $status_
    expect_status $status_
    [ "$(calls scontrol)" = "" ] || fail "requeued after $status_"
done

case_is "--submit gives the same script to sbatch and prints its answer"
launch -n 2 --slurm train "$config" --set device=cpu
script=$out
fake sbatch <<<"cat >'$scratch/script'; echo Submitted batch job 5"
launch -n 2 --slurm --submit train "$config" --set device=cpu
expect_status 0
[ "$out" = "Submitted batch job 5" ] || fail "another answer"
[ "$(cat "$scratch/script")" = "$script" ] || fail "another script"
rm "$scratch/script"
launch -n 2 --slurm --submit --dry-run train "$config" --set device=cpu
[ "$out" = "$script" ] || fail "a dry run prints something else"
[ ! -e "$scratch/script" ] || fail "a dry run submits"

case_is "a batch that does not divide over the ranks is refused, not printed and not submitted"
for words in "-n 7 --slurm" "-n 7 --slurm --submit" "--hosts a.invalid:4,b.invalid:3 --dry-run"; do
    # shellcheck disable=SC2086
    launch $words train "$config" --set device=cpu
    expect_status 2
    expect_text err "yoke: train.batch: 360 sequences do not divide over 7 ranks"
    [ -z "$out" ] || fail "words on stdout"
done
[ ! -e "$scratch/script" ] || fail "it was submitted"

case_is "a refusal of sbatch is wrong input"
fake sbatch <<<'echo "sbatch: error: invalid partition" >&2; exit 1'
launch -n 2 --slurm --submit train "$config" --set device=cpu
expect_status 2
[ "$err" = "sbatch: error: invalid partition
yoke: launch --submit: sbatch took no job (exit status 1), for what it says above; mend that, or leave --submit out to \
have the script" ] || fail "other words"
mkdir "$scratch/nothing"
run env PATH="$scratch/nothing" "$yoke" launch -n 2 --slurm --submit train "$config" --set device=cpu
expect_status 2
expect_text err "yoke: sbatch: there is no such program in PATH"

passed
