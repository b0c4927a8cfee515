/* tests/engine/test_malloc.c - within a step nothing is allocated, mapped, opened or read from the
 * environment.
 *
 * This program's own malloc() and its like stand before the C library's, for every library in it. While
 * they watch they note who called; after the steps the callers are looked up, and only OpenBLAS, OpenMP
 * and the loader may be among them: what those do is theirs. A call by way of the C library, such as
 * strdup(), counts as ours. free() is not watched: OpenMP leaves a parallel region by a jump to it, which
 * hides the caller, and what is freed in every step was allocated in one. The address sanitizer has a
 * malloc() of its own, so there is nothing to see.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "runtime/observe/metrics.h"
#include "tests/engine/rig.h"

#if defined(__SANITIZE_ADDRESS__)
int main(void)
{
    puts("skipped: the address sanitizer has a malloc of its own");
    return 77;
}
#else

#define CALLS_MAX  4096

typedef struct call {
    const char *what;
    void *from; /* the address that it returns to */
} call;

/* What the calls below write; there is no other way to hand them anything. */
static atomic_bool watching;
static atomic_int n_calls;
static call calls[CALLS_MAX];

static void note(const char *what, void *from)
{
    if (!atomic_load(&watching)) return;
    int i = atomic_fetch_add(&n_calls, 1);
    if (i < CALLS_MAX) calls[i] = (call){what, from};
}
#define NOTE(what) note(what, __builtin_return_address(0))

/* glibc's own, under the names that it keeps for this. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    NOTE("malloc");
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    NOTE("calloc");
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    NOTE("realloc");
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    NOTE("aligned_alloc");
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory_out, size_t alignment, size_t bytes)
{
    NOTE("posix_memalign");
    *memory_out = __libc_memalign(alignment, bytes);
    return *memory_out ? 0 : 12;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    NOTE("mmap");
    void *(*next)(void *, size_t, int, int, int, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    return next(address, bytes, protection, flags, file, offset);
}

int munmap(void *address, size_t bytes)
{
    NOTE("munmap");
    int (*next)(void *, size_t);
    *(void **)&next = dlsym(RTLD_NEXT, "munmap");
    return next(address, bytes);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    NOTE("open");
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    int (*next)(const char *, int, ...);
    *(void **)&next = dlsym(RTLD_NEXT, "open");
    return next(path, flags, mode);
}

char *getenv(const char *name)
{
    NOTE("getenv");
    char *(*next)(const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "getenv");
    return next(name);
}

/* ---- watching ----------------------------------------------------------------------------- */

static bool is_of_others(const char *file)
{
    return strstr(file, "libgomp") || strstr(file, "openblas") || strstr(file, "libblas") ||
           strstr(file, "ld-linux");
}

/* Calls since watching began that are ours; each is printed. */
static int count_ours(void)
{
    int n = 0, all = atomic_load(&n_calls);
    assert_true(all <= CALLS_MAX);
    for (int i = 0; i < all; i++) {
        Dl_info info = {0};
        if (dladdr(calls[i].from, &info) && is_of_others(info.dli_fname)) continue;
        print_message("%s from %s %s+%p\n", calls[i].what, info.dli_fname,
                      info.dli_sname ? info.dli_sname : "",
                      (void *)((char *)calls[i].from - (char *)info.dli_fbase));
        n++;
    }
    return n;
}

static void watch(bool on)
{
    if (on) atomic_store(&n_calls, 0);
    atomic_store(&watching, on);
}

static void the_watch_sees_calls(void **state)
{
    (void)state;
    watch(true);
    char *volatile copy = strdup("by way of the C library");
    char *volatile more = realloc(copy, 64);
    watch(false);
    free(more);
    assert_int_equal(count_ours(), 2);
}

/* Four steps as the trainer makes them, the last two of which are watched. */
static void assert_steps_are_quiet(const char *const *sets)
{
    yk_rig rig;
    yk_metrics *metrics;
    yk_rig_open(&rig, 0, sets);
    assert_int_equal(yk_metrics_open("/dev/null", &metrics), YK_OK);
    for (int64_t step = 0; step < 4; step++) {
        yk_step_result result;
        if (step == 2) watch(true);
        yk_status status = yk_step_run(rig.engine, &rig.feed, step, 1e-3f);
        if (status == YK_OK) status = yk_step_wait(rig.engine, step, &result);
        yk_metrics_row row = {.step = step, .loss = result.loss, .grad_norm = result.grad_norm};
        if (status == YK_OK) status = yk_metrics_write(metrics, &row);
        if (step == 3) watch(false);
        assert_int_equal(status, YK_OK);
    }
    yk_metrics_close(metrics);
    yk_rig_close(&rig);
    assert_int_equal(count_ours(), 0);
}

static void a_step_allocates_nothing_after_two_steps_of_warming_up(void **state)
{
    (void)state;
    static const char *const cases[][5] = {
        {"model.preset=tiny-gpt2"},
        {"model.preset=tiny-llama", "train.micro_batch=1", "memory.recompute=block"},
        {"model.preset=tiny-qwen2", "precision.compute=bf16", "memory.recompute=cheap"},
        {"precision.compute=fp16", "data.doc_mask=true", "data.doc_token=32",
         "train.micro_batch=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_steps_are_quiet(cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_watch_sees_calls),
        cmocka_unit_test(a_step_allocates_nothing_after_two_steps_of_warming_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
