/* SPDX-License-Identifier: MIT */
/* bank_room.c - names and room in a folder of banks. A file is worth its uses, times the work
 * that it saves, for each byte, divided by the time since its last use. */
#include "bank_room.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "saved_bank.h"

/* ---- names ---- */

static const char suffix[] = ".bank", damaged[] = ".damaged";

void cb_bank_name(uint64_t key, uint64_t text, char out[BANK_NAME])
{
    snprintf(out, BANK_NAME, "%016" PRIx64 "-%016" PRIx64 "%s", key, text, suffix);
}

/* Length of a name that cb_bank_name() makes, at the beginning of `name`; 0: there is none */
static size_t own_name(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    const size_t n = BANK_NAME - 1;

    if (strspn(name, digits) != 16 || name[16] != '-' || strspn(name + 17, digits) != 16 ||
        strncmp(name + 33, suffix, sizeof suffix - 1))
        return 0;
    return n;
}

/* 1: such a name */
static int is_bank_name(const char *name)
{
    const size_t n = own_name(name);

    return n && !name[n];
}

int cb_bank_name_has(const char *name, uint64_t key)
{
    char of_key[BANK_NAME];

    cb_bank_name(key, 0, of_key);
    return is_bank_name(name) && !strncmp(name, of_key, 17);
}

char *cb_bank_path(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = cb_calloc(n, 1);

    if (path)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

int cb_bank_put_aside(const char *path)
{
    const size_t n = strlen(path) + sizeof damaged;
    char *aside = cb_calloc(n, 1);
    int err;

    if (!aside)
        return CB_ENOMEM;
    snprintf(aside, n, "%s%s", path, damaged);
    err = rename(path, aside) ? CB_EIO : CB_OK;
    free(aside);
    return err;
}

/* ---- the lock ---- */

int cb_bank_folder_lock(const char *folder, int *fd)
{
    char *path = cb_bank_path(folder, ".lock");
    int err = CB_OK, rc;

    if (!path)
        return CB_ENOMEM;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    do
        rc = *fd < 0 ? -1 : flock(*fd, LOCK_EX | LOCK_NB);
    while (rc && errno == EINTR);
    if (rc && errno == EWOULDBLOCK)
        err = cb_fail(CB_EIO, "%s: another program holds the lock", path);
    else if (rc)
        err = cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    if (rc && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    free(path);
    return err;
}

/* ---- room ---- */

struct entry {
    char name[BANK_NAME + sizeof damaged];
    char continues[BANK_NAME]; /* the name of a file, or "" */
    uint64_t bytes;
    double worth;
    int n_child, gone;
};

struct list {
    const char *folder;
    struct entry *e;
    int n;
    uint64_t bytes;
};

static int add(struct list *x, const char *name, uint64_t bytes)
{
    TRY(cb_grow_by_one(&x->e, x->n, sizeof *x->e));
    x->e[x->n] = (struct entry){ .bytes = bytes };
    memcpy(x->e[x->n++].name, name, strlen(name) + 1); /* is_counted(): it fits */
    x->bytes += bytes;
    return CB_OK;
}

static int is_counted(const char *name)
{
    const size_t n = own_name(name);

    return n && (!name[n] || !strcmp(name + n, damaged));
}

static int list_files(struct list *x)
{
    DIR *d = opendir(x->folder);
    const struct dirent *f;
    struct stat st;
    int err = CB_OK;

    if (!d)
        return cb_fail(CB_EIO, "%s: %s", x->folder, strerror(errno));
    while (!err) {
        errno = 0;
        if (!(f = readdir(d))) {
            /* a list that is short would let a file go that another one continues */
            err = errno ? cb_fail(CB_EIO, "%s: %s", x->folder, strerror(errno)) : CB_OK;
            break;
        }
        if (is_counted(f->d_name) && !fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW))
            err = add(x, f->d_name, (uint64_t)st.st_size);
    }
    closedir(d);
    return err;
}

static int appraise_open(const struct bank_file *f, struct entry *e)
{
    const char *parent = "";
    double work = 0, age;
    json_t *about;
    struct stat st;

    if (fstat(f->fd, &st))
        return cb_fail(CB_EIO, "%s: %s", f->path, strerror(errno));
    TRY(cb_saved_read_about(f, &about));
    if (cb_json_unpack(about, "{s?F, s?{s?s}}", "work", &work, "continues", "file", &parent) ==
        CB_ENOMEM) { /* it may be worth more than all others, and continue one of them */
        json_decref(about);
        return CB_ENOMEM;
    }
    age = difftime(time(NULL), st.st_mtime);
    e->worth = (double)(f->uses + 1) * work / (double)(e->bytes + 1) / (age > 0 ? age + 1 : 1);
    if (is_bank_name(parent))
        memcpy(e->continues, parent, BANK_NAME);
    json_decref(about);
    return CB_OK;
}

/* A file that is no saved bank is worth nothing. One that cannot be read now may be worth more than
 * all others, and continue one of them. */
static int appraise(const struct list *x, struct entry *e)
{
    struct bank_file f;
    char *path;
    int err;

    if (!is_bank_name(e->name))
        return CB_OK;
    if (!(path = cb_bank_path(x->folder, e->name)))
        return CB_ENOMEM;
    err = cb_bank_file_open(path, &f);
    if (!err) {
        err = appraise_open(&f, e);
        cb_bank_file_close(&f);
    }
    free(path);
    return err == CB_EIO || err == CB_ENOMEM ? err : CB_OK;
}

static struct entry *entry_of(const struct list *x, const char *name)
{
    for (int i = 0; i < x->n; i++)
        if (!x->e[i].gone && !strcmp(x->e[i].name, name))
            return &x->e[i];
    return NULL;
}

static struct entry *least(const struct list *x, const char *keep)
{
    struct entry *best = NULL;

    for (int i = 0; i < x->n; i++) {
        struct entry *e = &x->e[i];
        if (!e->gone && !e->n_child && (!keep || strcmp(e->name, keep)) &&
            (!best || e->worth < best->worth))
            best = e;
    }
    return best;
}

static int drop(struct list *x, struct entry *e)
{
    char *path = cb_bank_path(x->folder, e->name);
    struct entry *parent = *e->continues ? entry_of(x, e->continues) : NULL;
    int err;

    if (!path)
        return CB_ENOMEM;
    err = unlink(path) && errno != ENOENT ? cb_fail(CB_EIO, "%s: %s", path, strerror(errno)) : 0;
    free(path);
    e->gone = 1;
    x->bytes -= e->bytes;
    if (parent)
        parent->n_child--;
    return err;
}

static int make_room(struct list *x, uint64_t most, uint64_t bytes, const char *keep)
{
    struct entry *e;

    TRY(list_files(x));
    if (bytes > most)
        return 0;
    if (x->bytes <= most - bytes)
        return 1;
    for (int i = 0; i < x->n; i++)
        TRY(appraise(x, &x->e[i]));
    for (int i = 0; i < x->n; i++)
        if (*x->e[i].continues && (e = entry_of(x, x->e[i].continues)))
            e->n_child++;
    while (x->bytes > most - bytes && (e = least(x, keep)))
        TRY(drop(x, e));
    return x->bytes <= most - bytes;
}

int cb_bank_make_room(const char *folder, uint64_t most, uint64_t bytes, const char *keep)
{
    struct list x = { .folder = folder };
    const int fits = make_room(&x, most, bytes, keep);

    free(x.e);
    return fits;
}
