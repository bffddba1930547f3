/* The daemon's side of the proxy (egress/egress.h): it is started when the first box needs it, and restarted if it
 * dies; then it gets all boxes with a network again. */
#pragma once

#include "session/manager.h"

struct egress_rules;
struct session;

/* The hosts that a session's boxes may reach: session->granted, or those of its row, limited to what the operator
 * allows now. The caller frees it; NULL for nothing at all. */
int network_rules_of(const struct session *session, struct egress_rules **ret_rules, struct err *err);

/* Passes every kernel with a network to the proxy, if it does not have it yet. */
void network_connect(struct session_manager *manager);

void network_stop(struct session_manager *manager);
