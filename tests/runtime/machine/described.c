/* tests/runtime/machine/described.c - see described.h. */
#include "tests/runtime/machine/described.h"

#include <stdio.h>

yk_machine *described(const char *name, const char *given, const char *visible)
{
    char path[256];
    yk_machine *machine;
    snprintf(path, sizeof path, "tests/runtime/machine/topologies/%s.xml", name);
    const yk_machine_source source = {.xml = path, .given = given, .visible = visible};
    YK_CHECK(yk_machine_open_described(&source, &machine) == YK_OK);
    return machine;
}
