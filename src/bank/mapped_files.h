/* SPDX-License-Identifier: MIT */
/* mapped_files.h - the saved banks whose rows a session has mapped. Another program may make such a
 * file shorter, or write another one in its place: rows that were read meanwhile are then wrong,
 * and the session finds that out here before it uses them. */
#ifndef MAPPED_FILES_H
#define MAPPED_FILES_H

#include "bank_file.h"
#include "base/page_guard.h"

struct mapped_files; /* NULL = none */

/* The first n bytes of area i of f -> at[n], mapped as cb_bank_file_map() does, or read where that
 * is not possible. *m is made when it is needed. */
int cb_mapped_files_take(struct mapped_files **m, struct page_guard *g, const struct bank_file *f,
                         int i, size_t n, void *at);
/* CB_EIO, with the file's name: rows that were read since the last call may be wrong. A few calls
 * of the system for each file. */
int cb_mapped_files_check(const struct mapped_files *m);
/* The rows are needed no more: their memory shows no file from now on. After a failure to do so
 * *m stays. */
void cb_mapped_files_drop(struct mapped_files **m);
void cb_mapped_files_close(struct mapped_files *m); /* before the memory is unmapped */

#endif
