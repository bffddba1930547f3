#include "egress/resolver.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/host.h"

enum { STACK_BYTES = 512 << 10 };

struct lookup {
        struct lookup *next;
        char name[EGRESS_HOST_ROOM];
        struct lookup_result result;                                     /* the thread's until it is in `done` */
        void (*call)(void *context, const struct lookup_result *result); /* NULL: abandoned; the loop's thread only */
        void *context;
};

struct resolver {
        pthread_mutex_t lock;
        pthread_cond_t work;
        struct lookup *waiting, **last_waiting; /* under the lock */
        struct lookup *done;
        size_t n_waiting, n_idle, n_threads;
        int event_fd;
        struct loop_watch *watch;
};

/* ---- in the threads ---- */

static void look_up(struct lookup *lookup) {
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
        struct addrinfo *list = NULL;
        struct lookup_result *result = &lookup->result;
        result->code = getaddrinfo(lookup->name, NULL, &hints, &list);
        for (struct addrinfo *at = list; at && result->count < RESOLVER_ADDRESSES_MAX; at = at->ai_next)
                if (at->ai_addrlen <= sizeof(result->addresses[0]))
                        memcpy(&result->addresses[result->count++], at->ai_addr, at->ai_addrlen);
        if (list)
                freeaddrinfo(list);
}

static void *work(void *context) {
        struct resolver *resolver = context;
        (void) pthread_mutex_lock(&resolver->lock);
        for (;;) {
                while (!resolver->waiting) {
                        resolver->n_idle++;
                        (void) pthread_cond_wait(&resolver->work, &resolver->lock);
                        resolver->n_idle--;
                }
                struct lookup *lookup = resolver->waiting;
                resolver->waiting = lookup->next;
                if (!resolver->waiting)
                        resolver->last_waiting = &resolver->waiting;
                resolver->n_waiting--;
                (void) pthread_mutex_unlock(&resolver->lock);
                look_up(lookup);
                (void) pthread_mutex_lock(&resolver->lock);
                lookup->next = resolver->done;
                resolver->done = lookup;
                const uint64_t one = 1;
                (void) !write(resolver->event_fd, &one, sizeof(one));
        }
        return NULL;
}

/* Under the lock. */
static bool add_thread(struct resolver *resolver) {
        pthread_attr_t attributes;
        pthread_t thread;
        (void) pthread_attr_init(&attributes);
        (void) pthread_attr_setstacksize(&attributes, STACK_BYTES);
        (void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        bool good = pthread_create(&thread, &attributes, work, resolver) == 0;
        (void) pthread_attr_destroy(&attributes);
        resolver->n_threads += good;
        return good;
}

/* ---- in the loop ---- */

static void on_done(void *context, uint32_t events) {
        struct resolver *resolver = context;
        uint64_t count;
        (void) events;
        (void) !read(resolver->event_fd, &count, sizeof(count));
        (void) pthread_mutex_lock(&resolver->lock);
        struct lookup *list = resolver->done;
        resolver->done = NULL;
        (void) pthread_mutex_unlock(&resolver->lock);
        while (list) {
                struct lookup *lookup = list;
                list = lookup->next;
                if (lookup->call)
                        lookup->call(lookup->context, &lookup->result);
                free(lookup);
        }
}

int resolver_make(struct loop *loop, struct resolver **ret_resolver, struct err *err) {
        struct resolver *resolver = calloc(1, sizeof(*resolver));
        if (!resolver)
                return err_set(err, ERR_SYSTEM, "out of memory");
        (void) pthread_mutex_init(&resolver->lock, NULL);
        (void) pthread_cond_init(&resolver->work, NULL);
        resolver->last_waiting = &resolver->waiting;
        resolver->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (resolver->event_fd >= 0)
                resolver->watch = loop_watch(loop, resolver->event_fd, EPOLLIN, on_done, resolver);
        if (!resolver->watch)
                return err_sys(err, errno, "watching for resolved names");
        *ret_resolver = resolver; /* as long as the process */
        return 0;
}

struct lookup *resolver_ask(struct resolver *resolver, const char *name,
                            void (*done)(void *context, const struct lookup_result *result), void *context) {
        struct lookup *lookup = calloc(1, sizeof(*lookup));
        if (!lookup)
                return NULL;
        (void) snprintf(lookup->name, sizeof(lookup->name), "%s", name);
        lookup->call = done;
        lookup->context = context;
        (void) pthread_mutex_lock(&resolver->lock);
        bool taken = resolver->n_waiting < RESOLVER_QUEUE_MAX &&
                     (resolver->n_idle > resolver->n_waiting || resolver->n_threads == RESOLVER_THREADS ||
                      add_thread(resolver) || resolver->n_threads > 0);
        if (taken) {
                *resolver->last_waiting = lookup;
                resolver->last_waiting = &lookup->next;
                resolver->n_waiting++;
                (void) pthread_cond_signal(&resolver->work);
        }
        (void) pthread_mutex_unlock(&resolver->lock);
        if (taken)
                return lookup;
        free(lookup);
        return NULL;
}

void resolver_abandon(struct lookup **lookup) {
        if (*lookup)
                (*lookup)->call = NULL;
        *lookup = NULL;
}
