/* The network of boxes: an HTTP proxy in a separate process.
 *
 * Theory of operation. A box has no network but its own loopback. If rules allow hosts, the stage of the box makes a
 * listening socket on 127.0.0.1:3128 in the box and passes it to the maker of the box. The maker passes that socket to
 * the proxy, with the rules and the box's pidfd. A socket belongs to the network namespace in which it was made. So the
 * proxy accepts connections of the box, although the proxy itself is in the host's network. It admits the hosts that
 * the rules name and connects only to addresses that it has checked. It removes the box when the pidfd reports its end.
 * The process has no privileges and writes no files. If it dies, connections break, and the daemon or the command
 * starts another one and passes it the same sockets. */
#pragma once

#include "base/helper_program.h"
#include "egress/rules.h"

/* Call it first in main() of a program that starts proxies. In the proxy process it never returns. */
void egress_serve_if_asked(int argc, char **argv);

/* Starts the proxy and copies the operator's settings. ps shows `owner`: the data directory, or "". */
int egress_start(const struct egress_operator *settings, const char *owner, struct helper_program *ret_proxy,
                 struct err *err);

/* Adds a box; descriptors are borrowed. ERR_BUSY: the socket is full; try again when fd is writable. ERR_GONE: the
 * proxy has died. */
int egress_admit(const struct helper_program *proxy, int listener_fd, int pidfd, const struct egress_rules *rules,
                 struct err *err);
