/* SPDX-License-Identifier: MIT */
/* saved_head.h - what the model's head for later tokens holds (mtp_drafter.h), as the last areas of
 * a saved bank. Files without them have the format that they always had. */
#ifndef SAVED_HEAD_H
#define SAVED_HEAD_H

#include "bank/bank_file.h"
#include "session.h"

struct saved_head {
    int32_t *counts;
    struct area *area; /* [n] */
    char *is_rows;     /* [n] 1: of keys or values, which may be mapped */
    int n;             /* 0: the session has no head, or it holds nothing */
};

/* Call cb_saved_head_free() even after a failure. CB_ENOMEM */
int cb_saved_head_list(const struct cb_session *s, struct saved_head *out);
void cb_saved_head_free(struct saved_head *x);
/* As cb_session_check_files(), of the head's rows */
int cb_saved_head_check(const struct cb_session *s);
/* How many areas of f are the head's; all of them come last. */
int cb_saved_head_areas(const struct bank_file *f);
/* After all else has been filled: gives the session's head, if it has one, what f has of it. After
 * a failure the session can only be closed. CB_EFORMAT, CB_EIO, CB_ENOMEM */
int cb_saved_head_fill(const struct bank_file *f, struct cb_session *s);

#endif
