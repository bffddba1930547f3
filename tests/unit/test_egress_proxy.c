/* The proxy's process, with what no client can ask for: rules of the operator's own, and a proxy behind ours. The box
 * is this process: its listening socket, its pidfd. */
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/egress.h"
#include "egress/filter.h"
#include "tap.h"

enum { PATIENCE_MS = 60000 };

static int listen_on_loopback(uint16_t *ret_port) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t size = sizeof(address);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, 128) < 0 ||
            getsockname(fd, (struct sockaddr *) &address, &size) < 0)
                abort();
        *ret_port = ntohs(address.sin_port);
        return fd;
}

static int connect_to(uint16_t port) {
        struct sockaddr_in address = { .sin_family = AF_INET,
                                       .sin_port = htons(port),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                abort();
        return fd;
}

/* Up to the end of a head, or all there is. */
static const char *hear(int fd) {
        static char text[8192];
        size_t size = 0;
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        ssize_t n;
        text[0] = '\0';
        while (size < sizeof(text) - 1 && !strstr(text, "\r\n\r\n") && poll(&polled, 1, PATIENCE_MS) == 1 &&
               (n = read(fd, text + size, sizeof(text) - 1 - size)) > 0) {
                size += (size_t) n;
                text[size] = '\0';
        }
        return text;
}

static int accept_soon(int fd) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        return poll(&polled, 1, PATIENCE_MS) == 1 ? accept(fd, NULL, NULL) : -1;
}

static void say(int fd, const char *text) {
        if (fd_write_all(fd, text, strlen(text)) < 0)
                abort();
}

struct place {
        struct helper_program *egress;
        int server_fd, pidfd;
        uint16_t server_port;
};

/* A box with these rules: the port of its listener. */
static uint16_t admit(const struct place *place, const struct egress_rules *rules) {
        struct err err = { 0 };
        uint16_t port;
        _cleanup_fd_ int fd = listen_on_loopback(&port);
        (void) fd_set_nonblocking(fd);
        ok(egress_admit(place->egress, fd, place->pidfd, rules, &err) == 0, "a box is admitted: %s", err.message);
        return port;
}

static void test_trusted(const struct place *place) {
        static struct egress_rules rules, distrusted;
        char text[64], request[128];
        (void) snprintf(text, sizeof(text), "127.0.0.1:%u", place->server_port);
        (void) snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\n\r\n", text);
        ok(egress_rules_add(&rules, text, true, NULL) == 0 && egress_rules_add(&distrusted, text, false, NULL) == 0,
           "the same rule, of the operator's own and of a client's");
        _cleanup_fd_ int client = connect_to(admit(place, &rules));
        say(client, request);
        _cleanup_fd_ int server = accept_soon(place->server_fd);
        ok(server >= 0, "a host of the operator's own may be a private address");
        is_text(hear(client), "HTTP/1.1 200 Connection established\r\n\r\n", "and is connected");
        say(client, "ping\r\n\r\n");
        is_text(hear(server), "ping\r\n\r\n", "to the server");
        say(server, "pong\r\n\r\n");
        is_text(hear(client), "pong\r\n\r\n", "and back");
        _cleanup_fd_ int other = connect_to(admit(place, &distrusted));
        say(other, request);
        ok(strstr(hear(other), "403 127.0.0.1 leads to a private address"), "a client's may not");
}

static void test_via(const struct place *place) {
        static struct egress_rules rules;
        char url[64];
        struct err err = { 0 };
        (void) snprintf(url, sizeof(url), "http://me:secret@127.0.0.1:%u/", place->server_port);
        ok(egress_rules_add(&rules, "index.invalid", false, &err) == 0 &&
                   egress_rules_set_upstream(&rules, url, &err) == 0,
           "a list behind another proxy: %s", err.message);
        uint16_t port = admit(place, &rules);
        _cleanup_fd_ int client = connect_to(port);
        say(client, "CONNECT index.invalid:443 HTTP/1.1\r\nProxy-Authorization: Basic mine\r\n\r\n");
        _cleanup_fd_ int upstream = accept_soon(place->server_fd);
        is_text(hear(upstream),
                "CONNECT index.invalid:443 HTTP/1.1\r\nHost: index.invalid:443\r\n"
                "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n",
                "it is asked for the tunnel, in our words");
        say(upstream, "HTTP/1.1 200 OK from there\r\n\r\n");
        is_text(hear(client), "HTTP/1.1 200 OK from there\r\n\r\n", "its answer is passed on");
        say(client, "ping\r\n\r\n");
        is_text(hear(upstream), "ping\r\n\r\n", "and from there on bytes are");
        _cleanup_fd_ int smuggler = connect_to(port);
        say(smuggler, "CONNECT index.invalid:443 HTTP/1.1\r\n\r\n");
        _cleanup_fd_ int unwilling = accept_soon(place->server_fd);
        (void) hear(unwilling);
        say(unwilling, "HTTP/1.1 502 Bad Gateway\r\n\r\n");
        is_text(hear(smuggler), "HTTP/1.1 502 Bad Gateway\r\n\r\n", "a refusal is passed on");
        say(smuggler, "GET http://other.invalid/ HTTP/1.1\r\n\r\n");
        (void) shutdown(unwilling, SHUT_WR);
        is_text(hear(unwilling), "", "and no request behind it, which it would take for one of ours");
        _cleanup_fd_ int hasty = connect_to(port);
        say(hasty, "CONNECT index.invalid:443 HTTP/1.1\r\n\r\nGET http://other.invalid/ HTTP/1.1\r\n\r\n");
        _cleanup_fd_ int untold = accept_soon(place->server_fd);
        is_text(hear(untold), "", "nor one that did not wait for the answer");
        _cleanup_fd_ int getter = connect_to(port);
        say(getter, "GET http://index.invalid/simple/ HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n");
        _cleanup_fd_ int second = accept_soon(place->server_fd);
        is_text(hear(second),
                "GET http://index.invalid:80/simple/ HTTP/1.1\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n"
                "Host: index.invalid\r\nA: b\r\nConnection: close\r\n\r\n",
                "or for the URL");
        _cleanup_fd_ int refused = connect_to(port);
        say(refused, "CONNECT other.invalid:443 HTTP/1.1\r\n\r\n");
        ok(strstr(hear(refused), "403 other.invalid:443 is not on the allow-list"), "the rules hold all the same");
}

/* One key opens all the connections that its boxes may have; another one's is served at once. */
static void test_shares(const struct place *place) {
        enum { BOXES = 70, EACH = 64, SOON_MS = 5000 };
        static struct egress_rules greedy = { .key = "greedy" }, modest = { .key = "modest" };
        static int held[BOXES * EACH];
        struct rlimit files = { 0 };
        (void) getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_cur < BOXES * EACH + 200) {
                ok(true, "shares of connections # SKIP optional: too few descriptors here");
                return;
        }
        (void) egress_rules_add(&greedy, "a.invalid", false, NULL);
        (void) egress_rules_add(&modest, "a.invalid", false, NULL);
        for (size_t i = 0; i < BOXES; i++) {
                struct sockaddr_in address = { .sin_family = AF_INET,
                                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                               .sin_port = htons(admit(place, &greedy)) };
                for (size_t n = 0; n < EACH; n++) {
                        int fd = held[i * EACH + n] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                        (void) connect(fd, (struct sockaddr *) &address, sizeof(address));
                }
        }
        (void) usleep(500 * 1000); /* for the proxy to accept what it will */
        _cleanup_fd_ int client = connect_to(admit(place, &modest));
        struct timespec began, ended;
        (void) clock_gettime(CLOCK_MONOTONIC, &began);
        say(client, "CONNECT b.invalid:443 HTTP/1.1\r\n\r\n");
        ok(strstr(hear(client), "403 b.invalid:443 is not on the allow-list"), "another key is answered");
        (void) clock_gettime(CLOCK_MONOTONIC, &ended);
        ok((ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000 < SOON_MS,
           "while one has as many connections open as it can");
        for (size_t i = 0; i < BOXES * EACH; i++)
                fd_close(&held[i]);
}

/* In a network of its own, where a public address is this machine's. */
static void test_own_public_address(const struct egress_operator *operator) {
        static const struct egress_rule rule, trusted = { .trusted = true };
        const struct egress_host host = { .name = "self.example" };
        struct refusal refusal = { 0 };
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        union egress_address own, other, copy;
        (void) egress_address_parse("1.1.1.1", &own);
        (void) egress_address_parse("8.8.8.8", &other);
        _cleanup_fd_ int fd = unshare(CLONE_NEWNET) < 0 ? -1 : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        int code = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &request);
        memcpy(&request.ifr_addr, &own.v4, sizeof(own.v4));
        if (code < 0 || ioctl(fd, SIOCSIFADDR, &request) < 0) {
                ok(true, "own public address # SKIP optional: no network namespace here");
                return;
        }
        copy = own;
        ok(egress_filter_addresses(operator, & rule, &host, &copy, 1, &refusal) == 0 &&
                   strstr(refusal.reason, "leads to a private address"),
           "the machine's own public address is as private as its loopback");
        copy = own;
        ok(egress_filter_addresses(operator, & trusted, &host, &copy, 1, &refusal) == 1,
           "but for the operator's hosts");
        copy = other;
        ok(egress_filter_addresses(operator, & rule, &host, &copy, 1, &refusal) == 1, "others are public");
}

int main(int argc, char **argv) {
        egress_serve_if_asked(argc, argv);
        static struct egress_operator operator;
        struct helper_program egress = HELPER_PROGRAM_DOWN;
        struct err err = { 0 };
        if (geteuid() != 0) {
                printf("1..0 # SKIP optional: the proxy's seal needs root or a user namespace\n");
                return 0;
        }
        struct place place = { .egress = &egress, .pidfd = (int) syscall(SYS_pidfd_open, getpid(), 0) };
        place.server_fd = listen_on_loopback(&place.server_port);
        ok(place.pidfd >= 0 && egress_start(&operator, "/tmp", &egress, &err) == 0, "the proxy starts: %s",
           err.message);
        test_trusted(&place);
        test_via(&place);
        test_shares(&place);
        helper_program_stop(&egress);
        test_own_public_address(&operator);
        ok(egress.fd == -1 && egress.pid == 0, "it is stopped");
        fd_close(&place.server_fd);
        fd_close(&place.pidfd);
        return done_testing();
}
