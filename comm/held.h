/* comm/held.h - stderr kept back for a while; included by comm/ alone.
 *
 * While held, descriptor 2 is a file in memory and the true one lies at a fixed number beside it. So
 * whoever writes to stderr, a library too, is held, and a handler for crashes finds all it needs
 * without a variable: a process that dies of a signal of its own making says first what it held.
 */
#ifndef YK_COMM_HELD_H
#define YK_COMM_HELD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#define YK_HELD_N_SIGNALS 5

typedef struct yk_held {
    bool active;
    struct sigaction before[YK_HELD_N_SIGNALS]; /* what crashes did */
} yk_held;

/* Begin to hold. Does nothing when held already, or where the system refuses. */
void yk_held_begin(yk_held *held);

/* Copy up to `capacity` bytes of what has been written so far; returns how many. */
size_t yk_held_read(const yk_held *held, char *text_out, size_t capacity);

/* Let go: stderr is as it was, and what was held from byte `from` on is written to it. */
void yk_held_end(yk_held *held, size_t from);

/* A value of `from` beyond any text: drop it. */
#define YK_HELD_DROP ((size_t)-1)

#endif
