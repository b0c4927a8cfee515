/* runtime/base/require.h - refusing calls that keep no promise; included by dispatchers alone.
 *
 * What is refused here is a mistake in the program above, not of a user: the message repeats the
 * condition that does not hold.
 */
#ifndef YK_RUNTIME_BASE_REQUIRE_H
#define YK_RUNTIME_BASE_REQUIRE_H

#include "runtime/base/status.h"

/* Return YK_EINVAL from the function that this stands in when `condition` does not hold. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return yk_fail(YK_EINVAL, __func__,                                                    \
                           "the arguments do not keep %s; this is a mistake in the program",       \
                           #condition);                                                            \
    } while (0)

#endif
