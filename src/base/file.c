/* SPDX-License-Identifier: MIT */
/* file.c - text files read whole or line by line. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

static int too_long(const char *name, const char *what)
{
    return cb_fail(CB_EFORMAT, "%s: %s of more than %d MiB", name, what, CB_FILE_MOST >> 20);
}

static int read_error(const char *name)
{
    return cb_fail(CB_EIO, "%s: %s", name, strerror(errno));
}

int cb_file_read(FILE *f, const char *name, struct buf *out)
{
    char block[1 << 14];
    size_t n;

    TRY(cb_buf_put(out, "", 0));
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        if (out->n + n > CB_FILE_MOST)
            return too_long(name, "a text");
        TRY(cb_buf_put(out, block, n));
    }
    return ferror(f) ? read_error(name) : CB_OK;
}

int cb_file_read_path(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rbe");
    int err;

    if (!f)
        return read_error(path);
    err = cb_file_read(f, path, out);
    fclose(f);
    return err;
}

static int read_plain(int fd, const char *path, size_t most, struct buf *out)
{
    char block[1 << 14];
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st))
        return read_error(path);
    if (!S_ISREG(st.st_mode))
        return cb_fail(CB_EFORMAT, "%s: is not a regular file", path);
    TRY(cb_buf_put(out, "", 0));
    while ((n = read(fd, block, sizeof block)) > 0) {
        if (out->n + (size_t)n > most)
            return cb_fail(CB_EFORMAT, "%s: has more than %zu bytes", path, most);
        TRY(cb_buf_put(out, block, (size_t)n));
    }
    return n < 0 ? read_error(path) : CB_OK;
}

int cb_file_read_plain(const char *path, size_t most, struct buf *out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int err;

    if (fd < 0)
        return read_error(path);
    err = read_plain(fd, path, most, out);
    close(fd);
    return err;
}

int cb_file_line(FILE *f, const char *name, struct buf *line)
{
    int c;

    cb_buf_clear(line);
    TRY(cb_buf_put(line, "", 0));
    do {
        char block[512];
        size_t n = 0;
        for (c = 0; n < sizeof block && c != '\n' && (c = getc_unlocked(f)) != EOF;)
            block[n++] = (char)c;
        if (line->n + n > CB_FILE_MOST)
            return too_long(name, "a line");
        TRY(cb_buf_put(line, block, n));
    } while (c != '\n' && c != EOF);
    if (ferror(f))
        return read_error(name);
    return line->n > 0;
}

int cb_file_first_line(const char *path, char *buf, int cap)
{
    FILE *f = fopen(path, "r");
    int ok;

    if (!f)
        return 0;
    ok = fgets(buf, cap, f) != NULL;
    fclose(f);
    return ok;
}
