/* web/docs.html, carried in the program, and the policy under which a browser runs it (tools/embed_page.py). */
#pragma once

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_size;
extern const char page_policy[]; /* Content-Security-Policy: this script, this style, this server, and nothing else */
