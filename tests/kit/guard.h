/* SPDX-License-Identifier: MIT */
/* guard.h - memory between pages that nobody may touch: who reads or writes past its end, or writes
 * before its start, ends the test. Programs linked with $(guard_ldflags) get the work space of
 * devices in this way too, and free() takes what cb_guarded() gave. */
#ifndef GUARD_H
#define GUARD_H

#include <stddef.h>

/* Bytes that end right before such a page. They hold signalling NaNs until they are written. Out
 * of memory ends the program. */
void *cb_guarded(size_t bytes);

#endif
