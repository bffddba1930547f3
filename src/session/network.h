/* The daemon's side of the proxy (egress/egress.h): it is started when the first box needs it, and again when it died,
 * with every box that has a network. */
#pragma once

#include "egress/egress.h"
#include "session/manager.h"

struct session;

/* What the boxes of a session may reach: session->granted, or what its row asked for, by what the operator allows
 * today. The caller frees it; NULL for nothing at all. */
int network_rules_of(const struct session *session, struct egress_rules **ret_rules, struct err *err);

/* Gives the proxy every kernel that has a network and was not given to it yet. */
void network_connect(struct session_manager *manager);

/* The same for a box that is no session's kernel; descriptors are borrowed. It is forgotten when the proxy dies. */
int network_admit(struct session_manager *manager, int listener_fd, int pidfd, const struct egress_rules *rules,
                  struct err *err);

void network_stop(struct session_manager *manager);
