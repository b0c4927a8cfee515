/* cli/one_process.c - what several ranks would each say: said by one of them. */
#include "cli/cli.h"
#include "comm/world.h"

yk_status yk_cli_refuse(yk_status (*refuse)(const char *word), const char *word)
{
    yk_world *world;
    if (yk_world_count_started() <= 1) return refuse(word);
    YK_TRY(yk_world_join(&world));
    yk_world_hold(world);
    yk_status status = yk_world_agree(world, refuse(word));
    yk_world_leave(world);
    return status;
}

static yk_status refuse_several(const char *name)
{
    return yk_fail(YK_EINVAL, name,
                   "%d processes were started, and each would do all of it; start one, without "
                   "mpirun or srun",
                   yk_world_count_started());
}

yk_status yk_cli_check_one_process(const char *name)
{
    return yk_world_count_started() <= 1 ? YK_OK : yk_cli_refuse(refuse_several, name);
}
