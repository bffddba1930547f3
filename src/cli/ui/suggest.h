/* "Did you mean": the nearest of some known words to one that is not known. */
#pragma once

struct suggestion {
        const char *word;    /* what was typed; set by the caller, the rest starts as zero */
        const char *nearest; /* borrowed from the caller of suggestion_consider */
        unsigned distance;
};

void suggestion_consider(struct suggestion *suggestion, const char *candidate);

/* The nearest candidate if it is near enough to be what was meant, or NULL. */
const char *suggestion_best(const struct suggestion *suggestion);
