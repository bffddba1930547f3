#include "session/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/memory.h"
#include "kernel/kernel_reply.h"
#include "session/artifact_collect.h"
#include "session/caller.h"
#include "session/recovery.h"
#include "session/run_result.h"
#include "session/session.h"
#include "session/spill.h"
#include "session/waiting_run.h"

enum {
        FEED_CHUNK = 256 << 10,
        WEIGHT_SMALL = 16 << 10,
};

/* Random bytes are fetched for many runs at a time, and each is used once. */
int run_make_id(char ret_id[static 33]) {
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

/* The requests were bounded in depth when they were read (base/json_bounds.h). */
static size_t json_weight(const json_t *value) {
        size_t weight = json_string_length(value), i;
        const char *key;
        json_t *item;
        json_array_foreach (value, i, item)
                weight += json_weight(item);
        json_object_foreach ((json_t *) (uintptr_t) value, key, item)
                weight += strlen(key) + json_weight(item);
        return weight;
}

/* They stay in memory until they are over. */
static struct share_claim waiting_run_claim(const struct session *session, size_t weight) {
        return (struct share_claim) { .key = session->row.owner, .amount = weight, .is_granted = true };
}

int run_fits(const struct session *session, const json_t *request, struct err *err) {
        const struct share_claim claim = waiting_run_claim(session, json_weight(request));
        const struct share_table *shares = &session->manager->shares;
        return claim.amount <= WEIGHT_SMALL
                       ? 0
                       : share_judge(shares, SHARE_CODE, &claim, share_used(shares, SHARE_CODE, claim.key),
                                     share_used(shares, SHARE_CODE, NULL), err);
}

struct run *run_make(struct session *session, json_t *request, uint64_t timeout_ms) {
        struct run *run = malloc(sizeof(*run)); /* malloc: calloc is slower for memory that was just freed */
        if (!run)
                return NULL;
        *run = (struct run) {
                .session = session, .weight = json_weight(request), .timeout_ms = timeout_ms, .displays = { .fd = -1 }
        };
        const struct share_claim claim = waiting_run_claim(session, run->weight);
        if (run_make_id(run->id) < 0 || share_take(&session->manager->shares, SHARE_CODE, &claim, NULL) < 0) {
                free(run);
                return NULL;
        }
        run->request = json_incref(request);
        return run;
}

void run_free(struct run *run) {
        if (!run)
                return;
        loop_timer_drop(&run->timer);
        while (run->callers) { /* callers without an answer: their clients have disconnected */
                struct caller *caller = run->callers;
                run->callers = caller->next;
                caller->run = NULL;
        }
        const struct share_claim claim = waiting_run_claim(run->session, run->weight);
        share_give(&run->session->manager->shares, SHARE_CODE, &claim);
        json_decref(run->request);
        run_displays_release(&run->displays);
        free(run);
}

void run_write_request(const struct run *run, struct json_writer *text) {
        const char *key;
        json_t *value;
        json_writer_put_literal(text, "{\"id\":");
        json_writer_put_string(text, run->id, strlen(run->id));
        json_object_foreach (run->request, key, value) {
                json_writer_put_literal(text, ",");
                json_writer_put_string(text, key, strlen(key));
                json_writer_put_literal(text, ":");
                json_writer_put_value(text, value);
        }
        json_writer_put_literal(text, "}");
}

/* Also for the runs behind it: they have a kernel, too. */
void run_report_begun(struct session *session) {
        for (struct run *run = session->runs; run; run = run->next)
                for (struct caller *caller = run->callers, *next; caller; caller = next) {
                        next = caller->next;
                        caller_report_begun(caller, run->id);
                }
}

void run_add_caller(struct run *run, struct caller *caller) {
        caller->run = run;
        caller->next = run->callers;
        run->callers = caller;
        if (caller->type->accepted)
                caller->type->accepted(caller, run->id);
        if (run->session->runs && run->session->runs->started)
                caller_report_begun(caller, run->id);
        if (run->started)
                run_feed_caller(run, caller);
}

int run_add_reader(struct run *run, struct caller *caller, struct err *err) {
        size_t n = 0;
        for (const struct caller *other = run->callers; other; other = other->next)
                n += other->stream && other->cursor != UINT64_MAX; /* its client has disconnected and reads nothing */
        if (n >= RUN_READERS_MAX)
                return err_set(err, ERR_LIMIT, "%d clients read along with this run; read it when it is over",
                               RUN_READERS_MAX);
        run_add_caller(run, caller);
        return 0;
}

/* ---- while it is on ---- */

/* As much as the caller takes now; or all of it, which the journal's limits bound. -1: it cannot be read. */
static int feed_caller(struct journal *journal, const char *run_id, struct caller *caller, bool all, struct err *err) {
        static char chunk[FEED_CHUNK]; /* static: one thread uses it, and output() copies before it returns */
        while (caller->stream && (all || caller->type->wants_more(caller))) {
                struct journal_event event;
                if (journal_event(journal, run_id, caller->cursor, &event, err) < 0)
                        return err->code == ERR_NOT_FOUND ? 0 : -1; /* there is no more, for now */
                if (event.kind == JOURNAL_EVENT_RESULT)
                        return 0;
                for (size_t at = 0; at < event.size;) {
                        size_t size = 0;
                        if (journal_read(journal, &event, at, chunk, FEED_CHUNK, &size, err) < 0)
                                return -1;
                        if (size == 0)
                                break;
                        at += size;
                        const struct caller_output output = { event.kind == JOURNAL_EVENT_ERR, at == event.size,
                                                              event.number, chunk, size };
                        caller->type->output(caller, &output);
                }
                caller->cursor++;
        }
        return 0;
}

void run_add_display(struct run *run, const char *data, size_t size) {
        static const char question[] = "{\"application/x-glovebox-input\":"; /* as the kernel writes it */
        bool is_question = size >= sizeof(question) && memcmp(data, question, sizeof(question) - 1) == 0;
        if (!is_question && !run_displays_have_room(&run->displays, size))
                return;
        if (!is_question) /* it is for connected callers, and not stored */
                run_displays_add(&run->displays, run->session->state_dir, data, size);
        for (struct caller *caller = run->callers; caller; caller = caller->next)
                if (caller->stream && caller->type->wants_more(caller)) /* the result has them all */
                        caller->type->display(caller, data, size);
}

void run_feed_caller(struct run *run, struct caller *caller) {
        struct kernel *kernel = run->session->kernel;
        struct err err;
        if (kernel && kernel->journal)
                (void) feed_caller(kernel->journal, run->id, caller, false, &err); /* an error is reported at the end */
}

void run_feed(struct run *run) {
        for (struct caller *caller = run->callers; caller; caller = caller->next)
                run_feed_caller(run, caller);
}

/* ---- its result ---- */

/* How much of each stream was cut, and the end of the object. */
static void put_cuts(struct json_writer *text, const uint64_t cut[static JOURNAL_STREAMS]) {
        json_writer_put_literal(text, ",\"stdout_cut_bytes\":");
        json_writer_put_number(text, (int64_t) cut[JOURNAL_OUT]);
        json_writer_put_literal(text, ",\"stderr_cut_bytes\":");
        json_writer_put_number(text, (int64_t) cut[JOURNAL_ERR]);
        json_writer_put_literal(text, "}");
}

/* Writes the run's output, bounded, and the rest of the object, whose first part is there. -1: it cannot be read. */
static int put_run_output(struct json_writer *text, const struct journal *journal, const struct journal_run *record,
                          struct err *err) {
        static const char *const keys[] = { ",\"stdout\":", ",\"stderr\":" };
        uint64_t cut[JOURNAL_STREAMS];
        for (int i = 0; i < JOURNAL_STREAMS; i++) {
                char *bytes = NULL;
                size_t size = 0;
                if (record->bytes[i] > 0 && journal_read_stream(journal, record->run_id, (enum journal_stream) i,
                                                                RUN_INLINE_MAX, &bytes, &size, err) < 0)
                        return -1;
                size = json_writer_fitting(bytes, size, RUN_INLINE_WRITTEN_MAX);
                json_writer_put(text, keys[i], strlen(keys[i]));
                json_writer_put_string(text, bytes, size);
                cut[i] = record->cut[i] + record->bytes[i] - (size < record->bytes[i] ? size : record->bytes[i]);
                free(bytes);
        }
        put_cuts(text, cut);
        return 0;
}

/* A run must end in the journal, or no other could begin. A result that cannot be stored is stored without its large
 * parts; if even that fails, it stays in memory until there is space. */
static void write_down(struct journal *journal, const struct run_result *result, const struct json_writer *text,
                       size_t small, enum journal_holds holds) {
        if (!text->failed && journal_end(journal, text->bytes, text->size, holds, NULL) == 0)
                return;
        _cleanup_json_writer_ struct json_writer less = { 0 };
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        json_writer_put(&less, text->bytes, small);
        run_result_put_cut(result, &less);
        if (small == 0 || less.failed || journal_end(journal, less.bytes, less.size, holds, &err) < 0) {
                daemon_log("a run's result cannot be written down: %s", err.message);
                if (small > 0 && !less.failed)
                        journal_end_later(journal, less.bytes, less.size, holds);
        }
}

static bool is_behind(const struct run *run, struct journal *journal, const struct caller *caller) {
        struct journal_event event;
        return journal_event(journal, run->id, caller->cursor, &event, NULL) == 0 && event.kind != JOURNAL_EVENT_RESULT;
}

static void run_answer(struct caller *caller, const struct json_writer *text) {
        if (text->failed) {
                struct err err;
                (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                caller_refuse(caller, &err);
                return;
        }
        caller_answer_text(caller, text->bytes, text->size, NULL);
}

/* Sends the result with the run's output. Both may have megabytes, so the text is used in place, not copied, and
 * restored afterwards. */
static void answer_with_output(const struct journal *journal, struct caller *caller, const struct journal_run *record,
                               struct json_writer *text, size_t common) {
        struct err err = { 0 };
        bool had_failed = text->failed;
        text->size = common;
        if (put_run_output(text, journal, record, &err) < 0)
                caller_refuse(caller, &err);
        else
                run_answer(caller, text);
        text->failed = had_failed;
        text->size = common;
        put_cuts(text, record->cut);
}

/* Sends the end to one caller: the rest of the output, then the result. `common` is the size of its text without output
 * and end. */
static void send_end(struct run *run, struct journal *journal, struct caller *caller, const struct journal_run *record,
                     struct json_writer *text, size_t common) {
        struct err err = { 0 };
        if (caller->stream && !text->failed) {
                int code = journal ? feed_caller(journal, run->id, caller, false, &err) : 0;
                if (code == 0 && journal && is_behind(run, journal, caller)) {
                        if (spill_run(caller, journal, run->id, text->bytes, text->size, run->session->row.id, &err) ==
                            0)
                                return;
                        code = feed_caller(journal, run->id, caller, true, &err);
                }
                if (code < 0)
                        caller_refuse(caller, &err);
                else
                        run_answer(caller, text);
                return;
        }
        answer_with_output(journal, caller, record, text, common);
}

void run_answer_again(struct caller *caller, const struct journal *journal, const struct journal_run *record,
                      const char *result, size_t size) {
        static const char tail[] = ",\"stdout_cut_bytes\":";
        enum { TAIL_MAX = 128 };
        /* Replaces the end that put_cuts wrote, because more may be cut here. */
        const char *end = size > TAIL_MAX ? memmem(result + size - TAIL_MAX, TAIL_MAX, tail, sizeof(tail) - 1)
                                          : memmem(result, size, tail, sizeof(tail) - 1);
        _cleanup_json_writer_ struct json_writer whole = { 0 };
        json_writer_put(&whole, result, end ? (size_t) (end - result) : size - 1);
        struct err err;
        int code = 0;
        if (whole.size > 1)
                code = put_run_output(&whole, journal, record, &err);
        else
                json_writer_put_literal(&whole, "}");
        if (code < 0)
                caller_refuse(caller, &err);
        else
                run_answer(caller, &whole);
}

/* Takes the first waiting caller out of the list. */
static struct caller *next_caller(struct run *run) {
        struct caller *caller = run->callers;
        if (caller) {
                run->callers = caller->next;
                caller->run = NULL;
                caller->next = NULL;
        }
        return caller;
}

static void run_record(const struct run *run, const char *status, uint64_t took_us) {
        const struct session *session = run->session;
        const struct audit_entry entry = { .key = session->row.owner,
                                           .via = "daemon",
                                           .what = "run",
                                           .session = session->ephemeral ? NULL : session->row.name,
                                           .run_id = run->id,
                                           .status = status,
                                           .duration_ms = took_us / 1000 };
        audit_write(&session->manager->audit, &entry);
}

/* Records the result, then sends it to all callers, each in its own form. Takes ownership of the result's parts. */
static void run_conclude_result(struct run *run, struct run_result *result, uint64_t took_us,
                                enum journal_holds holds) {
        struct session *session = run->session;
        struct journal *journal = session->kernel->journal;
        counters_count_run(&session->manager->counters, result->status, took_us);
        run_record(run, result->status, took_us);
        result->duration_ms = took_us / 1000;
        result->usage = session->kernel->usage;
        result->oom_killed = result->usage.oom_kills > 0;
        artifact_collect_now(session, &result->artifacts);
        result->variables_lost |= run->reports_loss;
        result->wake_report = session->wake_report;
        session->wake_report = NULL;
        if (run->reason == RUN_REASON_NONE)
                disk_describe(session, result->warning, sizeof(result->warning));
        struct journal_run record = { 0 };
        bool is_open = journal && journal_open_run(journal);
        if (journal)
                (void) journal_find(journal, run->id, &record, NULL);
        _cleanup_json_writer_ struct json_writer text = { 0 };
        size_t small;
        run_displays_load(&run->displays);
        run_result_write(result, &text, &small);
        size_t common = text.size;
        run_displays_release(&run->displays);
        put_cuts(&text, record.cut);
        if (is_open)
                write_down(journal, result, &text, small, holds);
        for (struct caller *caller; (caller = next_caller(run));)
                send_end(run, journal, caller, &record, &text, common);
        run_result_release(result);
}

void run_finish(struct run *run, const struct kernel_reply *reply) {
        struct kernel *kernel = run->session->kernel;
        uint64_t took_us = loop_now_us() - run->started_us;
        struct run_result result;
        kernel_measure_run(kernel, took_us);
        run_result_judge(run, reply, &result);
        run_conclude_result(run, &result, took_us, JOURNAL_HOLDS_KERNEL);
        kernel_catch_up(kernel);
}

void run_finish_dead(struct run *run) {
        struct run_result result;
        run_result_judge_dead(run, &result);
        /* If no caller gets the report that variables are lost, the next result has it. */
        enum journal_holds holds = run->callers ? JOURNAL_HOLDS_NOTHING : JOURNAL_HOLDS_LOST;
        run_conclude_result(run, &result, loop_now_us() - run->started_us, holds);
}

void run_finish_without_result(struct run *run) {
        struct run_result result;
        run_result_judge_lost(run->id, "error", "result_lost",
                              "the run has ended, but its result was damaged on disk and is lost; variables are kept",
                              &result);
        result.displays = &run->displays.text;
        run_conclude_result(run, &result, loop_now_us() - run->started_us, JOURNAL_HOLDS_KERNEL);
}

void run_fail(struct run *run, const struct err *err) {
        run->session->manager->counters.runs_ended[COUNTERS_REFUSED]++;
        if (run->refusal)
                *run->refusal = *err;
        recovery_record_failure(run, err);
        waiting_run_drop(run);
        for (struct caller *caller; (caller = next_caller(run));)
                caller_refuse(caller, err);
}
