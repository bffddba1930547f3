/* One box with a kernel, from the request to the reply, in steps: box and kernel seal themselves most of the time, and
 * the maker works on other boxes meanwhile. */
#pragma once

#include <stdbool.h>

#include "box/cgroup/cgroup.h"
#include "spawn/box_pool.h"
#include "spawn/maker.h"
#include "spawn/nursery.h"

struct spawn_job;

/* Begins with a box: one of the pool, or a new one. The nursery is ready or NULL; without a pool the job makes a box
 * for the pool. `settings`, `host` and `nursery` are borrowed until the end. NULL with err. */
struct spawn_job *spawn_job_start(const struct maker_settings *settings, const struct cgroup_host *host,
                                  struct nursery *nursery, struct box_pool *pool, const struct maker_request *request,
                                  struct err *err);
void spawn_job_free(struct spawn_job *job); /* removes everything that was not handed on */

bool spawn_job_is_for_pool(const struct spawn_job *job);
const struct maker_request *spawn_job_request(const struct spawn_job *job);
const struct nursery *spawn_job_nursery(const struct spawn_job *job); /* that it was begun with, or NULL */

/* Readable when spawn_job_continue has something to do. -1: it waits for nothing. */
int spawn_job_wait_fd(const struct spawn_job *job);
bool spawn_job_is_late(const struct spawn_job *job); /* it waits in vain: spawn_job_continue says so */

/* The next step: the box is sealed, its kernel started, the kernel sealed. Waits if it is called too early. The job is
 * done when this has succeeded and there is nothing to wait for. */
int spawn_job_continue(struct spawn_job *job, struct err *err);

/* The job is done: fills the reply, which owns everything afterwards. */
void spawn_job_finish(struct spawn_job *job, struct maker_reply *reply);

/* Adds the mounts of the request to a ready box (box/late_mounts.h). The reply gets its new workspace, if any. */
int spawn_job_attach(const struct maker_settings *settings, const struct maker_request *request, int box_pidfd,
                     struct maker_reply *reply, struct err *err);

/* The box is sealed: puts it into the pool. */
void spawn_job_store(struct spawn_job *job, struct box_pool *pool);
