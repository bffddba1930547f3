/* The rules of a box's network: hosts, addresses, the filter between them, and requests to the proxy. */
#include "egress/filter.h"
#include "tap.h"

/* ---- hosts ---- */

static void test_hosts(void) {
        static const struct {
                const char *text, *name;
        } good[] = {
                { "example.com", "example.com" },
                { "EXAMPLE.Com", "example.com" },
                { "a-b.c9", "a-b.c9" },
                { "xn--bcher-kva.example", "xn--bcher-kva.example" },
                { "localhost", "localhost" },
                { "1.example", "1.example" },
                { "1.2.3.4", "1.2.3.4" },
                { "[::1]", "::1" },
                { "[2001:DB8:0::1]", "2001:db8::1" },
                { "[::FFFF:1.2.3.4]", "::ffff:1.2.3.4" },
        };
        struct egress_host host;
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                ok(!egress_host_parse(good[i].text, strlen(good[i].text), &host), "%s is a host", good[i].text);
                is_text(host.name, good[i].name, "%s in its canonical form", good[i].text);
        }
        static const char *const bad[] = {
                "",
                ".",
                "example.com.",
                ".example.com",
                "a..b",
                "-a.b",
                "a-.b",
                "a_b.c",
                "a b.c",
                "a@b.c",
                "a/b",
                "a%2eb",
                "a\\b",
                "\xc3\xbc.de",
                "127.1",
                "2130706433",
                "0x7f000001",
                "0x7f.1",
                "0177.0.0.1",
                "127.0.0.01",
                "1.2.3",
                "1.2.3.4.5",
                "1.2.3.256",
                "a.0x1",
                "a.1",
                "::1",
                "[::1",
                "[1.2.3.4]",
                "[fe80::1%1]",
                "[]",
                "*.example.com",
                "a,b",
                "a\nb",
                "0X7F.1",
        };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(egress_host_parse(bad[i], strlen(bad[i]), &host), "no. %zu of the bad hosts is refused", i);
        ok(egress_host_parse("a\0b", 3, &host), "a NUL is refused");
        char longest[300];
        memset(longest, 'a', sizeof(longest));
        for (size_t i = 63; i < sizeof(longest); i += 64)
                longest[i] = '.';
        ok(!egress_host_parse(longest, 253, &host), "253 characters are a host");
        ok(egress_host_parse(longest, 254, &host), "254 are none");
        ok(egress_host_parse("aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg.b", 66, &host),
           "a label has at most 63");
        static const char *const bad_ports[] = { "a:",   "a:0",   "a:00080", "a:65536", "a:123456", "a:+1",
                                                 "a:8 ", "a:1:2", "[::1]x",  "[::1]:",  ":80" };
        uint16_t port = 0;
        for (size_t i = 0; i < sizeof(bad_ports) / sizeof(bad_ports[0]); i++)
                ok(egress_authority_parse(bad_ports[i], strlen(bad_ports[i]), &host, &port), "%s is refused",
                   bad_ports[i]);
        ok(!egress_authority_parse("[::1]:65535", 11, &host, &port) && port == 65535, "brackets and a port");
}

/* ---- rules ---- */

static bool allows(const struct egress_rules *rules, const char *text, uint16_t port) {
        struct egress_host host;
        return !egress_host_parse(text, strlen(text), &host) && egress_rules_match(rules, &host, port);
}

static void test_rules(void) {
        static struct egress_rules rules;
        static const struct egress_operator strict, generous = { .allow_full = true };
        struct err err = { 0 };
        json_t *json = json_pack("{s:[s,s,s,s,s]}", "allow", "example.com", ".Example.ORG:443", "host:8080",
                                 "192.0.2.7", "[2001:db8::1]:81");
        ok(egress_rules_parse(json, &strict, &rules, &err) == 0 && rules.n_rules == 5, "a list: %s", err.message);
        json_decref(json);
        static const struct {
                const char *host;
                uint16_t port;
                bool allowed;
        } rows[] = {
                { "example.com", 443, true },
                { "example.com", 80, true },
                { "EXAMPLE.COM", 443, true },
                { "example.com", 8080, false },
                { "example.com", 444, false },
                { "www.example.com", 443, false },
                { "evil.com", 443, false },
                { "example.com.evil.com", 443, false },
                { "notexample.com", 443, false },
                { "xample.com", 443, false },
                { "com", 443, false },
                { "example.org", 443, true },
                { "www.example.org", 443, true },
                { "a.b.example.org", 443, true },
                { "notexample.org", 443, false },
                { "example.org.evil.com", 443, false },
                { "example.org", 80, false },
                { "org", 443, false },
                { "host", 8080, true },
                { "host", 80, false },
                { "a.host", 8080, false },
                { "192.0.2.7", 443, true },
                { "192.0.2.8", 443, false },
                { "[::ffff:192.0.2.7]", 443, false },
                { "[2001:db8::1]", 81, true },
                { "[2001:db8:0:0::1]", 81, true },
                { "[2001:db8::1]", 80, false },
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                ok(allows(&rules, rows[i].host, rows[i].port) == rows[i].allowed, "%s:%u is %s", rows[i].host,
                   rows[i].port, rows[i].allowed ? "allowed" : "refused");
        static const char *const bad[] = { "",         ".",   "..a", ".1.2.3.4", ".[::1]", "*",      "*.a.b",
                                           "http://a", "a/b", "a:b", "1.2.3",    "a.",     "a:443:1" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(egress_rules_add(&rules, bad[i], false, &err) < 0 && err.code == ERR_USAGE, "\"%s\" is no rule",
                   bad[i]);
        char text[64];
        is_text(egress_rules_describe(&rules, text), "proxy: 5 hosts", "how a list is described");
        json = json_string("full");
        ok(egress_rules_parse(json, &strict, &rules, &err) < 0 && err.code == ERR_REFUSED && rules.mode == EGRESS_NONE,
           "full is refused unless it is switched on");
        ok(egress_rules_parse(json, &generous, &rules, &err) == 0 && allows(&rules, "any.example", 1),
           "and reaches all");
        json_decref(json);
        ok(egress_rules_parse(NULL, &generous, &rules, &err) == 0 && rules.mode == EGRESS_NONE, "nothing is none");
        ok(!allows(&rules, "example.com", 443), "none reaches nothing");
}

/* ---- addresses ---- */

static enum egress_class class_of(const char *text) {
        union egress_address address;
        ok(egress_address_parse(text, &address), "%s is an address", text);
        return egress_address_class(&address);
}

static void test_addresses(void) {
        static const struct {
                const char *text;
                enum egress_class class;
        } rows[] = {
                { "8.8.8.8", EGRESS_PUBLIC },
                { "1.1.1.1", EGRESS_PUBLIC },
                { "9.255.255.255", EGRESS_PUBLIC },
                { "11.0.0.0", EGRESS_PUBLIC },
                { "100.63.255.255", EGRESS_PUBLIC },
                { "100.128.0.0", EGRESS_PUBLIC },
                { "172.15.255.255", EGRESS_PUBLIC },
                { "172.32.0.0", EGRESS_PUBLIC },
                { "192.167.255.255", EGRESS_PUBLIC },
                { "192.169.0.0", EGRESS_PUBLIC },
                { "223.255.255.255", EGRESS_PUBLIC },
                { "168.63.129.17", EGRESS_PUBLIC },
                { "10.0.0.0", EGRESS_PRIVATE },
                { "10.255.255.255", EGRESS_PRIVATE },
                { "100.64.0.0", EGRESS_PRIVATE },
                { "100.127.255.255", EGRESS_PRIVATE },
                { "127.0.0.1", EGRESS_PRIVATE },
                { "127.255.255.255", EGRESS_PRIVATE },
                { "172.16.0.0", EGRESS_PRIVATE },
                { "172.31.255.255", EGRESS_PRIVATE },
                { "192.168.0.0", EGRESS_PRIVATE },
                { "192.168.255.255", EGRESS_PRIVATE },
                { "0.0.0.0", EGRESS_FORBIDDEN },
                { "0.255.255.255", EGRESS_FORBIDDEN },
                { "169.254.169.254", EGRESS_FORBIDDEN },
                { "169.254.0.0", EGRESS_FORBIDDEN },
                { "100.100.100.200", EGRESS_FORBIDDEN },
                { "168.63.129.16", EGRESS_FORBIDDEN },
                { "192.0.0.192", EGRESS_FORBIDDEN },
                { "192.0.2.1", EGRESS_PRIVATE },
                { "192.88.99.1", EGRESS_FORBIDDEN },
                { "198.18.0.1", EGRESS_PRIVATE },
                { "198.51.100.1", EGRESS_PRIVATE },
                { "203.0.113.1", EGRESS_PRIVATE },
                { "224.0.0.1", EGRESS_FORBIDDEN },
                { "240.0.0.1", EGRESS_FORBIDDEN },
                { "255.255.255.255", EGRESS_FORBIDDEN },
                { "2606:4700::1111", EGRESS_PUBLIC },
                { "2a00:1450::1", EGRESS_PUBLIC },
                { "64:ff9b::808:808", EGRESS_PUBLIC },
                { "2001:4860:4860::8888", EGRESS_PUBLIC },
                { "::1", EGRESS_PRIVATE },
                { "fc00::1", EGRESS_PRIVATE },
                { "fdff:ffff::1", EGRESS_PRIVATE },
                { "fd00:ec2::254", EGRESS_FORBIDDEN },
                { "::", EGRESS_FORBIDDEN },
                { "::ffff:8.8.8.8", EGRESS_FORBIDDEN },
                { "::ffff:127.0.0.1", EGRESS_FORBIDDEN },
                { "::127.0.0.1", EGRESS_FORBIDDEN },
                { "64:ff9b::7f00:1", EGRESS_FORBIDDEN },
                { "64:ff9b::a9fe:a9fe", EGRESS_FORBIDDEN },
                { "64:ff9b::a00:1", EGRESS_FORBIDDEN },
                { "64:ff9b:1::808:808", EGRESS_FORBIDDEN },
                { "2002:7f00:1::", EGRESS_FORBIDDEN },
                { "2001::1", EGRESS_FORBIDDEN },
                { "2001:db8::1", EGRESS_FORBIDDEN },
                { "3fff::1", EGRESS_FORBIDDEN },
                { "100::1", EGRESS_FORBIDDEN },
                { "fe80::1", EGRESS_FORBIDDEN },
                { "fec0::1", EGRESS_FORBIDDEN },
                { "ff02::1", EGRESS_FORBIDDEN },
                { "4000::1", EGRESS_FORBIDDEN },
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                ok(class_of(rows[i].text) == rows[i].class, "%s is of class %d", rows[i].text, rows[i].class);
        union egress_address loopback;
        (void) egress_address_parse("127.0.0.1", &loopback);
        ok(egress_address_is_own(&loopback), "loopback is this machine's own");
}

/* ---- the filter ---- */

static size_t filter(const struct egress_operator *operator, bool trusted, const char *name, size_t *kept_first,
                     struct refusal *refusal) {
        static const char *const answer[] = { "169.254.169.254", "10.0.0.1", "1.1.1.1", "::ffff:1.1.1.1", "127.0.0.1" };
        union egress_address addresses[5];
        struct egress_rule rule = { .trusted = trusted };
        struct egress_host host;
        (void) egress_host_parse(name, strlen(name), &host);
        for (size_t i = 0; i < 5; i++)
                (void) egress_address_parse(answer[i], &addresses[i]);
        size_t kept = egress_filter_addresses(operator, & rule, &host, addresses, 5, refusal);
        *kept_first = kept ? ntohl(addresses[0].v4.sin_addr.s_addr) : 0;
        return kept;
}

static void test_filter(void) {
        static struct egress_operator operator;
        struct err err;
        struct refusal refusal = { 0 };
        size_t first;
        ok(filter(&operator, false, "mixed.example", &first, &refusal) == 1 && first == 0x01010101,
           "of a mixed answer only the public address is connected to");
        ok(filter(&operator, true, "mixed.example", &first, &refusal) == 3 && first == 0x0a000001,
           "a host of the operator's may be private, but not link-local and not in disguise");
        ok(egress_operator_add_private(&operator, ".corp.example", &err) == 0, "a domain that may be private");
        ok(filter(&operator, false, "a.corp.example", &first, &refusal) == 3, "counts for what is below it");
        ok(filter(&operator, false, "notcorp.example", &first, &refusal) == 1, "and for nothing else");
        union egress_address loopback;
        struct egress_host host;
        const struct egress_rule rule = { 0 };
        (void) egress_address_parse("127.0.0.1", &loopback);
        (void) egress_host_parse("sneaky.example", 14, &host);
        ok(egress_filter_addresses(&operator, & rule, &host, &loopback, 1, &refusal) == 0 && refusal.status == 403,
           "a name that leads to loopback is refused");
        ok(strstr(refusal.reason, "sneaky.example leads to a private address") && !strstr(refusal.advice, "127"),
           "by its name, without the address");
        ok(egress_operator_add_pin(&operator, "index.local=10.0.0.7", &err) == 0, "a pin");
        (void) egress_host_parse("index.local", 11, &host);
        is_text(egress_operator_find_pin(&operator, & host), "10.0.0.7", "is found");
        static const char *const bad[] = { "a", "=1.2.3.4", "a=", "a=b", "1.2.3.4=1.2.3.4", "a=1.2.3", "a b=1.2.3.4" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(egress_operator_add_pin(&operator, bad[i], &err) < 0, "\"%s\" is no pin", bad[i]);
}

static void test_via(void) {
        static const struct {
                const char *url, *host, *authorization;
                uint16_t port;
        } good[] = {
                { "http://proxy.example:3128", "proxy.example", "", 3128 },
                { "http://proxy.example/", "proxy.example", "", 80 },
                { "proxy.example:8080", "proxy.example", "", 8080 },
                { "http://u:p%40ss@10.0.0.1:1", "10.0.0.1", "Basic dTpwQHNz", 1 },
                { "http://a:b@h", "h", "Basic YTpi", 80 },
                { "http://a:bc@h", "h", "Basic YTpiYw==", 80 },
                { "http://ab:bc@h", "h", "Basic YWI6YmM=", 80 },
        };
        static struct egress_rules rules;
        struct err err = { 0 };
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                ok(egress_rules_set_upstream(&rules, good[i].url, &err) == 0 && rules.upstream.port == good[i].port,
                   "%s: %s", good[i].url, err.message);
                is_text(rules.upstream.host.name, good[i].host, "its host");
                is_text(rules.upstream.authorization, good[i].authorization, "its login");
        }
        static const char *const bad[] = { "",           "https://p:1",     "socks5://p:1", "http://",   "http://p:0",
                                           "http://p/x", "http://127.1:80", "http://%00@p", "http://p q" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(egress_rules_set_upstream(&rules, bad[i], &err) < 0, "\"%s\" is no proxy", bad[i]);
}

/* ---- requests ---- */

static int parse(const char *text, struct request *ret_request, struct refusal *refusal) {
        size_t scanned = 0, size = strlen(text);
        long head = request_scan(text, size, &scanned, refusal);
        if (head <= 0)
                return head < 0 ? -1 : -2;
        return request_parse(text, (size_t) head, ret_request, refusal);
}

static void test_requests(void) {
        struct request request;
        struct refusal refusal = { 0 };
        ok(parse("CONNECT Example.com:443 HTTP/1.0\r\n\r\nearly", &request, &refusal) == 0 && request.is_connect &&
                   request.port == 443 && !request.head,
           "CONNECT, as old clients say it");
        is_text(request.host.name, "example.com", "its host");
        ok(parse("POST http://a.b:81/x?y=%20 HTTP/1.1\r\nHost: evil\r\nA: b \r\nConnection: keep-alive, Hop\r\nHop: "
                 "1\r\n"
                 "Proxy-Authorization: z\r\ncontent-length: 3\r\n\r\nabc",
                 &request, &refusal) == 0 &&
                   !request.is_connect && request.body_size == 3,
           "a URL: %s", refusal.reason);
        is_text(request.head,
                "POST /x?y=%20 HTTP/1.1\r\nHost: a.b:81\r\nA: b\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
                "the head is written anew");
        request_release(&request);
        ok(parse("GET http://a.b?q HTTP/1.0\r\n\r\n", &request, &refusal) == 0, "a URL without a path");
        is_text(request.head, "GET /?q HTTP/1.0\r\nHost: a.b\r\nConnection: close\r\n\r\n", "gets one");
        request_release(&request);
        ok(parse("GET http://a.b/ HTTP/1.1\r\nHost: x", &request, &refusal) == -2, "half a head is not a whole one");
        static const char *const bad[] = {
                "GET / HTTP/1.1\r\n\r\n",
                "GET http://a.b/ HTTP/2.0\r\n\r\n",
                "GET http://a.b/\r\n\r\n",
                "GET  http://a.b/ HTTP/1.1\r\n\r\n",
                "GET http://a.b/ HTTP/1.1 \r\n\r\n",
                "GET http://a.b/#f HTTP/1.1\r\n\r\n",
                "GET http://u@a.b/ HTTP/1.1\r\n\r\n",
                "GET http://a.b:/ HTTP/1.1\r\n\r\n",
                "GET http:///x HTTP/1.1\r\n\r\n",
                "G@T http://a.b/ HTTP/1.1\r\n\r\n",
                "CONNECT a.b HTTP/1.1\r\n\r\n",
                "CONNECT http://a.b:443/ HTTP/1.1\r\n\r\n",
                "CONNECT a.b:443/ HTTP/1.1\r\n\r\n",
                "CONNECT a.b:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
                "CONNECT a.b:443 HTTP/1.1\n\n",
                "CONNECT a.b:443 HTTP/1.1\r\nA\r\n\r\n",
                "CONNECT a.b:443 HTTP/1.1\r\n A: b\r\n\r\n",
                "CONNECT a.b:443 HTTP/1.1\r\nA : b\r\n\r\n",
                "CONNECT a.b:443 HTTP/1.1\r\nA: \x01\r\n\r\n",
                "CONNECT a.b:443 HTTP/1.1\r\nA: b\rc\r\n\r\n",
                "POST http://a.b/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "POST http://a.b/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
                "POST http://a.b/ HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n",
                "POST http://a.b/ HTTP/1.1\r\nContent-Length: 9999999999999999999\r\n\r\n",
                "POST http://a.b/ HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
                "\r\nGET http://a.b/ HTTP/1.1\r\n\r\n",
        };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                refusal = (struct refusal) { 0 };
                ok(parse(bad[i], &request, &refusal) == -1 && refusal.status >= 400 && *refusal.reason &&
                           *refusal.advice,
                   "bad request no. %zu is refused in words", i);
        }
}

int main(void) {
        test_hosts();
        test_rules();
        test_addresses();
        test_filter();
        test_via();
        test_requests();
        return done_testing();
}
