/* SPDX-License-Identifier: MIT */
/* folder.h - a temporary folder of files for a test. One at a time. */
#ifndef FOLDER_H
#define FOLDER_H

const char *cb_folder_make(const char *name); /* returns its path, below the working folder */
void cb_folder_remove(void);
/* Writes a file in the folder and creates its parent folders; returns its path, valid until the
 * next call. */
const char *cb_folder_put(const char *name, const char *text);

#endif
