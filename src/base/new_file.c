/* SPDX-License-Identifier: MIT */
/* new_file.c - a file that takes its place only when it is complete and on the disk. */
#include "new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"
#include "linux_flags.h"

static int io_error(const struct new_file *f)
{
    return cb_fail(CB_EIO, "%s: %s", f->path, strerror(errno));
}

/* The mode of the file that will be replaced, 0 = there is none */
static int old_mode(const struct new_file *f, mode_t *mode)
{
    struct stat st;

    *mode = 0;
    if (stat(f->path, &st) < 0)
        return errno == ENOENT ? CB_OK : io_error(f);
    if (!S_ISREG(st.st_mode))
        return cb_fail(CB_EARG, "%s: is not a regular file", f->path);
    *mode = st.st_mode & 07777;
    return access(f->path, W_OK) ? io_error(f) : CB_OK;
}

/* The folder of the place; caller frees. */
static char *folder(const struct new_file *f)
{
    const char *slash = strrchr(f->place, '/');

    if (!slash)
        return strdup(".");
    return strndup(f->place, slash == f->place ? 1 : (size_t)(slash - f->place));
}

/* A file without a name, which the system removes if the program dies. */
static int open_unnamed(struct new_file *f)
{
    char *dir;

    if (access("/proc/self/fd", X_OK)) /* it could not be named later */
        return -1;
    dir = folder(f);
    if (dir)
        f->fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, f->fresh);
    free(dir);
    return f->fd;
}

/* Names the file, or creates it, under a name that no file has yet. */
static int name_it(struct new_file *f, const char *from)
{
    const size_t cap = strlen(f->place) + 48;
    int err = -1;

    f->temp = cb_calloc(cap, 1);
    if (!f->temp)
        return CB_ENOMEM;
    errno = EEXIST;
    for (int i = 0; i < 1000 && err && errno == EEXIST; i++) {
        snprintf(f->temp, cap, "%s.%ld-%d.tmp", f->place, (long)getpid(), i);
        if (from)
            err = linkat(AT_FDCWD, from, AT_FDCWD, f->temp, AT_SYMLINK_FOLLOW);
        else
            err = (f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, f->fresh)) < 0;
    }
    f->named = !err;
    return err ? io_error(f) : CB_OK;
}

static int open_as(struct new_file *f, const char *path, mode_t fresh)
{
    mode_t mode;

    *f = (struct new_file){ .path = path, .fd = -1, .fresh = fresh };
    TRY(old_mode(f, &mode));
    f->place = mode ? realpath(path, NULL) : strdup(path);
    if (!f->place)
        return io_error(f);
    if (open_unnamed(f) < 0)
        TRY(name_it(f, NULL));
    return mode && fchmod(f->fd, mode) ? io_error(f) : CB_OK;
}

int cb_new_file_open(struct new_file *f, const char *path)
{
    return open_as(f, path, 0666);
}

int cb_new_file_open_private(struct new_file *f, const char *path)
{
    return open_as(f, path, 0600);
}

int cb_new_file_write(struct new_file *f, const void *p, size_t n)
{
    const char *s = p;

    for (size_t at = 0; at < n;) {
        const ssize_t got = write(f->fd, s + at, n - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0) /* or the loop would not end */
            errno = EIO;
        if (got <= 0)
            return io_error(f);
        at += (size_t)got;
    }
    return CB_OK;
}

/* Makes the new name last. A file system that cannot do that has no way to do better. */
static void sync_folder(const struct new_file *f)
{
    char *dir = folder(f);
    const int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(dir);
}

int cb_new_file_keep(struct new_file *f)
{
    char link[32];
    int fd = f->fd;

    if (!f->unsynced && fsync(fd) < 0)
        return io_error(f);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!f->named)
        TRY(name_it(f, link));
    f->fd = -1;
    if (close(fd) < 0 || rename(f->temp, f->place) < 0)
        return io_error(f);
    f->named = 0;
    if (!f->unsynced)
        sync_folder(f);
    return CB_OK;
}

void cb_new_file_close(struct new_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->named)
        unlink(f->temp);
    free(f->temp);
    free(f->place);
    *f = (struct new_file){ .fd = -1 };
}

int cb_new_file_save(const char *path, const void *p, size_t n)
{
    struct new_file f;
    int err = cb_new_file_open(&f, path);

    if (!err)
        err = cb_new_file_write(&f, p, n);
    if (!err)
        err = cb_new_file_keep(&f);
    cb_new_file_close(&f);
    return err;
}

int cb_new_file_check(const char *path)
{
    struct new_file f;
    int err;

    if (!path)
        return CB_OK;
    err = cb_new_file_open(&f, path);
    cb_new_file_close(&f);
    return err;
}
