/* One box with a kernel, from the request to the reply, in steps: while the box seals itself, which takes as long as
 * all the rest, the maker has time for another. */
#pragma once

#include <stdbool.h>

#include "box/cgroup.h"
#include "session/maker.h"
#include "session/nursery.h"
#include "session/stock.h"

struct making;

/* Begins with a box: one of the stock's, or a new one. The nursery is ready or NULL; without a stock it is a box for
 * the stock that is made. `settings`, `host` and `nursery` are borrowed until the end. NULL with err. */
struct making *making_start(const struct maker_settings *settings, const struct cgroup_host *host,
                            struct nursery *nursery, struct stock *stock, const struct maker_request *request,
                            struct err *err);
void making_free(struct making *making); /* takes apart what was not handed on */

bool making_is_for_stock(const struct making *making);
const struct maker_request *making_request(const struct making *making);
const struct nursery *making_nursery(const struct making *making); /* that it was begun with, or NULL */

/* Readable when making_settle can be called without a wait; -1 when that is now. */
int making_wait_fd(const struct making *making);
int making_settle(struct making *making, struct err *err);

/* The box is settled: starts its kernel and fills the reply, which owns everything afterwards. */
int making_finish(struct making *making, struct maker_reply *reply, struct err *err);

/* The box is settled: into the stock with it. */
void making_store(struct making *making, struct stock *stock);
