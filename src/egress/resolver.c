#include "egress/resolver.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/share.h"
#include "egress/host.h"

enum { STACK_BYTES = 512 << 10 };

enum { SHARE_THREADS, SHARE_QUEUE, RESOLVER_SHARES }; /* rows of the share table */

struct lookup {
        struct lookup *next;
        char key[SHARE_NAME_MAX + 1], box[24];
        char name[EGRESS_HOST_ROOM];
        struct lookup_result result; /* belongs to the thread until the lookup is in `done` */
        void (*call)(void *context, const struct lookup_result *result); /* for the loop only; NULL: cancelled */
        void *context;
};

struct resolver {
        pthread_mutex_t lock;
        pthread_cond_t work;
        struct lookup *waiting, **last_waiting; /* under the lock */
        struct lookup *done;
        size_t n_waiting, n_idle, n_threads;
        struct share_table shares; /* under the lock */
        int event_fd;
        struct loop_watch *watch;
};

/* ---- in the threads ---- */

static void lookup_run(struct lookup *lookup) {
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

static struct share_claim lookup_claim(const struct lookup *lookup) {
        return (struct share_claim) { .key = lookup->key, .box = lookup->box, .amount = 1 };
}

static void unlink_waiting_lookup(struct resolver *resolver, struct lookup **at) {
        struct lookup *lookup = *at;
        *at = lookup->next;
        if (!lookup->next)
                resolver->last_waiting = at;
        const struct share_claim claim = lookup_claim(lookup);
        share_give(&resolver->shares, SHARE_QUEUE, &claim);
        resolver->n_waiting--;
}

/* Called by a free thread with the lock held. Takes the oldest lookup of a key that may use one more thread. */
static struct lookup *take_waiting_lookup(struct resolver *resolver) {
        for (struct lookup **at = &resolver->waiting; *at; at = &(*at)->next) {
                struct lookup *lookup = *at;
                const struct share_claim claim = lookup_claim(lookup);
                if (share_take(&resolver->shares, SHARE_THREADS, &claim, NULL) < 0)
                        continue;
                unlink_waiting_lookup(resolver, at);
                return lookup;
        }
        return NULL;
}

static void *resolver_thread(void *context) {
        struct resolver *resolver = context;
        (void) pthread_mutex_lock(&resolver->lock);
        for (;;) {
                struct lookup *lookup;
                while (!(lookup = take_waiting_lookup(resolver))) {
                        resolver->n_idle++;
                        (void) pthread_cond_wait(&resolver->work, &resolver->lock);
                        resolver->n_idle--;
                }
                (void) pthread_mutex_unlock(&resolver->lock);
                lookup_run(lookup);
                (void) pthread_mutex_lock(&resolver->lock);
                const struct share_claim claim = lookup_claim(lookup);
                share_give(&resolver->shares, SHARE_THREADS, &claim);
                lookup->next = resolver->done;
                resolver->done = lookup;
                const uint64_t one = 1;
                (void) !write(resolver->event_fd, &one, sizeof(one));
        }
        return NULL;
}

/* Call it with the lock held. */
static bool add_resolver_thread(struct resolver *resolver) {
        pthread_attr_t attributes;
        pthread_t thread;
        (void) pthread_attr_init(&attributes);
        (void) pthread_attr_setstacksize(&attributes, STACK_BYTES);
        (void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        bool good = pthread_create(&thread, &attributes, resolver_thread, resolver) == 0;
        (void) pthread_attr_destroy(&attributes);
        resolver->n_threads += good;
        return good;
}

/* ---- in the loop ---- */

static void resolver_on_done(void *context, uint32_t events) {
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
        static const struct share_row rows[RESOLVER_SHARES] = {
                [SHARE_THREADS] = { .what = "names being looked up",
                                    .remedy = "try again",
                                    .total = RESOLVER_THREADS,
                                    .box_percent = 25 },
                [SHARE_QUEUE] = { .what = "names to be looked up", .remedy = "try again", .total = RESOLVER_QUEUE_MAX },
        };
        share_table_open(&resolver->shares, rows, RESOLVER_SHARES, 0);
        resolver->shares.n_keys = 2; /* another key may appear at any time, so no key gets all threads */
        resolver->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (resolver->event_fd >= 0)
                resolver->watch = loop_watch(loop, resolver->event_fd, EPOLLIN, resolver_on_done, resolver);
        if (!resolver->watch)
                return err_sys(err, errno, "watching for resolved names");
        *ret_resolver = resolver; /* it exists as long as the process */
        return 0;
}

struct lookup *resolver_look_up(struct resolver *resolver, const char *key, const void *box, const char *name,
                                void (*done)(void *context, const struct lookup_result *result), void *context) {
        struct lookup *lookup = calloc(1, sizeof(*lookup));
        if (!lookup)
                return NULL;
        (void) snprintf(lookup->name, sizeof(lookup->name), "%s", name);
        (void) snprintf(lookup->key, sizeof(lookup->key), "%s", key);
        (void) snprintf(lookup->box, sizeof(lookup->box), "%p", box);
        lookup->call = done;
        lookup->context = context;
        (void) pthread_mutex_lock(&resolver->lock);
        const struct share_claim place = lookup_claim(lookup);
        bool taken = share_take(&resolver->shares, SHARE_QUEUE, &place, NULL) == 0;
        bool placed = taken;
        taken = taken && (resolver->n_idle > resolver->n_waiting || resolver->n_threads == RESOLVER_THREADS ||
                          add_resolver_thread(resolver) || resolver->n_threads > 0);
        if (placed && !taken)
                share_give(&resolver->shares, SHARE_QUEUE, &place);
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

void resolver_cancel(struct resolver *resolver, struct lookup **lookup) {
        struct lookup *abandoned = *lookup;
        *lookup = NULL;
        if (!abandoned)
                return;
        (void) pthread_mutex_lock(&resolver->lock);
        struct lookup **at = &resolver->waiting;
        while (*at && *at != abandoned)
                at = &(*at)->next;
        bool waits = *at != NULL;
        if (waits)
                unlink_waiting_lookup(resolver, at);
        (void) pthread_mutex_unlock(&resolver->lock);
        if (waits)
                free(abandoned);
        else
                abandoned->call = NULL;
}
