/* SPDX-License-Identifier: MIT */
/* index_scan.h - scores of a trained selector's keys, all of them: what index_cascade.c has to
 * begin with. */
#ifndef INDEX_SCAN_H
#define INDEX_SCAN_H

#include "cpu/vector/kern_vec.h"
#include "device/device.h"
#include "device/index_strips.h"

/* n strips of a block, from `at` on */
static inline struct strips cb_index_strips(int hd, const char *at, int n)
{
    const size_t line = STRIP_KEYS * 4;

    return (struct strips){ at, line, (size_t)cb_strip_pad(hd) / 4 * line, n, 0 };
}

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
