#include "session/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/units.h"
#include "journal/journal.h"
#include "session/install.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "store/project_quota.h"

enum {
        TICK_MS = 200,
        TICK_IDLE_MS = 1000,  /* when nothing runs, but boxes are there */
        PACE_MS = 500,        /* between two measurements of a session while space goes away */
        PACE_CALM_MS = 2000,  /* and while it does not */
        DUTY = 8,             /* a session is measured for at most this part of the time, */
        DUTY_SUSPECT = 2,     /* and for this one when space goes away fast */
        LITTLE = 1 << 20,     /* bytes, which do not count as growing */
        LITTLE_FILES = 100,
        SUSPECT_MIN = 16 << 20,
        WRITING = 64 << 10,   /* bytes; a run that writes more than this below the reserve is ended */
        RESERVE_PERCENT = 5,
};

static const uint64_t reserve_standard = 1 << 30;

static void on_report(void *context, const struct meter_report *report);

/* ---- the file system ---- */

static bool disk_look(const struct session_manager *manager, uint64_t *ret_free, uint64_t *ret_total) {
        struct statvfs status;
        if (statvfs(manager->data_dir, &status) < 0)
                return false;
        *ret_free = (uint64_t) status.f_bavail * status.f_frsize;
        *ret_total = (uint64_t) status.f_blocks * status.f_frsize;
        return true;
}

static void disk_check_again(struct session_manager *manager) {
        struct disk_watch *disk = &manager->disk;
        uint64_t total;
        if (!disk_look(manager, &disk->free_bytes, &total))
                return;
        bool was_short = disk->is_short;
        disk->is_short = disk->free_bytes < disk->reserve_bytes;
        char free_text[32], reserve[32];
        journal_save_space(disk->is_short);
        if (disk->is_short != was_short)
                daemon_log(disk->is_short ? "%s is free on the disk, less than the reserve of %s: nothing more is "
                                            "written for sandboxes"
                                          : "%s is free on the disk again, more than the reserve of %s",
                           units_format_bytes(disk->free_bytes, free_text),
                           units_format_bytes(disk->reserve_bytes, reserve));
}

int disk_open(struct session_manager *manager, struct err *err) {
        struct disk_watch *disk = &manager->disk;
        uint64_t total = 0, asked = manager->options->reserve_disk_bytes;
        char text[32], all[32];
        manager->meter.report = on_report;
        manager->meter.context = manager;
        if (!disk_look(manager, &disk->free_bytes, &total))
                return 0; /* it cannot be determined: no reserve */
        uint64_t standard = total / 100 * RESERVE_PERCENT;
        if (standard > reserve_standard)
                standard = reserve_standard;
        disk->reserve_bytes = asked == SERVE_RESERVE_STANDARD ? standard : asked;
        if (disk->reserve_bytes >= total && total > 0)
                return err_set(err, ERR_USAGE,
                               "--reserve-disk: %s are to be kept free, and the file system of %.200s "
                               "has %s in all; choose less",
                               units_format_bytes(disk->reserve_bytes, text), manager->data_dir,
                               units_format_bytes(total, all));
        disk_check_again(manager);
        return 0;
}

void disk_close(struct session_manager *manager) {
        loop_timer_drop(&manager->disk.timer);
}

/* ---- one session ---- */

static uint64_t files_max(const struct session *session) {
        const struct limits standard = LIMITS_DEFAULT;
        return session->row.limits.disk_files ? session->row.limits.disk_files : standard.disk_files;
}

/* The directories to measure. A workspace that the operator named is not measured. */
static const char *workspace_of(const struct session *session) {
        return session->ephemeral || *session->row.workspace ? "" : session->workspace;
}

/* With a quota only for the reserve, which quotas do not know. */
static bool is_watched(const struct session *session) {
        return !session_is_going(session) && (!session->ephemeral || session->helps);
}

const char *disk_bounded_by(const struct session *session) {
        if (session->ephemeral && !*session->row.workspace)
                return "tmpfs";
        return *session->row.workspace ? "none" : session->disk.is_quota ? "quota" : "watched";
}

static void fill_order(const struct session *session, struct meter_order *order) {
        const struct cgroup_host *host = &session->manager->host;
        *order = (struct meter_order) { .max_files = files_max(session) };
        (void) snprintf(order->id, sizeof(order->id), "%s", session->row.id);
        (void) snprintf(order->workspace, sizeof(order->workspace), "%s", workspace_of(session));
        if (session->helps)
                install_staging(session->helps, order->workspace, sizeof(order->workspace));
        else
                (void) snprintf(order->state, sizeof(order->state), "%s/kernel", session->state_dir);
        for (size_t i = 0; session->kernel && i < CGROUP_PLACES && !*order->processes; i++)
                if (*host->parent[i])
                        (void) snprintf(order->processes, sizeof(order->processes), "%s/%s/cgroup.procs",
                                        host->parent[i], session->kernel->group);
}

static bool ask_meter(struct session *session) {
        struct disk_use *use = &session->disk;
        struct meter_order order;
        fill_order(session, &order);
        if (!meter_measure(&session->manager->meter, &order))
                return false;
        use->is_asked = true;
        use->is_busy = session->runs && session->runs->started; /* what it writes from now on is measured later */
        use->pending_before = use->pending;
        use->is_ours_asked = use->is_ours;
        use->is_ours = session->asked != SESSION_ASKED_NOTHING;
        return true;
}

/* The free space that has disappeared since the measurement, for any reason. */
static uint64_t gone_since(const struct session *session) {
        uint64_t before = session->disk.free_bytes, now = session->manager->disk.free_bytes;
        return before > now ? before - now : 0;
}

/* True if it may have used half of its limit. */
static bool is_suspect(const struct session *session) {
        uint64_t limit = session->row.limits.disk_bytes, has = session->disk.bytes,
                 half = limit > has ? (limit - has) / 2 : 0;
        return gone_since(session) > (half > SUSPECT_MIN ? half : SUSPECT_MIN);
}

/* In use: a run is active, or ended since the last measurement, or background code may be writing. */
static bool is_used(const struct session *session) {
        const struct disk_use *use = &session->disk;
        bool is_running = session->runs && session->runs->started;
        if (use->is_quota && !session->manager->disk.is_short)
                return false;
        return is_watched(session) && (is_running || use->is_busy || use->outcome.payload ||
                                       (session->kernel && (session->manager->disk.is_short || is_suspect(session))));
}

static bool is_due(const struct session *session, uint64_t now_ms) {
        const struct disk_use *use = &session->disk;
        uint64_t pace_ms = gone_since(session) > LITTLE ? PACE_MS : PACE_CALM_MS;
        if (use->measured_ms == 0 || session->manager->disk.is_short || is_suspect(session))
                pace_ms = TICK_MS / 2;
        uint64_t duty = pace_ms < PACE_MS ? DUTY_SUSPECT : DUTY;
        if (pace_ms < duty * use->took_ms)
                pace_ms = duty * use->took_ms;
        return now_ms - use->measured_ms >= pace_ms;
}

/* ---- what a measurement means ---- */

static void end_run(struct run *run, enum run_reason reason) {
        if (!session_end_run(run, reason))
                return;
        (void) snprintf(run->why, sizeof(run->why), "%s", "");
        disk_describe(run->session, run->why, sizeof(run->why));
}

/* A run in a session that was over its limit already may not add to it. */
static bool has_grown(const struct run *run, const struct disk_use *use) {
        return use->bytes > run->disk_bytes + LITTLE || use->files > run->disk_files + LITTLE_FILES;
}

static void judge_limit(struct session *session, uint64_t bytes_before) {
        struct disk_use *use = &session->disk;
        struct run *run = session->runs;
        if (!use->is_over)
                return;
        if (run && run->started) {
                if (!run->is_excused || has_grown(run, use))
                        end_run(run, RUN_REASON_DISK);
        } else if (session->kernel && session->kernel->state != KERNEL_MAKING && bytes_before > 0 &&
                   use->bytes > bytes_before + LITTLE) {
                daemon_log("session %s: what its code left running writes past the disk limit; the box is ended",
                           session->row.name);
                kernel_kill(session->kernel);
        }
}

/* An idle box is ended only for what it wrote between two measurements below the reserve, not for what came before. */
static void judge_reserve(struct session *session, uint64_t written_before, uint64_t bytes_before, bool was_short) {
        const struct disk_use *use = &session->disk;
        bool is_writing = (written_before > 0 && use->written > written_before + WRITING) ||
                          (bytes_before > 0 && use->bytes > bytes_before + WRITING);
        if (!session->manager->disk.is_short || !is_writing || use->is_ours || use->is_ours_asked)
                return;
        if (session->runs && session->runs->started)
                end_run(session->runs, RUN_REASON_RESERVE);
        else if (was_short && session->kernel && session->kernel->state != KERNEL_MAKING) {
                daemon_log("session %s: what its code left running writes below the reserve of the disk; the box is "
                           "ended",
                           session->row.name);
                kernel_kill(session->kernel);
        }
}

static void report_held(struct session *session) {
        struct kernel_reply outcome = session->disk.outcome;
        if (!outcome.payload)
                return;
        session->disk.outcome = (struct kernel_reply) { 0 };
        session->disk.is_fresh = true;
        session->disk_report(session, &outcome);
        kernel_reply_release(&outcome);
}

/* A sleep file may be as large as the memory limit; only what exceeds that counts. */
static uint64_t count_state(const struct session *session, uint64_t bytes) {
        uint64_t usual = 2 * session->row.limits.memory_bytes;
        return bytes > usual ? bytes - usual : 0;
}

static void take_report(struct session *session, const struct meter_report *report) {
        struct disk_use *use = &session->disk;
        const struct disk_use before = *use;
        use->is_asked = false;
        use->measured_ms = loop_now_ms();
        use->took_ms = report->took_us / 1000;
        use->free_bytes = session->manager->disk.free_bytes;
        use->bytes = report->bytes + count_state(session, report->state_bytes);
        use->files = report->files;
        use->is_short = session->manager->disk.is_short;
        use->written = report->written;
        use->pending -= use->pending_before < use->pending ? use->pending_before : use->pending;
        use->is_over = !use->is_quota && (report->is_cut || use->bytes > session->row.limits.disk_bytes ||
                                          use->files > files_max(session));
        if (before.measured_ms) {
                judge_limit(session, before.bytes);
                judge_reserve(session, before.written, before.bytes, before.is_short);
        } else
                judge_limit(session, 0);
        report_held(session);
}

static void on_report(void *context, const struct meter_report *report) {
        struct session_manager *manager = context;
        for (struct session *session = manager->sessions, *next; session; session = next) {
                next = session->next;
                if (!report) { /* the meter has died: its request is repeated, without waiting */
                        session->disk.is_busy |= session->disk.is_asked;
                        session->disk.is_asked = false;
                        report_held(session);
                } else if (strcmp(session->row.id, report->id) == 0 && session->disk.is_asked) {
                        take_report(session, report);
                        return;
                }
        }
}

/* ---- time ---- */

static void on_tick(void *context);

static void disk_arm_timer(struct session_manager *manager, uint64_t in_ms) {
        if (!manager->disk.timer && !manager->draining)
                manager->disk.timer = loop_timer(manager->loop, loop_now_ms() + in_ms, on_tick, manager);
}

static void on_tick(void *context) {
        struct session_manager *manager = context;
        uint64_t now_ms = loop_now_ms();
        bool is_busy = manager->disk.is_short, is_needed = is_busy;
        manager->disk.timer = NULL;
        disk_check_again(manager);
        for (struct session *session = manager->sessions; session; session = session->next) {
                is_needed |= session->kernel && is_watched(session);
                is_busy |= session->disk.is_quota && session->runs && session->runs->started && is_watched(session);
                if (!is_used(session))
                        continue;
                is_busy = true;
                if (!session->disk.is_asked && is_due(session, now_ms))
                        (void) ask_meter(session);
        }
        manager->disk.is_idle = !is_busy;
        if (is_busy || is_needed)
                disk_arm_timer(manager, is_busy ? TICK_MS : TICK_IDLE_MS);
}

static void mark_busy(struct session *session) {
        struct disk_watch *disk = &session->manager->disk;
        if (!is_watched(session))
                return;
        session->disk.is_busy = true;
        if (disk->is_idle)
                loop_timer_drop(&disk->timer);
        disk->is_idle = false;
        disk_arm_timer(session->manager, TICK_MS);
}

/* ---- for the session ---- */

void disk_begin_question(struct session *session) {
        session->disk.is_ours = true;
}

void disk_begin_run(struct session *session, struct run *run) {
        session->disk.is_fresh = false;
        run->is_excused = session->disk.is_over;
        run->disk_bytes = session->disk.bytes;
        run->disk_files = session->disk.files;
        mark_busy(session);
}

bool disk_hold_result(struct session *session, const struct kernel_reply *outcome,
                      void (*report)(struct session *session, const struct kernel_reply *outcome)) {
        struct disk_use *use = &session->disk;
        if (!use->is_over || use->is_fresh || session->runs->reason != RUN_REASON_NONE || use->outcome.payload)
                return use->outcome.payload != NULL;
        use->is_asked = false; /* a measurement that is under way began too early */
        struct kernel_reply copy;
        if (!is_watched(session) || !kernel_reply_copy(outcome, &copy))
                return false;
        if (!ask_meter(session)) {
                kernel_reply_release(&copy);
                return false;
        }
        loop_timer_drop(&session->runs->timer); /* the code has ended in time */
        use->outcome = copy;
        session->disk_report = report;
        return true;
}

void disk_describe(const struct session *session, char *ret_text, size_t room) {
        const struct disk_use *use = &session->disk;
        const struct disk_watch *disk = &session->manager->disk;
        char limit[32], used[32], free_text[32];
        const struct run *run = session->runs;
        *ret_text = '\0';
        if (run && run->reason == RUN_REASON_RESERVE)
                (void) snprintf(ret_text, room,
                                "the host has %s left on its disk, less than the %s that it keeps in "
                                "reserve, and the run was writing; ask the operator to free space, or write less",
                                units_format_bytes(disk->free_bytes, free_text),
                                units_format_bytes(disk->reserve_bytes, limit));
        else if (use->is_over && use->bytes <= session->row.limits.disk_bytes)
                (void) snprintf(ret_text, room,
                                "limit of %llu files reached: there are %llu, or directories nested too "
                                "deeply to be counted; remove files",
                                (unsigned long long) files_max(session), (unsigned long long) use->files);
        else if (use->is_over)
                (void) snprintf(ret_text, room, "disk limit %s reached: %s are in use; remove files or raise --disk",
                                units_format_bytes(session->row.limits.disk_bytes, limit),
                                units_format_bytes(use->bytes, used));
}

/* The daemon is root, whom a quota does not stop: it looks before it writes for a client. */
static void read_quota(struct session *session) {
        struct disk_use *use = &session->disk;
        _cleanup_fd_ int fd = open(session->workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
                (void) project_quota_used(fd, &use->bytes, &use->files);
}

int disk_admit(struct session_manager *manager, struct session *session, uint64_t size, struct err *err) {
        struct disk_watch *disk = &manager->disk;
        char limit[32], used[32];
        if (size == 0 || disk->is_short || disk->free_bytes < disk->reserve_bytes + (256 << 20))
                disk_check_again(manager); /* one cheap call, and only where it may matter */
        else
                disk->free_bytes -= size < disk->free_bytes ? size : disk->free_bytes; /* until it is looked at again */
        if (disk->free_bytes < disk->reserve_bytes + size || disk->is_short)
                return err_set(err, ERR_NO_SPACE,
                               "the host has %s left on its disk and keeps %s in reserve; remove "
                               "what is not needed, or ask the operator to free space",
                               units_format_bytes(disk->free_bytes, used),
                               units_format_bytes(disk->reserve_bytes, limit));
        if (!session || !is_watched(session) || *session->row.workspace)
                return 0;
        struct disk_use *use = &session->disk;
        if (use->is_quota)
                read_quota(session);
        uint64_t has = use->bytes + use->pending;
        if (has + size > session->row.limits.disk_bytes || use->files > files_max(session)) {
                mark_busy(session); /* files may have been removed since it was measured: the next attempt knows */
                return err_set(err, ERR_NO_SPACE,
                               "disk limit %s reached: %s are in use; remove files or make the "
                               "sandbox with a larger disk",
                               units_format_bytes(session->row.limits.disk_bytes, limit),
                               units_format_bytes(has, used));
        }
        if (use->is_quota) /* it is known what was written, at any time */
                return 0;
        use->pending += size;
        mark_busy(session);
        return 0;
}

void disk_give_back(struct session *session, uint64_t size) {
        struct disk_use *use = &session->disk;
        use->pending -= size < use->pending ? size : use->pending;
        if (use->pending_before > use->pending)
                use->pending_before = use->pending;
}

/* ---- quotas ---- */

static void each_directory(struct session *session, bool (*act)(int fd, const struct session *session, bool is_state),
                           bool *ret_all) {
        char state[1100];
        (void) snprintf(state, sizeof(state), "%s/kernel", session->state_dir);
        const char *const paths[] = { session->workspace, state };
        *ret_all = true;
        for (size_t i = 0; i < 2; i++) {
                _cleanup_fd_ int fd = open(paths[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                *ret_all = *ret_all && fd >= 0 && act(fd, session, i == 1);
        }
}

static uint64_t session_disk_bytes(const struct session *session, bool is_state) {
        const struct limits *limits = &session->row.limits;
        return is_state ? 2 * limits->memory_bytes + limits->disk_bytes : limits->disk_bytes;
}

static bool bound_one(int fd, const struct session *session, bool is_state) {
        return project_quota_set(fd, session->row.id, session_disk_bytes(session, is_state), files_max(session)) == 0;
}

static bool is_bound(int fd, const struct session *session, bool is_state) {
        (void) session;
        (void) is_state;
        return project_quota_is_set(fd);
}

static bool unbound_one(int fd, const struct session *session, bool is_state) {
        (void) session;
        (void) is_state;
        project_quota_clear(fd);
        return true;
}

void disk_bound(struct session *session, bool is_new) {
        char state[1100];
        if (session->ephemeral || *session->row.workspace)
                return;
        (void) snprintf(state, sizeof(state), "%s/kernel", session->state_dir);
        if (is_new)
                (void) mkdir(state, 0700);
        each_directory(session, is_new ? bound_one : is_bound, &session->disk.is_quota);
}

static bool rebound_one(int fd, const struct session *session, bool is_state) {
        return project_quota_change(fd, session_disk_bytes(session, is_state), files_max(session)) == 0;
}

void disk_limit_changed(struct session *session) {
        bool all;
        if (session->disk.is_quota)
                each_directory(session, rebound_one, &all);
        session->disk.is_over =
                !session->disk.is_quota && (session->disk.bytes > session->row.limits.disk_bytes ||
                                            session->disk.files > files_max(session)); /* as far as it is known */
        mark_busy(session);
}

void disk_unbound(struct session *session) {
        bool all;
        if (session->disk.is_quota)
                each_directory(session, unbound_one, &all);
}
