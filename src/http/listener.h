/* The listening sockets: TCP addresses and a UNIX socket. */
#pragma once

#include "http/server.h"

/* Opens what the server's options name. On failure those that were opened stay with the server, which closes them. */
int http_listeners_open(struct http_server *server, struct err *err);
void http_listeners_close(struct http_server *server);
uint16_t http_listeners_port(const struct http_server *server);
