/* SPDX-License-Identifier: MIT */
/* checkpoint.h - the state of all layers without keys at one place of a timeline. Once it is whole
 * it never changes, so copies of a session share it. A checkpoint of a saved bank stays in the file
 * until a cut goes back to it, and is compared with its checksum then. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "bank_file.h"

struct checkpoint;

/* In memory, zeroed; NULL: no memory */
struct checkpoint *cb_checkpoint_new(size_t bytes);
/* The areas of f with checkpoints of `bytes` bytes each -> out[n], by their numbers. The file stays
 * open while one of them is left there. CB_EFORMAT: it has others; CB_ENOMEM. After a failure all
 * of out[n] are NULL. */
int cb_checkpoints_of_file(const struct bank_file *f, size_t bytes, struct checkpoint **out, int n);
struct checkpoint *cb_checkpoint_share(struct checkpoint *c); /* another one who drops it */
void cb_checkpoint_drop(struct checkpoint *c);                /* NULL is allowed */
/* Its memory; NULL: it is in a file. Only the session that made it writes there, until it is whole.
 */
float *cb_checkpoint_memory(const struct checkpoint *c);
/* One that is in a file: its bytes -> *to, which has room for them. CB_EFORMAT: they are not those
 * that were saved; CB_EIO */
int cb_checkpoint_read(const struct checkpoint *c, void *to);

#endif
