/* Removes control groups of boxes that no kernel of this daemon has any more. */
#pragma once

struct session_manager;

/* Groups that a caller has claimed (base/claim.h) stay; a later sweep removes them. Does nothing before the take-over:
 * until then it is unknown which groups are in use. */
void group_sweep(struct session_manager *manager);
