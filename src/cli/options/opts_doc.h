/* SPDX-License-Identifier: MIT */
/* opts_doc.h - the options of a text in their order, for --help and for manual pages. */
#ifndef OPTS_DOC_H
#define OPTS_DOC_H

#include "opts.h"

struct doc {
    FILE *f;
    int in_list, n_list; /* mdoc: a list is open; lists so far */
};

/* Which options a text is about */
struct pick {
    int (*takes)(const struct pick *p, const struct opt_row *row, int set);
    const struct cmd *cmd;
    const char *group;
};

/* Does the command have this set? (for struct pick) */
int cb_opts_any(const struct pick *p, const struct opt_row *row, int set);

/* Calls row_fn for each option that is picked, title_fn before each group: titles in the order of
 * their first sets, the options of a title in the order of the table. */
void cb_opts_each(const struct pick *p, struct doc *d, void (*title_fn)(const char *, struct doc *),
                  void (*row_fn)(const struct opt_row *, struct doc *));

/* "default 40; 0 to 1000; auto, always or never", or nothing */
void cb_opts_limits(const struct opt_row *row, char *buf, size_t cap);

#endif
