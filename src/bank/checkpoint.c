/* SPDX-License-Identifier: MIT */
/* checkpoint.c - a state that no one changes, in memory or still in its saved bank. */
#include "checkpoint.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "pages.h"

/* A saved bank that stays open for its checkpoints */
struct open_file {
    atomic_int n_user;
    struct bank_file f;
};

struct checkpoint {
    atomic_int n_user;
    size_t bytes;
    float *x;               /* pages of its own; NULL: it is area `area` of `file` */
    struct open_file *file; /* NULL: it is in memory */
    int area;
};

/* One user less; 1: that was the last one. */
static int leaves(atomic_int *n_user)
{
    return atomic_fetch_sub_explicit(n_user, 1, memory_order_acq_rel) == 1;
}

static struct checkpoint *new_one(size_t bytes)
{
    struct checkpoint *c = cb_calloc(1, sizeof *c);

    if (c) {
        atomic_init(&c->n_user, 1);
        c->bytes = bytes;
    }
    return c;
}

struct checkpoint *cb_checkpoint_new(size_t bytes)
{
    struct checkpoint *c = new_one(bytes);

    if (c && cb_pages_reserve(bytes, &c->x)) {
        free(c);
        return NULL;
    }
    return c;
}

static void drop_file(struct open_file *file)
{
    if (!file || !leaves(&file->n_user))
        return;
    cb_bank_file_close(&file->f);
    free(file);
}

void cb_checkpoint_drop(struct checkpoint *c)
{
    if (!c || !leaves(&c->n_user))
        return;
    cb_pages_release(c->x, c->bytes);
    drop_file(c->file);
    free(c);
}

struct checkpoint *cb_checkpoint_share(struct checkpoint *c)
{
    atomic_fetch_add_explicit(&c->n_user, 1, memory_order_relaxed);
    return c;
}

static int open_file(const struct bank_file *f, struct open_file **out)
{
    struct open_file *file = *out = cb_calloc(1, sizeof *file);
    int err;

    if (!file)
        return CB_ENOMEM;
    atomic_init(&file->n_user, 1);
    err = cb_bank_file_again(f, &file->f);
    if (err) {
        free(file);
        *out = NULL;
    }
    return err;
}

/* Area i of the file -> *out */
static int leave(struct open_file *file, int i, size_t bytes, struct checkpoint **out)
{
    if (!(*out = new_one(bytes)))
        return CB_ENOMEM;
    atomic_fetch_add_explicit(&file->n_user, 1, memory_order_relaxed);
    (*out)->file = file;
    (*out)->area = i;
    return CB_OK;
}

int cb_checkpoints_of_file(const struct bank_file *f, size_t bytes, struct checkpoint **out, int n)
{
    struct open_file *file;
    int err = open_file(f, &file), n_have = 0;

    for (int i = 0; i < n; i++)
        out[i] = NULL;
    for (int i = 0; !err && i < f->n_area; i++) {
        const struct bank_area *a = &f->area[i];
        if (a->kind != AREA_CHECKPOINT)
            continue;
        if (a->head != n_have || n_have == n || a->bytes != bytes)
            err = cb_fail(CB_EFORMAT, "%s: damaged: its checkpoints", f->path);
        else
            err = leave(file, i, bytes, &out[n_have++]);
    }
    if (!err && n_have < n)
        err = cb_fail(CB_EFORMAT, "%s: damaged: it lacks checkpoints", f->path);
    for (int i = 0; err && i < n; i++) {
        cb_checkpoint_drop(out[i]);
        out[i] = NULL;
    }
    drop_file(file);
    return err;
}

float *cb_checkpoint_memory(const struct checkpoint *c)
{
    return c->x;
}

int cb_checkpoint_read(const struct checkpoint *c, void *to)
{
    return cb_bank_file_read_checked(&c->file->f, c->area, to);
}
