#include "session/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"
#include "session/asker.h"
#include "session/harvest.h"
#include "session/run_result.h"
#include "session/session.h"
#include "session/spill.h"

enum {
        FEED_CHUNK = 256 << 10,
        WEIGHT_SMALL = 128 << 10,
        WEIGHTS_MAX = 128 << 20, /* of all runs together: they stay in memory until they are over */
};

/* An id that nobody guesses. Random bytes are fetched for many runs at a time, and each is used once. */
static int make_id(char ret_id[static 33]) {
        static unsigned char random[64 * 16];
        static size_t left;
        static const char hex[] = "0123456789abcdef";
        if (left == 0 && getrandom(random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        if (left == 0)
                left = sizeof(random);
        for (size_t i = 0; i < 16; i++) {
                unsigned char byte = random[--left];
                random[left] = 0;
                ret_id[2 * i] = hex[byte >> 4];
                ret_id[2 * i + 1] = hex[byte & 15];
        }
        ret_id[32] = '\0';
        return 0;
}

/* The requests were bounded in depth when they were read (session/modest.h). */
static size_t weigh(const json_t *value) {
        size_t weight = json_string_length(value), i;
        const char *key;
        json_t *item;
        json_array_foreach(value, i, item) weight += weigh(item);
        json_object_foreach((json_t *) (uintptr_t) value, key, item) weight += strlen(key) + weigh(item);
        return weight;
}

bool run_fits(const struct session *session, const json_t *request) {
        size_t weight = weigh(request);
        return weight <= WEIGHT_SMALL || session->daemon->run_bytes + weight <= WEIGHTS_MAX;
}

struct run *run_make(struct session *session, json_t *request, uint64_t timeout_ms) {
        struct run *run = malloc(sizeof(*run)); /* calloc takes the long way to memory that was just freed */
        if (!run)
                return NULL;
        *run = (struct run){ .session = session, .weight = weigh(request), .timeout_ms = timeout_ms };
        if (make_id(run->id) < 0) {
                free(run);
                return NULL;
        }
        run->request = json_incref(request);
        run->displays = json_array();
        session->daemon->run_bytes += run->weight;
        return run;
}

void run_free(struct run *run) {
        if (!run)
                return;
        loop_timer_drop(&run->timer);
        while (run->askers) { /* those who were not told: there is nobody to tell */
                struct asker *asker = run->askers;
                run->askers = asker->next;
                asker->run = NULL;
        }
        run->session->daemon->run_bytes -= run->weight;
        json_decref(run->request);
        json_decref(run->displays);
        free(run);
}

void run_write_request(const struct run *run, struct json_text *text) {
        const char *key;
        json_t *value;
        json_text_put_literal(text, "{\"id\":");
        json_text_put_string(text, run->id, strlen(run->id));
        json_object_foreach(run->request, key, value) {
                json_text_put_literal(text, ",");
                json_text_put_string(text, key, strlen(key));
                json_text_put_literal(text, ":");
                json_text_put_value(text, value);
        }
        json_text_put_literal(text, "}");
}

void run_add_asker(struct run *run, struct asker *asker) {
        asker->run = run;
        asker->next = run->askers;
        run->askers = asker;
        if (asker->type->accepted)
                asker->type->accepted(asker, run->id);
        if (run->started)
                run_feed_asker(run, asker);
}

/* ---- while it is on ---- */

/* As much as the asker takes now, or all of it, which the journal's bounds keep small enough. */
static void feed(struct journal *journal, const char *run_id, struct asker *asker, bool all) {
        static char chunk[FEED_CHUNK]; /* one thread, one user at a time: what is sent is copied before it returns */
        while (asker->stream && (all || asker->type->wants_more(asker))) {
                struct journal_event event;
                if (journal_event(journal, run_id, asker->cursor, &event, NULL) < 0 ||
                    event.kind == JOURNAL_EVENT_RESULT)
                        return;
                for (size_t at = 0; at < event.size;) {
                        size_t size = 0;
                        if (journal_read(journal, &event, at, chunk, FEED_CHUNK, &size, NULL) < 0 || size == 0)
                                break;
                        at += size;
                        const struct asker_output output = { event.kind == JOURNAL_EVENT_ERR, at == event.size,
                                                             event.number, chunk, size };
                        asker->type->output(asker, &output);
                }
                asker->cursor++;
        }
}

void run_tell_display(struct run *run, json_t *data) {
        for (struct asker *asker = run->askers; asker; asker = asker->next)
                if (asker->stream && asker->type->wants_more(asker)) /* the result has them all */
                        asker->type->display(asker, data);
}

void run_feed_asker(struct run *run, struct asker *asker) {
        struct kernel *kernel = run->session->kernel;
        if (kernel && kernel->journal)
                feed(kernel->journal, run->id, asker, false);
}

void run_feed(struct run *run) {
        for (struct asker *asker = run->askers; asker; asker = asker->next)
                run_feed_asker(run, asker);
}

/* ---- its result ---- */

/* How much of each stream was cut, and the end of the object. */
static void put_cuts(struct json_text *text, const uint64_t cut[static JOURNAL_STREAMS]) {
        json_text_put_literal(text, ",\"stdout_cut_bytes\":");
        json_text_put_number(text, (int64_t) cut[JOURNAL_OUT]);
        json_text_put_literal(text, ",\"stderr_cut_bytes\":");
        json_text_put_number(text, (int64_t) cut[JOURNAL_ERR]);
        json_text_put_literal(text, "}");
}

/* What the run printed, bounded, and the rest of the object, whose first part is there. */
static void put_output(struct json_text *text, const struct journal *journal, const struct journal_run *told) {
        static const char *const keys[] = { ",\"stdout\":", ",\"stderr\":" };
        uint64_t cut[JOURNAL_STREAMS];
        for (int i = 0; i < JOURNAL_STREAMS; i++) {
                char *bytes = NULL;
                size_t size = 0;
                if (told->bytes[i] > 0)
                        (void) journal_read_stream(journal, told->run_id, (enum journal_stream) i, RUN_INLINE_MAX,
                                                   &bytes, &size, NULL);
                json_text_put(text, keys[i], strlen(keys[i]));
                json_text_put_string(text, bytes, size);
                cut[i] = told->cut[i] + told->bytes[i] - (size < told->bytes[i] ? size : told->bytes[i]);
                free(bytes);
        }
        put_cuts(text, cut);
}

/* A run must end in the journal, or no other could begin: what cannot be kept whole is kept without its large parts. */
static void write_down(struct journal *journal, const struct json_text *text, size_t small) {
        if (!text->failed && journal_end(journal, text->bytes, text->size, NULL) == 0)
                return;
        _cleanup_json_text_ struct json_text less = { 0 };
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, "out of memory");
        json_text_put(&less, text->bytes, small);
        json_text_put_literal(&less, "}");
        if (small == 0 || less.failed || journal_end(journal, less.bytes, less.size, &err) < 0)
                daemon_log("a run's result cannot be written down: %s", err.message);
}

static bool is_behind(const struct run *run, struct journal *journal, const struct asker *asker) {
        struct journal_event event;
        return journal_event(journal, run->id, asker->cursor, &event, NULL) == 0 && event.kind != JOURNAL_EVENT_RESULT;
}

static void answer(struct asker *asker, const struct json_text *text) {
        if (text->failed) {
                struct err err;
                (void) err_set(&err, ERR_SYSTEM, "out of memory");
                asker_refuse(asker, &err);
                return;
        }
        json_t *json = asker->type->text_only ? NULL : json_loadb(text->bytes, text->size, JSON_ALLOW_NUL, NULL);
        asker_answer_text(asker, text->bytes, text->size, json);
        json_decref(json);
}

/* One learns the end: the rest of the output, then the result. `common` is its text without output and end. */
static void tell_end(struct run *run, struct journal *journal, struct asker *asker, const struct journal_run *told,
                     const struct json_text *text, size_t common) {
        if (asker->stream && !text->failed) {
                if (journal)
                        feed(journal, run->id, asker, false);
                if (journal && is_behind(run, journal, asker)) {
                        if (spill_run(asker, journal, run->id, text->bytes, text->size, NULL) == 0)
                                return;
                        feed(journal, run->id, asker, true);
                }
                answer(asker, text);
                return;
        }
        _cleanup_json_text_ struct json_text whole = { .failed = text->failed };
        json_text_put(&whole, text->bytes, common);
        put_output(&whole, journal, told);
        answer(asker, &whole);
}

/* Takes the first of those who wait out of the list. */
static struct asker *next_asker(struct run *run) {
        struct asker *asker = run->askers;
        if (asker) {
                run->askers = asker->next;
                asker->run = NULL;
                asker->next = NULL;
        }
        return asker;
}

/* Writes the result down, then tells everybody who waits, each as it asked. Takes what the result owns. */
static void conclude(struct run *run, struct run_result *result, uint64_t took_us) {
        struct session *session = run->session;
        struct journal *journal = session->kernel->journal;
        tally_count_run(&session->daemon->tally, result->status, took_us);
        result->duration_ms = took_us / 1000;
        result->usage = session->kernel->usage;
        result->oom_killed = result->usage.oom_kills > 0;
        result->artifacts = harvest_collect(session, run->id);
        result->variables_lost |= session->variables_lost;
        session->variables_lost = false;
        struct journal_run told = { 0 };
        bool is_open = journal && journal_open_run(journal);
        if (journal)
                (void) journal_find(journal, run->id, &told, NULL);
        _cleanup_json_text_ struct json_text text = { 0 };
        size_t small;
        run_result_write(result, &text, &small);
        size_t common = text.size;
        put_cuts(&text, told.cut);
        if (is_open)
                write_down(journal, &text, small);
        for (struct asker *asker; (asker = next_asker(run));)
                tell_end(run, journal, asker, &told, &text, common);
        run_result_release(result);
}

void run_finish(struct run *run, const json_t *outcome) {
        struct kernel *kernel = run->session->kernel;
        uint64_t took_us = loop_now_us() - run->started_us;
        struct run_result result;
        kernel_measure_run(kernel, took_us);
        run_result_judge(run, outcome, &result);
        conclude(run, &result, took_us);
        kernel_catch_up(kernel);
}

bool run_finish_plain(struct run *run, const char *payload, size_t size) {
        struct kernel *kernel = run->session->kernel;
        uint64_t took_us = loop_now_us() - run->started_us;
        struct run_result result;
        if (!run_result_judge_plain(run, payload, size, &result))
                return false;
        kernel_measure_run(kernel, took_us);
        conclude(run, &result, took_us);
        kernel_catch_up(kernel);
        return true;
}

void run_finish_dead(struct run *run) {
        struct run_result result;
        run_result_judge_dead(run, &result);
        conclude(run, &result, loop_now_us() - run->started_us);
}

void run_finish_unsent(struct run *run) {
        struct run_result result;
        run_result_judge_unsent(run, &result);
        conclude(run, &result, 0);
}

void run_fail(struct run *run, const struct err *err) {
        run->session->daemon->tally.runs_ended[TALLY_REFUSED]++;
        for (struct asker *asker; (asker = next_asker(run));)
                asker_refuse(asker, err);
}
