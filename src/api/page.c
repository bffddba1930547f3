/* The page that renders /openapi.json. */
#include "api/page.h"

#include "api/api_request.h"
#include "api/routes.h"

void page_show(struct api_request *api_request) {
        (void) http_add_header(api_request->request, "Content-Security-Policy", page_policy);
        (void) http_add_header(api_request->request, "Referrer-Policy", "no-referrer");
        api_request_answer_bytes(api_request, 200, "text/html; charset=utf-8", page_html, page_html_size);
}

void page_lead(struct api_request *api_request) {
        (void) http_add_header(api_request->request, "Location", "/docs");
        api_request_answer_bytes(api_request, 302, NULL, "", 0);
}
