/* comm/world_start.c - whether MPI started this process, and starting it.
 *
 * MPI_Init takes a quarter of a second without a launcher, so it is left out where nothing says that
 * there is one. The other way round, a launcher that MPI cannot talk to starts N processes that each
 * believe to be alone and would write over each other's files: that is told from what it left in the
 * environment.
 */
#include <stdlib.h>

#include "comm/arrivals.h"
#include "comm/mpi_wait.h"
#include "comm/world_mpi.h"

static int number_in(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

int yk_world_count_started(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i])) return number_in(names[i]);
    return 1;
}

static yk_status fail_alone(int n, const char *launcher, const char *why)
{
    return yk_fail(YK_EINVAL, launcher,
                   "%d processes were started and each is alone: %s; start them with `srun "
                   "--mpi=pmix`, `mpirun` or `yoke launch`",
                   n, why);
}

yk_status yk_world_find_launcher(bool *launched_out)
{
    *launched_out = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK");
    if (*launched_out) return YK_OK;
    if (number_in("SLURM_STEP_NUM_TASKS") > 1)
        return fail_alone(number_in("SLURM_STEP_NUM_TASKS"), "srun",
                          "it did not offer PMIx, which Open MPI needs");
    if (number_in("PMI_SIZE") > 1)
        return fail_alone(number_in("PMI_SIZE"), "mpiexec", "it belongs to another MPI");
    return YK_OK;
}

yk_status yk_world_start_mpi(yk_world *w)
{
    int provided;
    yk_arrivals arrivals;
    yk_arrivals_begin(&arrivals);
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    w->has_mpi = error == MPI_SUCCESS;
    if (w->has_mpi) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* the copy has it, too */
        error = MPI_Comm_dup(MPI_COMM_WORLD, &w->comm);
    }
    yk_arrivals_end(&arrivals);
    YK_TRY(yk_mpi_check(error, "MPI"));
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    if (provided < MPI_THREAD_MULTIPLE)
        return yk_fail(YK_EUNSUPPORTED, "MPI",
                       "it was built without MPI_THREAD_MULTIPLE, and transfers run in threads of "
                       "their own; install Open MPI 4.1 or newer");
    if (w->size == 1 && number_in("SLURM_STEP_NUM_TASKS") > 1 && !getenv("OMPI_COMM_WORLD_SIZE"))
        return fail_alone(number_in("SLURM_STEP_NUM_TASKS"), "srun",
                          "Open MPI found no one at its PMIx");
    return YK_OK;
}
