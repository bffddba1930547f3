/* The index of a journal: which runs there are, and where their records and bytes begin and end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/journal_state.h"

bool journal_is_run_id(const char *id, size_t size) {
        if (size < 1 || size > JOURNAL_ID_MAX)
                return false;
        return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == size;
}

/* Those that stay are not moved now: that would be a hundred of them, 18 KB, in every run. */
void journal_index_drop(struct journal *journal, size_t n_oldest) {
        if (n_oldest == 0)
                return; /* there may be no places yet */
        for (size_t i = 0; i < n_oldest; i++) {
                free(journal->runs[i].marks);
                journal->n_dropped_events += journal->runs[i].shown.events;
        }
        journal->runs += n_oldest;
        journal->n_runs -= n_oldest;
        journal->n_dropped += n_oldest;
}

int journal_index_reserve_run(struct journal *journal) {
        size_t n_before = (size_t) (journal->runs - journal->places);
        if (n_before + journal->n_runs < journal->n_places)
                return 0;
        if (n_before > 0) {
                memmove(journal->places, journal->runs, journal->n_runs * sizeof(journal->runs[0]));
                journal->runs = journal->places;
                return 0;
        }
        size_t n = journal->n_places > 0 ? 2 * journal->n_places : 1;
        struct journal_entry *places = reallocarray(journal->places, n, sizeof(*places));
        if (!places)
                return -ENOMEM;
        journal->places = journal->runs = places;
        journal->n_places = n;
        return 0;
}

void journal_index_begin(struct journal *journal, const char *run_id, int64_t began_ms) {
        if (journal->n_runs > JOURNAL_RUNS_KEPT - 1)
                journal_index_drop(journal, journal->n_runs - (JOURNAL_RUNS_KEPT - 1));
        struct journal_entry *run = &journal->runs[journal->n_runs];
        *run = (struct journal_entry) { .shown.began_ms = began_ms };
        *stpncpy(run->shown.run_id, run_id, sizeof(run->shown.run_id) - 1) = '\0';
        memcpy(run->start, journal->end, sizeof(run->start));
        memcpy(run->recorded, journal->end, sizeof(run->recorded));
        journal->n_runs++;
        journal->is_open = true;
        /* Of a run that version 1 wrote down; journal_index_request says more. */
        journal->request = (struct journal_request) { .is_run = true };
        memcpy(journal->request.id, run->shown.run_id, sizeof(journal->request.id));
        journal->request_at = 0;
        journal->holds = JOURNAL_HOLDS_UNKNOWN;
}

void journal_index_request(struct journal *journal, const struct journal_request *request, uint64_t payload_at) {
        journal->request = *request;
        journal->request.payload = NULL;
        journal->request_at = payload_at;
        journal->inbox_mark = request->inbox_at;
        journal->is_asked = !request->is_run;
        if (request->is_run)
                journal->holds = JOURNAL_HOLDS_KERNEL;
}

void journal_index_hold(struct journal *journal, enum journal_holds holds, uint32_t inbox_mark) {
        journal->is_asked = false;
        journal->holds = holds;
        journal->inbox_mark = inbox_mark;
}

int journal_index_reserve(struct journal *journal) {
        struct journal_entry *run = journal_newest(journal);
        /* Grown in powers of two. */
        if (run->shown.events % JOURNAL_MARK_EVERY != 0 || (run->n_marks & (run->n_marks - 1)) != 0)
                return 0;
        size_t room = run->n_marks > 0 ? 2 * run->n_marks : 1;
        uint64_t *marks = reallocarray(run->marks, room, sizeof(*marks));
        if (!marks)
                return -ENOMEM;
        run->marks = marks;
        return 0;
}

void journal_index_stream(struct journal *journal, enum journal_stream stream, uint64_t at, uint64_t size) {
        struct journal_entry *run = journal_newest(journal);
        if (run->shown.events % JOURNAL_MARK_EVERY == 0)
                run->marks[run->n_marks++] = at;
        run->shown.events++;
        run->recorded[stream] += size;
}

void journal_index_end(struct journal *journal, int64_t ended_ms, const uint64_t cut[static JOURNAL_STREAMS],
                       uint64_t result_at, uint64_t result_size) {
        struct journal_entry *run = journal_newest(journal);
        run->shown.ended = true;
        run->shown.ended_ms = ended_ms;
        run->shown.events++;
        memcpy(run->shown.cut, cut, sizeof(run->shown.cut));
        run->result_at = result_at;
        run->result_size = result_size;
        journal->is_open = false;
}
