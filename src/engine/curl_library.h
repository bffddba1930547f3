/* libcurl, loaded at run time, because only the helper process that connects to a remote needs it. */
#pragma once

#include <curl/curl.h>

#include "base/err.h"

struct curl_library {
        CURLcode (*global_init)(long flags);
        CURL *(*easy_init)(void);
        CURLcode (*easy_setopt)(CURL *easy, CURLoption option, ...);
        CURLcode (*easy_getinfo)(CURL *easy, CURLINFO info, ...);
        CURLcode (*easy_send)(CURL *easy, const void *bytes, size_t size, size_t *ret_sent);
        CURLcode (*easy_recv)(CURL *easy, void *bytes, size_t size, size_t *ret_received);
        void (*easy_cleanup)(CURL *easy);
        const char *(*easy_strerror)(CURLcode code);
        CURLM *(*multi_init)(void);
        CURLMcode (*multi_setopt)(CURLM *multi, CURLMoption option, ...);
        CURLMcode (*multi_add_handle)(CURLM *multi, CURL *easy);
        CURLMcode (*multi_remove_handle)(CURLM *multi, CURL *easy);
        CURLMcode (*multi_socket_action)(CURLM *multi, curl_socket_t fd, int events, int *ret_running);
        CURLMcode (*multi_assign)(CURLM *multi, curl_socket_t fd, void *context);
        CURLMsg *(*multi_info_read)(CURLM *multi, int *ret_left);
        CURLU *(*url)(void);
        CURLUcode (*url_set)(CURLU *url, CURLUPart part, const char *text, unsigned flags);
        CURLUcode (*url_get)(const CURLU *url, CURLUPart part, char **ret_text, unsigned flags);
        void (*url_cleanup)(CURLU *url);
};

/* ERR_UNSUPPORTED: libcurl is missing or too old; the message says what to install. */
int curl_library_load(struct curl_library *ret_library, struct err *err);
