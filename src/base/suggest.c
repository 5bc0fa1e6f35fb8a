/* SPDX-License-Identifier: MIT */
/* suggest.c - nearest names for mistyped ones. */
#include "suggest.h"

#include <stdio.h>
#include <string.h>

#include "words.h"

enum { LONGEST = 63 };

int cb_name_find(const char *name, size_t n, name_fn at, const void *ctx)
{
    const char *s;
    for (int i = 0; (s = at(ctx, i)); i++)
        if (cb_is_word(s, name, n))
            return i;
    return -1;
}

static int min3(int a, int b, int c)
{
    const int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits from a[n] to b[m]: insert, delete, replace, swap two neighbours. */
static int distance(const char *a, int n, const char *b, int m)
{
    int row[3][LONGEST + 1]; /* of a[i-2], a[i-1], a[i], in turn */

    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        const int *before = row[(i + 1) % 3], *up = row[(i - 1) % 3];
        int *at = row[i % 3];
        at[0] = i;
        for (int j = 1; j <= m; j++) {
            at[j] = min3(up[j] + 1, at[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                at[j] = min3(at[j], before[j - 2] + 1, at[j]);
        }
    }
    return row[n % 3][m];
}

const char *cb_name_nearest(const char *name, size_t n, name_fn at, const void *ctx)
{
    const char *s, *best = NULL;
    int best_d = LONGEST;

    if (n > LONGEST)
        return NULL;
    for (int i = 0; (s = at(ctx, i)); i++) {
        const int m = (int)strlen(s), longer = m > (int)n ? m : (int)n;
        const int d = m <= LONGEST ? distance(name, (int)n, s, m) : LONGEST;
        const int near = d <= 1 || 3 * d <= longer || (n >= 3 && !strncmp(name, s, n));
        if (near && d < best_d) {
            best = s;
            best_d = d;
        }
    }
    return best;
}

void cb_name_list(char *list, size_t cap, name_fn at, const void *ctx)
{
    const char *name;
    size_t n = 0;

    list[0] = '\0';
    for (int i = 0; (name = at(ctx, i)); i++) {
        const int len = snprintf(list + n, cap - n, "%s%s", i ? ", " : "", name);
        if (len < 0 || (size_t)len >= cap - n) {
            list[n] = '\0';
            return;
        }
        n += (size_t)len;
    }
}
