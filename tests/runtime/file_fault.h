/* tests/runtime/file_fault.h - make a call of the file shim fail. */
#ifndef YK_TESTS_RUNTIME_FILE_FAULT_H
#define YK_TESTS_RUNTIME_FILE_FAULT_H

#include "runtime/storage/file.h"

/* Fail the n-th call from now on that is of kind `op`, with this errno; n == 0: none. A program that
 * calls this has no other yk_file_fault(). */
void file_fault_set(yk_file_op op, int n, int err);

/* How many such calls are still to come until one fails: 0 once it has. */
int file_fault_left(void);

#endif
