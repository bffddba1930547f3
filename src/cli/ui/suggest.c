#include "cli/ui/suggest.h"

#include <string.h>

enum { WORD_MAX = 32 };

static unsigned smaller(unsigned a, unsigned b) {
        return a < b ? a : b;
}

/* Letters to insert, delete, replace or swap with their neighbour to get from a to b; both at most WORD_MAX long. */
static unsigned edit_distance(const char *a, const char *b) {
        unsigned cost[WORD_MAX + 1][WORD_MAX + 1];
        size_t n_a = strlen(a), n_b = strlen(b);
        for (size_t i = 0; i <= n_a; i++)
                cost[i][0] = (unsigned) i;
        for (size_t j = 0; j <= n_b; j++)
                cost[0][j] = (unsigned) j;
        for (size_t i = 1; i <= n_a; i++) {
                for (size_t j = 1; j <= n_b; j++) {
                        unsigned best = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                        best = smaller(best, smaller(cost[i - 1][j], cost[i][j - 1]) + 1);
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                best = smaller(best, cost[i - 2][j - 2] + 1);
                        cost[i][j] = best;
                }
        }
        return cost[n_a][n_b];
}

void suggestion_consider(struct suggestion *suggestion, const char *candidate) {
        size_t length = strlen(suggestion->word);
        if (length == 0 || length > WORD_MAX || strlen(candidate) > WORD_MAX)
                return;
        /* A prefix was probably meant as an abbreviation. */
        unsigned distance = length >= 2 && strncmp(candidate, suggestion->word, length) == 0
                                    ? 1
                                    : edit_distance(suggestion->word, candidate);
        if (!suggestion->nearest || distance < suggestion->distance) {
                suggestion->nearest = candidate;
                suggestion->distance = distance;
        }
}

const char *suggestion_best(const struct suggestion *suggestion) {
        if (!suggestion->nearest)
                return NULL;
        size_t length = strlen(suggestion->word);
        unsigned allowed = length <= 4 ? 1 : length < 6 ? 2 : 3;
        return suggestion->distance <= allowed ? suggestion->nearest : NULL;
}
