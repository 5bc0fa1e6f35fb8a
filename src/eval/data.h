/* SPDX-License-Identifier: MIT */
/* data.h - files that are installed beside the program. */
#ifndef DATA_H
#define DATA_H

#include <stddef.h>

/* The first NAME that can be read: in the folder CTXBANK_DATA, else where it was installed, else
 * beside the program in the tree that it was built in (data/, doc/examples/). CB_EIO when none. */
int cb_data_find(const char *name, char *path, size_t cap);

#endif
