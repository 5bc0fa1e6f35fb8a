/* SPDX-License-Identifier: MIT */
/* saved_writer.h - a session to a file. */
#ifndef SAVED_WRITER_H
#define SAVED_WRITER_H

#include "saved_bank.h"

/* How a session is written */
struct whole_bank;
struct saved_how {
    json_t *about;                   /* of the session */
    const struct saved_bank *parent; /* holds the first n_shared tokens; NULL = none */
    int n_shared;                    /* a multiple of KV_PREPACK */
    struct whole_bank *whole;        /* of which the session is the view; NULL = it is no view */
    int unsynced;                    /* as in struct new_file */
};
int cb_saved_write(const struct cb_session *s, const char *path, const struct saved_how *how);

#endif
