/* SPDX-License-Identifier: MIT */
/* saved_bank.h - a session as a file, for one file that a caller names and for folders of them. A
 * file may continue another one of its folder: the rows of its first tokens then stand there. */
#ifndef SAVED_BANK_H
#define SAVED_BANK_H

#include <jansson.h>

#include "bank/bank_file.h"
#include "session.h"

struct saved_bank {
    struct bank_file file;
    json_t *about;
    int n_shared;              /* tokens whose rows stand in `parent`; 0 = none */
    struct saved_bank *parent; /* NULL = none */
};

/* Opens a file and those that it continues, and checks what no model is needed for. CB_EFORMAT:
 * also where a file that it continues is missing or another one. CB_EIO, CB_ENOMEM: the files may
 * be sound. After a failure *out is NULL. */
int cb_saved_open(const char *path, struct saved_bank **out);
int cb_saved_open_alone(const char *path, struct saved_bank **out); /* not those: parent is NULL */
int cb_saved_n_files(const struct saved_bank *b);                   /* b, and those */
/* The file's description -> *out, an object. CB_EFORMAT, CB_ENOMEM */
int cb_saved_read_about(const struct bank_file *f, json_t **out);
void cb_saved_close(struct saved_bank *b); /* NULL is allowed */
/* Token ids -> *ids[*n], which the caller frees */
int cb_saved_tokens(const struct saved_bank *b, int32_t **ids, int *n);
/* Fills a new session, opened with the settings of the file, after comparing all checksums. After a
 * failure the session can only be closed. */
int cb_saved_fill(const struct saved_bank *b, struct cb_session *s);
/* The same with its first n tokens */
int cb_saved_fill_first(const struct saved_bank *b, int n, struct cb_session *s);

#endif
