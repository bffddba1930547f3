/* Abandoned lookups. A getaddrinfo of our own resolves the names here; it waits until the test releases it. */
#include <netdb.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/loop.h"
#include "egress/resolver.h"
#include "tap.h"

static atomic_int n_slow, n_fast;
static atomic_bool go;

/* Stands in for the C library's, for all of this program. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret_list) {
        (void) service;
        (void) hints;
        (void) ret_list;
        if (strncmp(node, "slow", 4) == 0) {
                n_slow++;
                while (!go)
                        (void) usleep(1000);
        } else
                n_fast++;
        return EAI_NONAME;
}

static int n_answers;

static void on_answer(void *context, const struct lookup_result *result) {
        (void) context;
        (void) result;
        n_answers++;
}

static void wait_until(const atomic_int *count, int value) {
        for (int i = 0; i < 3000 && *count < value; i++)
                (void) usleep(1000);
}

int main(void) {
        struct loop *loop = NULL;
        struct resolver *resolver = NULL;
        struct err err = { 0 };
        static const char greedy, other;
        if (loop_make(&loop, &err) < 0 || resolver_make(loop, &resolver, &err) < 0)
                return 1;
        enum { MANY = 40 };
        struct lookup *lookups[MANY];
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < MANY; i++)
                        lookups[i] = resolver_look_up(resolver, "", &greedy, "slow.example", on_answer, NULL);
                wait_until(&n_slow, 8);
                (void) usleep(20000); /* for more, if there were any */
                for (int i = 0; i < MANY; i++)
                        resolver_cancel(resolver, &lookups[i]);
        }
        ok(n_slow == 8, "a box that gives up its names has a quarter of the threads, and no more (%d)", (int) n_slow);
        struct lookup *mine = resolver_look_up(resolver, "", &other, "fast.example", on_answer, NULL);
        wait_until(&n_fast, 1);
        ok(mine && n_fast == 1, "another box of the same key is served at once");
        go = true;
        (void) usleep(50000);
        ok(n_slow == 8, "what was given up while it waited is never begun (%d)", (int) n_slow);
        mine = resolver_look_up(resolver, "", &greedy, "fast.example", on_answer, NULL);
        wait_until(&n_fast, 2);
        ok(mine && n_fast == 2, "and then the box may ask again");
        return done_testing();
}
