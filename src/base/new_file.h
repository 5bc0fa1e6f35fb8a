/* SPDX-License-Identifier: MIT */
/* new_file.h - a file that takes its place only when it is complete and on the disk. Until then a
 * file of that name stays as it was, and a program that ends early leaves nothing behind (on file
 * systems without O_TMPFILE: a file with the suffix .tmp, if it is killed). */
#ifndef NEW_FILE_H
#define NEW_FILE_H

#include <stddef.h>
#include <sys/types.h>

struct new_file {
    const char *path; /* as the caller names it */
    char *place;      /* the path without symbolic links at its end */
    char *temp;       /* beside it: the name that the file has before it is renamed */
    int fd;           /* -1 = none */
    int named;        /* 1: temp exists */
    mode_t fresh;     /* of a file that replaces none; the umask takes from it */
    int unsynced;     /* 1: the file is named before it is on the disk: a machine that loses power
                         may leave it incomplete. Set it after cb_new_file_open() */
};

/* Only a regular file is replaced. After a failure, too, the caller ends with cb_new_file_close().
 */
int cb_new_file_open(struct new_file *f, const char *path);
/* The same for a file that its owner alone may read, unless it replaces one */
int cb_new_file_open_private(struct new_file *f, const char *path);
int cb_new_file_write(struct new_file *f, const void *p, size_t n);
int cb_new_file_keep(struct new_file *f);
void cb_new_file_close(struct new_file *f); /* drops the file unless it was kept */

int cb_new_file_save(const char *path, const void *p, size_t n); /* a whole file at once */
int cb_new_file_check(const char *path); /* can a file be saved there? NULL: nothing to save */

#endif
