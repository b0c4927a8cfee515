/* cli/one_process.c - commands that several ranks cannot share: refused once, instead of done by each. */
#include "cli/cli.h"
#include "comm/world.h"

yk_status yk_cli_check_one_process(const char *name)
{
    yk_world *world;
    int n = yk_world_count_started();
    if (n <= 1) return YK_OK;
    YK_TRY(yk_world_join(&world));
    yk_world_hold(world);
    yk_status status = yk_fail(YK_EINVAL, name,
                               "%d processes were started, and each would do all of it; start one, "
                               "without mpirun or srun",
                               n);
    status = yk_world_agree(world, status);
    yk_world_leave(world);
    return status;
}
