/* tests/runtime/machine/described.h - the machines of topologies/, opened. */
#ifndef YK_TESTS_RUNTIME_MACHINE_DESCRIBED_H
#define YK_TESTS_RUNTIME_MACHINE_DESCRIBED_H

#include "runtime/machine/machine.h"

/* The machine topologies/NAME.xml; aborts where it cannot be opened.
 *
 * given    processors that the process may use, or NULL
 * visible  CUDA_VISIBLE_DEVICES, or NULL
 */
yk_machine *described(const char *name, const char *given, const char *visible);

#endif
