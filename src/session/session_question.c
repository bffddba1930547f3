#include "session/session_question.h"
#include "base/log.h"
#include "session/session_config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "box/spec.h"
#include "session/caller.h"
#include "session/held_back.h"
#include "session/install.h"
#include "session/session_kernel.h"
#include "session/sleep_file.h"
#include "session/sleep_report.h"

#define SLEEP_PATH "/run/session/" SLEEP_FILE /* as the kernel sees it */

/* Files in these directories are in memory, so the sleep file has to contain them. */
#define SLEEP_REQUEST "\"path\":\"" SLEEP_PATH "\",\"exit\":true,\"files\":[\"/tmp\",\"" BOX_HOME "\",\"/dev/shm\"]"

/* ---- asking ---- */

/* `fields` are those of the payload, but for its id. */
static int ask_kernel(struct session *session, enum kernel_frame type, const char *fields, struct err *err) {
        struct journal_request request = { .type = (uint8_t) type };
        _cleanup_free_ char *payload = NULL;
        if (run_make_id(request.id) < 0)
                return err_set(err, ERR_SYSTEM, "out of randomness");
        int size = asprintf(&payload, "{\"id\":\"%s\",%s}", request.id, fields);
        if (size < 0)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        request.payload = payload;
        request.size = (size_t) size;
        disk_begin_question(session);
        return kernel_request(session->kernel, &request, err);
}

void session_ask_wake(struct session *session) {
        struct err err;
        if (ask_kernel(session, KERNEL_WAKE, "\"path\":\"" SLEEP_PATH "\"", &err) == 0)
                session->asked = SESSION_ASKED_WAKE;
        else
                session_fail_runs(session, &err);
}

int session_hibernate(struct session *session, bool trim_only, struct caller *caller, struct err *err) {
        if (!session->kernel || session->asked != SESSION_ASKED_NOTHING || session->runs)
                return err_set(err, ERR_BUSY, "session %s %s", session->row.name,
                               session->kernel ? "is running; interrupt it first" : "has no kernel to put to sleep");
        if (!trim_only && session_config_has_users(&session->row))
                return err_set(err, ERR_UNSUPPORTED,
                               "session %s has users: they and their files are in its box, which a sleep would end; "
                               "trim it instead (depth \"trim\")",
                               session->row.name);
        if (disk_admit(session->manager, NULL, 0, err) < 0) /* both write */
                return err_prefix(err, "session %s stays awake", session->row.name);
        int code = trim_only ? ask_kernel(session, KERNEL_TRIM, "\"directory\":\"/run/session\"", err)
                             : ask_kernel(session, KERNEL_SLEEP, SLEEP_REQUEST, err);
        if (code < 0)
                return -1;
        session->asked = trim_only ? SESSION_ASKED_TRIM : SESSION_ASKED_SLEEP;
        session->caller = caller;
        if (caller)
                caller->session = session;
        return 0;
}

int session_ask_packages(struct session *session, const char *fields) {
        if (!session->kernel || session->runs || session->asked != SESSION_ASKED_NOTHING ||
            ask_kernel(session, KERNEL_PACKAGES, fields, NULL) < 0)
                return -1;
        session->asked = SESSION_ASKED_PACKAGES;
        return 0;
}

void session_question_adopt(struct session *session, const struct journal_request *open) {
        session->asked = open->type == KERNEL_TRIM    ? SESSION_ASKED_TRIM
                         : open->type == KERNEL_SLEEP ? SESSION_ASKED_SLEEP
                         : open->type == KERNEL_WAKE  ? SESSION_ASKED_WAKE
                                                      : SESSION_ASKED_PACKAGES;
        session_set_state(session, SESSION_IDLE);
}

/* ---- answers ---- */

static void answer_caller(struct session *session, json_t *answer, const struct err *err) {
        struct caller *caller = session->caller;
        session->caller = NULL;
        if (caller && err)
                caller_refuse(caller, err);
        else if (caller)
                caller_answer(caller, json_incref(answer));
}

/* Records where the variables are from now on, and thereby closes the question. */
static int record_holds(struct session *session, enum journal_holds holds, struct err *err) {
        return journal_hold(session->kernel->journal, holds, err);
}

/* The next result contains what the kernel reports about a wake. True when variables are lost. */
static bool keep_wake_report(struct session *session, const json_t *answer, bool good) {
        json_t *report = sleep_report(answer);
        bool is_damaged = !good || json_array_size(json_object_get(report, "damaged")) > 0;
        json_decref(session->wake_report);
        session->wake_report = json_object_size(report) > 0 ? json_incref(report) : NULL;
        json_decref(report);
        return is_damaged;
}

/* Ends a kernel that was being woken: the session is as before, with everything in its file. */
static void stay_asleep(struct session *session) {
        session_set_state(session, SESSION_ASLEEP);
        session_end_kernel(session);
}

static void on_woken(struct session *session, bool good, const json_t *answer) {
        struct err err;
        const char *why = json_string_value(json_object_get(answer, "error"));
        session_set_state(session, SESSION_IDLE);
        if (keep_wake_report(session, answer, good)) {
                (void) record_holds(session, JOURNAL_HOLDS_LOST, NULL);
                sleep_file_set_aside(session, good  ? "some variables are damaged on the disk; the others came back"
                                              : why ? why
                                                    : "the kernel gave no reason");
        } else if (record_holds(session, JOURNAL_HOLDS_KERNEL, &err) == 0)
                sleep_file_remove(session); /* not earlier: a crash in between would lose both */
        else { /* the record does not fit on the disk: the session stays asleep */
                session_fail_runs(session, &err);
                stay_asleep(session);
        }
}

static void on_trimmed(struct session *session, const json_t *answer, json_t *report) {
        (void) record_holds(session, JOURNAL_HOLDS_TRIMMED, NULL);
        session_set_state(session, SESSION_TRIMMED);
        json_object_set(report, "bytes", json_object_get(answer, "bytes"));
}

static void on_slept(struct session *session, const json_t *answer, json_t *report) {
        struct err err;
        json_decref(session->held_back);
        session->held_back = NULL;
        /* If this fails, the recorded question and the file are enough for the next daemon. */
        if (record_holds(session, JOURNAL_HOLDS_FILE, &err) < 0)
                daemon_log("session %s: %s", session->row.name, err.message);
        session_set_state(session, SESSION_ASLEEP);
        json_t *lists = sleep_report(answer);
        json_object_update(report, lists);
        json_decref(lists);
        json_object_set(report, "bytes", json_object_get(answer, "bytes"));
        session_end_kernel(session); /* it is exiting anyway */
}

/* Keeps the names of variables that prevent the sleep, and requests a trim instead. True if the caller now waits for
 * the trim. */
static bool trim_instead(struct session *session, json_t *held) {
        json_decref(session->held_back);
        session->held_back = held_back_of(held);
        (void) record_holds(session, JOURNAL_HOLDS_KERNEL, NULL);
        if (session_hibernate(session, true, session->caller, NULL) < 0)
                return false;
        session->asked = SESSION_ASKED_TRIM_INSTEAD;
        return true;
}

/* A trim or a sleep failed; the variables are in memory as before. The reason goes to the caller, or to the log. */
static void on_not_asleep(struct session *session, const json_t *answer) {
        struct err err;
        sleep_error(session->row.name, answer, &err);
        if (session->caller)
                answer_caller(session, NULL, &err);
        else
                daemon_log("%s", err.message);
        session->used_ms = loop_now_ms(); /* not again before another idle period */
}

static void on_packages_checked(struct session *session, json_t *answer) {
        (void) record_holds(session, journal_holds(session->kernel->journal), NULL);
        if (session->install)
                install_kernel_answered(session->install, answer);
        session_advance(session);
}

/* An answer about a trim, a sleep or a wake. */
static void on_sleep_answer(struct session *session, enum session_question asked, json_t *answer) {
        bool good = json_is_true(json_object_get(answer, "ok"));
        bool is_trim = asked == SESSION_ASKED_TRIM || asked == SESSION_ASKED_TRIM_INSTEAD;
        json_t *held = asked == SESSION_ASKED_SLEEP && !good ? json_object_get(answer, "held") : NULL;
        if (held && trim_instead(session, held))
                return;
        json_t *report = json_object();
        if (asked == SESSION_ASKED_WAKE)
                on_woken(session, good, answer);
        else if (is_trim && good)
                on_trimmed(session, answer, report);
        else if (asked == SESSION_ASKED_SLEEP && good)
                on_slept(session, answer, report);
        else if (!held) {
                (void) record_holds(session, JOURNAL_HOLDS_KERNEL, NULL);
                if (asked != SESSION_ASKED_TRIM_INSTEAD) /* else the caller gets the names */
                        on_not_asleep(session, answer);
        }
        json_object_set_new(report, "state", json_string(session_state_name(session)));
        if (session->held_back)
                json_object_set(report, "held_back", session->held_back);
        answer_caller(session, report, NULL);
        json_decref(report);
        session_advance(session);
}

static void session_question_on_answer(struct session *session, json_t *answer) {
        enum session_question asked = session->asked;
        session->asked = SESSION_ASKED_NOTHING;
        if (asked == SESSION_ASKED_PACKAGES)
                on_packages_checked(session, answer);
        else
                on_sleep_answer(session, asked, answer);
}

void session_question_answered(struct session *session, const struct kernel_reply *reply) {
        json_t *answer = kernel_reply_parse(reply);
        if (answer)
                session_question_on_answer(session, answer);
        else
                session_break_off_kernel(session);
        json_decref(answer);
}

void session_question_lost(struct session *session) {
        if (session->asked == SESSION_ASKED_WAKE) { /* how far it came is unknown, and the file is still there */
                session->asked = SESSION_ASKED_NOTHING;
                stay_asleep(session);
                return;
        }
        json_t *lost = json_pack("{s:b, s:s}", "ok", 0, "error", "its answer is lost");
        session_question_on_answer(session, lost);
        json_decref(lost);
}

enum session_question session_question_dropped(struct session *session) {
        enum session_question asked = session->asked;
        if (asked == SESSION_ASKED_PACKAGES && session->install)
                install_kernel_answered(session->install, NULL);
        session->asked = SESSION_ASKED_NOTHING;
        return asked;
}

void session_question_refuse(struct session *session) {
        struct err gone;
        (void) err_set(&gone, ERR_GONE, "the kernel died before it answered");
        answer_caller(session, NULL, &gone);
}
