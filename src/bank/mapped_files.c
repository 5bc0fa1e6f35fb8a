/* SPDX-License-Identifier: MIT */
/* mapped_files.c - the saved banks whose rows a session has mapped. Each stays open: its length
 * and its checksum say whether it is still the file that was verified. A page that is read while
 * the file is shorter is noted by the guard, whatever the file becomes afterwards. */
#include "mapped_files.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/err.h"

struct mapped_files {
    atomic_int lost;        /* 1: a page could not be read */
    struct bank_file *file; /* [n_file] */
    int n_file;
    struct guarded_range **range;
    int n_range;
};

/* The entry of f; NULL: there can be none, so nothing is mapped. */
static struct bank_file *keep_open(struct mapped_files *m, const struct bank_file *f)
{
    for (int i = 0; i < m->n_file; i++)
        if (m->file[i].id == f->id)
            return &m->file[i];
    if (cb_grow_by_one(&m->file, m->n_file, sizeof *m->file) ||
        cb_bank_file_again(f, &m->file[m->n_file]))
        return NULL;
    return &m->file[m->n_file++];
}

static struct guarded_range *guard(struct mapped_files *m, struct page_guard *g, const void *at,
                                   size_t n)
{
    if (cb_grow_by_one(&m->range, m->n_range, sizeof *m->range))
        return NULL;
    m->range[m->n_range] = cb_page_guard_add(g, at, n, &m->lost);
    return m->range[m->n_range] ? m->range[m->n_range++] : NULL;
}

int cb_mapped_files_take(struct mapped_files **m, struct page_guard *g, const struct bank_file *f,
                         int i, size_t n, void *at)
{
    if (!cb_bank_file_maps(f, i, n, at))
        return cb_bank_file_read(f, i, n, at);
    if (!*m && !(*m = cb_calloc(1, sizeof **m)))
        return CB_ENOMEM;
    if (!keep_open(*m, f) || !guard(*m, g, at, n))
        return cb_bank_file_read(f, i, n, at);
    return cb_bank_file_map(f, i, n, at);
}

int cb_mapped_files_check(const struct mapped_files *m)
{
    const struct bank_file *other = NULL;

    for (int i = 0; m && i < m->n_file && !other; i++)
        if (!cb_bank_file_is_same(&m->file[i]))
            other = &m->file[i];
    if (!other && m && atomic_load(&m->lost))
        other = &m->file[0];
    return other ? cb_fail(CB_EIO, "%s: became shorter while it was in use, or could not be read",
                           other->path)
                 : CB_OK;
}

void cb_mapped_files_drop(struct mapped_files **m)
{
    for (int i = 0; *m && i < (*m)->n_range; i++)
        if (!cb_guarded_range_detach((*m)->range[i]))
            return;
    cb_mapped_files_close(*m);
    *m = NULL;
}

void cb_mapped_files_close(struct mapped_files *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_range; i++)
        cb_guarded_range_release(m->range[i]);
    for (int i = 0; i < m->n_file; i++)
        cb_bank_file_close(&m->file[i]);
    free(m->range);
    free(m->file);
    free(m);
}
