/* Journals of ephemeral runs. A run that ends with its daemon leaves nothing for the next one to read, so the files of
 * its journal have no name and need no directory. They are on the disk like all others, as output may be large, and
 * emptied ones serve the next run: making and deleting files for each costs a file system far more than the run's few
 * bytes in them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "journal/journal_state.h"
#include "store/reaper.h"

enum {
        SPARE_MAX = 8,
        EMPTIED_MAX = 256 << 10, /* bytes of a file; giving back the blocks of a larger one may take its time */
};

static char place[4200]; /* where the files are made; "": nowhere yet */
static struct journal *spares[SPARE_MAX];
static size_t n_spares;

void journal_scratch_start(const char *dir) {
        (void) snprintf(place, sizeof(place), "%s", dir);
}

void journal_scratch_stop(void) {
        while (n_spares > 0)
                journal_free(spares[--n_spares]);
        place[0] = '\0';
}

/* Returns a descriptor or -errno. */
static int journal_scratch_make_file(void) {
        int fd = open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
                return fd < 0 ? -errno : fd;
        /* Not every file system makes files without a name (an older overlayfs). */
        char path[sizeof(place) + 16];
        (void) snprintf(path, sizeof(path), "%s/scratch-XXXXXX", place);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        (void) unlink(path);
        return fd;
}

int journal_scratch_open(struct journal **ret_journal, struct err *err) {
        if (n_spares > 0) {
                *ret_journal = spares[--n_spares];
                return 0;
        }
        struct journal *journal = journal_alloc();
        int code = journal ? 0 : -ENOMEM;
        for (size_t i = 0; i < JOURNAL_FILES && code >= 0; i++)
                code = journal->fds[i] = journal_scratch_make_file();
        if (code < 0) {
                journal_free(journal);
                return err_sys(err, -code, "making the journal of a run in %s", place);
        }
        journal->is_scratch = true;
        journal->head.version = JOURNAL_VERSION;
        *ret_journal = journal;
        return 0;
}

/* False if a file should be deleted rather than emptied. */
static bool scratch_empty_files(struct journal *journal) {
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                if (journal->end[i] - journal->head.base[i] > EMPTIED_MAX)
                        return false;
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                if (journal->end[i] > 0 && ftruncate(journal->fds[i], 0) < 0)
                        return false;
        journal_index_drop(journal, journal->n_runs);
        journal->head = (struct journal_head) { .version = JOURNAL_VERSION };
        memset(journal->end, 0, sizeof(journal->end));
        journal->is_open = journal->is_asked = false;
        journal->holds = JOURNAL_HOLDS_UNKNOWN;
        free(journal->owed);
        journal->owed = NULL;
        journal->recorded_ms = 0;
        journal->n_dropped = 0;
        journal->n_dropped_events = 0;
        return true;
}

void journal_scratch_close(struct journal *journal) {
        if (n_spares < SPARE_MAX && *place && scratch_empty_files(journal)) {
                spares[n_spares++] = journal;
                return;
        }
        /* Closing the last descriptor of a file without a name frees its blocks, which the daemon must not wait for. */
        reaper_close(journal->fds, JOURNAL_FILES);
        journal_free(journal);
}
