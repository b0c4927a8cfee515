/* tests/runtime/file_fault.c - see file_fault.h. */
#include "tests/runtime/file_fault.h"

/* At file scope because yk_file_fault() has no argument of ours. */
static struct {
    yk_file_op op;
    int n, err;
} fault;

void file_fault_set(yk_file_op op, int n, int err)
{
    fault.op = op;
    fault.n = n;
    fault.err = err;
}

int file_fault_left(void)
{
    return fault.n;
}

int yk_file_fault(yk_file_op op, const char *path)
{
    (void)path;
    if (fault.n == 0 || op != fault.op || --fault.n > 0) return 0;
    return fault.err;
}
