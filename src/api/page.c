/* The page that renders /openapi.json. */
#include "api/page.h"

#include "api/exchange.h"
#include "api/routes.h"

void page_show(struct exchange *exchange) {
        (void) http_add_header(exchange->request, "Content-Security-Policy", page_policy);
        (void) http_add_header(exchange->request, "Referrer-Policy", "no-referrer");
        exchange_answer_bytes(exchange, 200, "text/html; charset=utf-8", page_html, page_html_size);
}

void page_lead(struct exchange *exchange) {
        (void) http_add_header(exchange->request, "Location", "/docs");
        exchange_answer_bytes(exchange, 302, NULL, "", 0);
}
