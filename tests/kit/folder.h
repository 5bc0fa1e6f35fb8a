/* SPDX-License-Identifier: MIT */
/* folder.h - a folder of files that a test makes up, and removes. One at a time. */
#ifndef FOLDER_H
#define FOLDER_H

const char *cb_folder_make(const char *name); /* its path, below the working folder */
void cb_folder_remove(void);
/* Writes a file in it, making the folders that it lies in; its path, until the next call. */
const char *cb_folder_put(const char *name, const char *text);

#endif
