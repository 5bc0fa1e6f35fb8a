/* SPDX-License-Identifier: MIT */
/* index_scan.h - scores of a trained selector's keys, all of them: what index_cascade.c has to
 * begin with. */
#ifndef INDEX_SCAN_H
#define INDEX_SCAN_H

#include "cpu/vector/kern_vec.h"
#include "device/device.h"
#include "device/index_strips.h"

/* Keys in strips, as they are multiplied: two strips of up to MAX_HD numbers, or fewer numbers and
 * more strips */
struct strip_room {
    _Alignas(64) char at[2 * STRIP_KEYS * (MAX_HD + 4)];
};

static inline const char *cb_index_block(const struct index_scan *s, int b)
{
    return (const char *)s->keys + (size_t)b * cb_strip_bytes(s->hd);
}

/* The 32 keys of a block from `from` on -> strips in *to */
struct strips cb_index_strips(const struct kern_index *k, int hd, const char *block, int from,
                              struct strip_room *to);

/* Query t of s -> *q in its work space */
void cb_index_open_query(const struct index_scan *s, int t, struct strip_query *q);
/* The same, once opened, and all scores of queries first..first+n-1 */
struct strip_query cb_index_query(const struct index_scan *s, int t);
void cb_index_scan_all(struct device *d, const struct index_scan *s, int first, int n);

/* Lines that stand for the heads of query q from tile from[g] on, fitted to some of the first n
 * keys -> line[n_line] */
void cb_index_lines(const struct kern_index *k, const struct index_scan *s,
                    const struct strip_query *q, int n, const int *from, int n_line,
                    struct strip_line *line);

#endif
