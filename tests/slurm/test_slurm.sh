#!/usr/bin/env bash
# tests/slurm/test_slurm.sh - ranks that Slurm starts on two nodes: by srun, by the batch script of `yoke
# launch --slurm`, and by `yoke launch` within a job.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
. "$YK_SOURCE/tests/slurm/sandbox.sh" || exit 1
unset "${!SLURM_@}" "${!OMPI_MCA@}" OMP_NUM_THREADS
program=$YK_BUILD/tests/ranks/launch/rank_launch
yoke=$YK_BUILD/yoke
reports=$scratch/reports
slurm_up
cd "$scratch" || exit 1

fresh() {
    rm -rf "$reports" && mkdir "$reports"
}
line() {
    sed -n "s/^$2 //p" "$reports/$1"
}
# on_two_nodes: four ranks reported, two on each node, in order.
expect_two_nodes() {
    for i in 0 1 2 3; do
        [ "$(line $i size)" = 4 ] || fail "rank $i is one of '$(line $i size)'"
    done
    [ "$(line 0 host) $(line 1 host) $(line 2 host) $(line 3 host)" = "n0 n0 n1 n1" ] || fail "on other hosts"
    [ "$(line 3 local)" = "1 of 2" ] || fail "rank 3 is $(line 3 local)"
}

case_is "srun with PMIx starts ranks on two nodes"
fresh
slurm timeout "$(limit 30)" srun --mpi=pmix -N 2 --ntasks-per-node=2 "$program" rank "$reports"
expect_status 0
expect_two_nodes

case_is "srun without PMIx is told what to use instead"
fresh
slurm timeout "$(limit 30)" srun --mpi=none -N 1 -n 2 "$program" rank "$reports"
expect_status 2
expect_text err "2 processes were started and each is alone"
expect_text err "srun --mpi=pmix"

case_is "launch within a job takes the job's nodes"
fresh
slurm timeout "$(limit 40)" sbatch --wait -N 2 --ntasks-per-node=2 -o job.out \
    --wrap "'$program' start 0 '' rank '$reports'"
[ "$status" -eq 0 ] || fail "$(cat job.out)"
expect_two_nodes

for ((i = 0; i < 600; i++)); do echo "In the beginning was line $((i * 7919 % 600))."; done >text.txt
cat >run.yaml <<'EOF'
model: {family: gpt2, layers: 1, width: 32, heads: 2, vocab: 256, max_seq_len: 32}
data: {train: text.txt, val_fraction: 0.1}
train: {batch: 4, micro_batch: 1, seq_len: 32, steps: 4}
schedule: {warmup: 1}
device: cpu
EOF

case_is "the batch script trains on two nodes to the end"
slurm "$yoke" launch --hosts n0:1,n1:1 --slurm train run.yaml
expect_status 0
printf '%s\n' "$out" >job.sh
slurm timeout "$(limit 40)" sbatch --wait job.sh
[ "$status" -eq 0 ] || fail "$(cat run-*.out)"
out=$(cat run-*.out)
expect_text out "trained   4 steps"
expect_text out "2 on 2 nodes"
[ -s runs/run/model/model.safetensors ] || fail "no model"

job_says() {
    grep -qs "$1" run-*.out
}
job_ended_with() {
    enter_host n0
    "${entered[@]}" scontrol show job "$job" | grep -q "ExitCode=$1:0"
}

case_is "a job whose time is over saves, and ends with status 75"
rm -rf runs run-*.out
slurm "$yoke" launch -n 2 --slurm --submit train run.yaml --set train.steps=1000000 --set log.every=1
expect_status 0
job=${out##* }
until_true job_says "step 3/"
slurm scancel --signal=USR1 "$job"
until_true job_says "stopped by a signal"
until_true job_ended_with 75
[ -s runs/run/model/model.safetensors ] || fail "no model"

case_is "a GPU for each rank is asked for in words that Slurm understands"
slurm "$yoke" launch -n 4 --slurm train run.yaml --set device=cuda
sed "s|^    /.*/yoke train .*|    bash -c 'echo on \$(hostname) \$CUDA_VISIBLE_DEVICES'|" <<<"$out" >gpu.sh
rm -f run-*.out
slurm timeout "$(limit 30)" sbatch --wait gpu.sh
out=$(cat run-*.out)
[ "$(grep '^on' <<<"$out" | sort | tr '\n' ' ')" = "on n0 0 on n0 1 on n1 0 on n1 1 " ] || fail "other GPUs"

passed
