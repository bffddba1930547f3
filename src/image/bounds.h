/* Every bound on the contents of an archive. */
#pragma once

enum {
        BOUND_PATH = 4095,          /* bytes of one path, and of one link's target */
        BOUND_DEPTH = 256,          /* components of one path; removal holds one descriptor for each */
        BOUND_ENTRIES = 1000000,    /* files, directories and links of one image */
        BOUND_HEADERS = 4000000,    /* tar headers of one stream, those that only describe others included */
        BOUND_PAX = 1 << 20,        /* bytes of one extended header */
        BOUND_JSON = 4 << 20,       /* bytes of one JSON document */
        BOUND_LAYERS = 512,         /* layers of one image */
        BOUND_MEMBERS = 10000,      /* files of one docker or OCI archive: layers and documents, not their contents */
        BOUND_RATIO = 200,          /* how many bytes one compressed byte may become ... */
        BOUND_RATIO_FREE = 64 << 20 /* ... once this many came out */
};

#define BOUND_BYTES_DEFAULT (20ull << 30) /* unpacked bytes of one image */
#define BOUND_BYTES_MAX (16ull << 40)
