/* launch/slurm.c - writing a batch script and submitting it. */
#include "launch/slurm.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command.h"
#include "launch/parent.h"

/* Time to finish a step and to save, before Slurm ends the job. */
#define SIGNAL_S 120

static void write_option(FILE *out, const char *option)
{
    fprintf(out, "#SBATCH --%s\n", option);
}

/* A name of one word: Slurm reads words, and makes a file's name of it. */
static void write_name(const char *name, FILE *out)
{
    fputs("#SBATCH --job-name=", out);
    for (const char *c = name; *c; c++) {
        bool is_kept =
            isalnum((unsigned char)*c) || strchr("_-+.", *c) || (unsigned char)*c >= 0x80;
        fputc(is_kept ? *c : '_', out);
    }
    fputc('\n', out);
}

/* Ranks a node where hosts are named: the same on each, or 0. */
static int ranks_of_each(const yk_hosts *hosts)
{
    int n = 0;
    for (int i = 0; i < hosts->n_items; i++) {
        int ranks = hosts->items[i].n_ranks;
        if (ranks && n && ranks != n) return 0;
        if (ranks) n = ranks;
    }
    return n;
}

static void write_hosts(const yk_hosts *hosts, FILE *out)
{
    const char *separator = "#SBATCH --nodelist=";
    for (int i = 0; i < hosts->n_items; i++) {
        if (hosts->items[i].n_ranks == 0) continue;
        fprintf(out, "%s%s", separator, hosts->items[i].name);
        separator = ",";
    }
    fputc('\n', out);
}

static void write_shape(const yk_slurm_job *job, int n_per_node, FILE *out)
{
    fprintf(out, "#SBATCH --ntasks=%d\n", job->n_ranks);
    if (n_per_node > 0) {
        fprintf(out, "#SBATCH --nodes=%d\n", (job->n_ranks + n_per_node - 1) / n_per_node);
        fprintf(out, "#SBATCH --ntasks-per-node=%d\n", n_per_node);
    }
    if (job->hosts) write_hosts(job->hosts, out);
    if (job->is_on_gpus) write_option(out, "gpus-per-task=1");
    if (job->n_cores > 0)
        fprintf(out, "#SBATCH --cpus-per-task=%d\n", job->n_cores);
    else
        fputs("##SBATCH --cpus-per-task=8\n", out);
}

/* What sites want to know; the second # makes each a comment. */
static void write_hints(FILE *out)
{
    fputs("##SBATCH --time=24:00:00\n"
          "##SBATCH --partition=NAME\n"
          "##SBATCH --account=NAME\n",
          out);
}

static void write_body(const yk_slurm_job *job, FILE *out)
{
    fputs("\n"
          "# Ranks bind themselves, each to cores near its GPU; PMIx tells them who they are.\n"
          "srun --mpi=pmix --kill-on-bad-exit=1 --cpu-bind=none \\\n"
          "    ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} \\\n   ",
          out);
    for (int i = 0; i < job->n_words; i++) {
        fputc(' ', out);
        yk_word_print_quoted(job->words[i], out);
    }
    fputc('\n', out);
}

yk_status yk_slurm_write(const yk_slurm_job *job, FILE *out)
{
    int n_per_node = job->hosts ? ranks_of_each(job->hosts) : job->n_per_node;
    if (job->hosts && n_per_node == 0)
        return yk_fail(YK_EINVAL, "launch --slurm",
                       "the hosts would have different numbers of ranks; give each the same number "
                       "of slots, and -n as many as all of them");
    fputs("#!/bin/bash\n", out);
    write_name(job->name, out);
    write_shape(job, n_per_node, out);
    fprintf(out, "#SBATCH --signal=USR1@%d\n", SIGNAL_S);
    write_option(out, "requeue");
    write_option(out, "open-mode=append");
    write_option(out, "output=%x-%j.out");
    write_hints(out);
    write_body(job, out);
    return YK_OK;
}

yk_status yk_slurm_submit(const yk_slurm_job *job)
{
    char *script = NULL;
    size_t size;
    FILE *out = open_memstream(&script, &size);
    if (!out) return yk_fail(YK_ENOMEM, "launch", "no memory for the batch script");
    yk_status status = yk_slurm_write(job, out);
    if (fclose(out) != 0 && status == YK_OK)
        status = yk_fail(YK_ENOMEM, "launch", "no memory for the batch script");
    yk_command sbatch = {.is_short = false};
    yk_ended ended = {.exit_status = 0};
    yk_command_add(&sbatch, "sbatch");
    if (status == YK_OK) status = yk_command_check(&sbatch);
    if (status == YK_OK) status = yk_parent_feed(&sbatch, script, &ended);
    yk_command_fini(&sbatch);
    free(script);
    YK_TRY(status);
    if (ended.exit_status == 0) return YK_OK;
    return yk_fail(
        YK_EINVAL, "launch --submit",
        "sbatch took no job (exit status %d), for what it says above; mend that, or leave "
        "--submit out to have the script",
        ended.exit_status);
}
