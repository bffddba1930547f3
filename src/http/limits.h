/* Every bound of the HTTP server. Input of clients is bounded here before it is parsed. */
#pragma once

enum {
        HTTP_LINE_MAX = 8 << 10,  /* a request line or a header line, with its CRLF */
        HTTP_HEAD_MAX = 32 << 10, /* a whole head; positions in it fit into 16 bits */
        HTTP_HEADERS_MAX = 100,
        HTTP_METHOD_MAX = 32,
        HTTP_LENGTH_DIGITS_MAX = 18, /* of a Content-Length: stays below 2^63 */
        HTTP_CHUNK_DIGITS_MAX = 15,  /* hexadecimal, of a chunk's size: stays below 2^60 */
        HTTP_QUERY_PAIRS_MAX = 64,

        HTTP_READ_SIZE = 128 << 10,  /* one read of a socket; also what a paused connection may hold */
        HTTP_HOLDER_MAX = 64,        /* characters of the name of a connection's client */
        HTTP_OUT_HIGH = 256 << 10,   /* a stream should wait once this much is queued, ... */
        HTTP_OUT_LOW = 64 << 10,     /* ... and continues below this */
        HTTP_OUT_MAX = 16 << 20,     /* nothing is queued past this: bigger answers are streamed */
        HTTP_OUT_KEPT = 16 << 10,    /* an empty queue gives back what is larger */
        HTTP_HEAD_KEPT = 4 << 10,    /* the same for the room of a head */
        HTTP_FIELDS_MAX = 8 << 10,   /* headers that a handler adds to its answer */
        HTTP_COLLECT_SMALL = 128 << 10, /* room for a body that is read whole: this much there always is, ... */
        HTTP_COLLECT_MAX = 256 << 20,   /* ... and more for as many as fit into this together */
        HTTP_DISCARD_MAX =
                64 << 10, /* an unused body: up to this is read and dropped, beyond it the connection closes */
        HTTP_LINGER_MAX = 4 << 20,   /* read away after a refusal, so that the client gets to read why */

        HTTP_LISTENERS_MAX = 4,
        HTTP_BACKLOG = 1024,
        HTTP_ACCEPTS_PER_TURN = 64,
        HTTP_ACCEPT_PAUSE_MS = 100, /* when descriptors ran out */

        MULTIPART_BOUNDARY_MAX = 70,  /* RFC 2046 */
        MULTIPART_HEAD_MAX = 4 << 10, /* the headers of one part */
        MULTIPART_NAME_MAX = 1 << 10, /* a field's name, a file's name */
        MULTIPART_PARTS_MAX = 64,
};
