/* SPDX-License-Identifier: MIT */
/* faults.h - the n-th call of a kind fails, once or from then on. The linker sends the calls of the
 * library and of the test here (faults_ldflags in tests/local.mk); those of other libraries work.
 */
#ifndef FAULTS_H
#define FAULTS_H

enum fault_kind {
    FAULT_ALLOC, /* malloc, calloc, realloc, posix_memalign, strdup */
    FAULT_OPEN,  /* open, opendir: EMFILE */
    FAULT_READ,  /* pread, readdir: EIO */
    FAULT_WRITE, /* write: ENOSPC */
    FAULT_MAP,   /* mmap: ENOMEM */
    FAULT_DRAW,  /* getrandom: ENOSYS */
    FAULT_KINDS
};

/* The nth call of the kind fails, n from 1; forever: and all after it. Counts from now. */
void cb_fault_at(enum fault_kind kind, int nth, int forever);
/* Nothing fails any more. Returns how many calls have failed. */
int cb_fault_end(void);
int cb_fault_calls(enum fault_kind kind); /* since cb_fault_at(), or ever */

#endif
