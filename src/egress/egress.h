/* The network of boxes: an HTTP proxy of our own, in a process of its own.
 *
 * Theory of operation. A box has no network but its own loopback. If rules give it one, its stage makes a listening
 * socket on 127.0.0.1:3128 in the box and passes it out; the maker of the box gives that socket to the proxy, with the
 * rules and the box's pidfd. A socket belongs to the network namespace that it was made in, so the proxy accepts
 * connections of the box while it lives in the host's network. It admits the hosts that the rules name, connects to
 * addresses that it has checked, and forgets the box when the pidfd reports its end. The process has no privileges and
 * writes no files. If it dies, connections break, and the daemon or command starts another one and passes it the same
 * sockets. */
#pragma once

#include "base/helper_program.h"
#include "egress/rules.h"

/* Call it first in main() of a program that starts proxies: in the proxy process it never returns. */
void egress_serve_if_asked(int argc, char **argv);

/* Starts the proxy. The operator's settings are copied. `owner` is shown by ps: the data directory, or "". */
int egress_start(const struct egress_operator *settings, const char *owner, struct helper_program *ret_proxy,
                 struct err *err);

/* Adds a box; descriptors are borrowed. ERR_BUSY: the socket is full, try again when fd is writable. ERR_GONE: the
 * proxy is dead. */
int egress_admit(const struct helper_program *proxy, int listener_fd, int pidfd, const struct egress_rules *rules,
                 struct err *err);
