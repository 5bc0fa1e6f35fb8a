/* SPDX-License-Identifier: MIT */
/* bank_room.h - the files of a bank folder: their names, and which of them are removed when the
 * folder is full. Files of other names are neither counted nor removed. */
#ifndef BANK_ROOM_H
#define BANK_ROOM_H

#include <stddef.h>
#include <stdint.h>

enum { BANK_NAME = 2 * 16 + 1 + 5 + 1 }; /* "KEY-TEXT.bank": two hashes of 16 digits, and NUL */

/* key: of the settings and the first block of tokens; text: of all tokens */
void cb_bank_name(uint64_t key, uint64_t text, char out[BANK_NAME]);
int cb_bank_name_has(const char *name, uint64_t key);     /* 1: such a name, with this key */
char *cb_bank_path(const char *folder, const char *name); /* caller frees; NULL: out of memory */
/* Renames a damaged file to NAME.damaged, for whoever wants to know why. It is the first to go.
 * Call with the lock. CB_EIO: the folder cannot be written; CB_ENOMEM */
int cb_bank_put_aside(const char *path);

/* Takes the lock of the folder, which whoever adds or removes files holds; closing *fd gives it
 * back. CB_EIO, also if another program has it: that one may be stopped, and nothing here is worth
 * waiting for. */
int cb_bank_folder_lock(const char *folder, int *fd);
/* Removes files until `bytes` more fit under `most`: first damaged ones, then those of the least
 * worth, never `keep` (NULL = none) or one that another file continues. Returns 1 if they fit now,
 * 0 if they cannot, or CB_EIO, CB_ENOMEM: then, too, where the worth of a file cannot be read. Call
 * with the lock. */
int cb_bank_make_room(const char *folder, uint64_t most, uint64_t bytes, const char *keep);

#endif
