/* SPDX-License-Identifier: MIT */
/* data.h - finds files that are installed with the program. */
#ifndef DATA_H
#define DATA_H

#include <stddef.h>

/* Path of the first readable NAME: in the folder CTXBANK_DATA, else in the installed data folder,
 * else beside the program in its build tree (data/, doc/examples/). CB_EIO when there is none. */
int cb_data_find(const char *name, char *path, size_t cap);

#endif
