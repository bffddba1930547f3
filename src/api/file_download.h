/* A file as an answer: ranges, conditions, and a head that lets no browser run what code in a sandbox wrote. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "store/workspace.h"

struct api_request;

/* Takes the api_request and the descriptor. `name` is the file name for the client. */
void file_download_begin(struct api_request *api_request, int fd, const struct stat *status, const char *name);

struct file_download_file {
        const char *name;
        uint64_t size;
        char tag[WORKSPACE_TAG_SIZE]; /* "": none */
};

/* The part of the file that the client gets. */
struct file_download_part {
        int status;
        const char *type;
        uint64_t first, length;
};

/* Sends the head only; the caller sends the bytes. False: the request was answered and needs no bytes. */
bool file_download_head(struct api_request *api_request, const struct file_download_file *file,
                        struct file_download_part *ret_part);

/* "attachment" with this name, in any alphabet. 0, or -1: out of memory. */
int file_download_name(struct api_request *api_request, const char *name);
