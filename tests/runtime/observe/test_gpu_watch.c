/* tests/runtime/observe/test_gpu_watch.c - watching a GPU, through a driver's library made up here.
 *
 * The test compiles a small libnvidia-ml.so.1 and starts itself again where that comes first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/observe/gpu_watch.h"
#include "tests/runtime/scratch.h"

/* Two GPUs, at bus ids 3b and 3c; the driver does not tell what comes in over PCIe. */
static const char library[] =
    "#include <stdio.h>\n"
    "#include <string.h>\n"
    "typedef struct { char s[16]; unsigned domain, bus, device, id, sub; char b[32]; } pci;\n"
    "int nvmlInit_v2(void) { return 0; }\n"
    "int nvmlShutdown(void) { return 0; }\n"
    "const char *nvmlErrorString(int e) { (void)e; return \"made up\"; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, char **h) { *h = (char *)0 + i + 1; return 0; "
    "}\n"
    "static int index_of(char *h) { return (int)(h - (char *)0) - 1; }\n"
    "int nvmlDeviceGetPciInfo_v3(char *h, pci *p) {\n"
    "    memset(p, 0, sizeof *p); p->bus = 0x3b + index_of(h); return 0; }\n"
    "int nvmlDeviceGetUUID(char *h, char *t, unsigned n) { (void)h; snprintf(t, n, \"u\"); return "
    "0; }\n"
    "int nvmlDeviceGetName(char *h, char *t, unsigned n) { (void)h; snprintf(t, n, \"n\"); return "
    "0; }\n"
    "int nvmlDeviceGetMemoryInfo(char *h, void *m) { (void)h; (void)m; return 3; }\n"
    "int nvmlDeviceGetPowerUsage(char *h, unsigned *v) { *v = 300000 + 1500 * index_of(h); return "
    "0; }\n"
    "int nvmlDeviceGetTemperature(char *h, int s, unsigned *v) { (void)h; *v = 61 + s; return 0; "
    "}\n"
    "int nvmlDeviceGetClockInfo(char *h, int c, unsigned *v) { (void)h; *v = 1000 * c; return 0; "
    "}\n"
    "int nvmlDeviceGetPcieThroughput(char *h, int c, unsigned *v) {\n"
    "    (void)h; *v = 2048; return c == 0 ? 0 : 3; }\n";

/* Make the library and start again with it; returns where it lies the second time. */
static const char *begin_again(char **argv)
{
    const char *before = getenv("YK_TEST_NVML"), *compiler = getenv("YK_CC");
    char dir[SCRATCH_PATH], path[SCRATCH_PATH], command[3 * SCRATCH_PATH];
    if (before) return before;
    scratch_make(dir);
    scratch_write(path, dir, "nvml.c", library, (int64_t)sizeof library - 1);
    snprintf(command, sizeof command, "%s -shared -fPIC -o %s/libnvidia-ml.so.1 %s",
             compiler ? compiler : "cc", dir, path);
    if (system(command) != 0) return NULL;
    setenv("YK_TEST_NVML", dir, 1);
    setenv("LD_LIBRARY_PATH", dir, 1);
    execv("/proc/self/exe", argv);
    return NULL;
}

static void the_driver_is_asked_by_a_thread(void **state)
{
    (void)state;
    yk_gpu_watch *watch;
    yk_nvml_state s;
    assert_int_equal(yk_gpu_watch_start("0000:3c:00.0", &watch), YK_OK);
    assert_non_null(watch);
    for (int i = 0; i < 3000 && !yk_gpu_watch_read(watch, &s); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_true(yk_gpu_watch_read(watch, &s));
    yk_gpu_watch_stop(watch);
    assert_true(s.power_w == 301.5);
    assert_true(s.temperature_c == 61);
    assert_true(s.sm_clock_mhz == 1000);
    assert_true(isnan(s.pcie_rx_rate));
    assert_true(s.pcie_tx_rate == 2048 * 1024);
}

static void a_gpu_that_is_not_there_is_not_watched(void **state)
{
    (void)state;
    yk_nvml_state s;
    yk_gpu_watch *watch = (yk_gpu_watch *)&s;
    assert_int_equal(yk_gpu_watch_start("0000:99:00.0", &watch), YK_OK);
    assert_null(watch);
    assert_false(yk_gpu_watch_read(watch, &s));
    yk_gpu_watch_stop(watch);
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *dir = begin_again(argv);
    if (!dir) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_driver_is_asked_by_a_thread),
        cmocka_unit_test(a_gpu_that_is_not_there_is_not_watched),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(dir);
    return failed;
}
