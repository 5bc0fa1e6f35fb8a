/* SPDX-License-Identifier: MIT */
/* opts_files.c - no file that a command reads is also written: -o with the name of the model, or of
 * the document, would cost the only copy. */
#include "opts_files.h"

#include <sys/stat.h>

#include "base/err.h"

/* Also by a link, or by another path */
static int is_same(const char *path, const struct stat *file)
{
    struct stat st;

    return !stat(path, &st) && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
}

int cb_opts_reading(const struct opts *o, const char *path)
{
    struct stat file;

    if (stat(path, &file) || !S_ISREG(file.st_mode))
        return -1;
    for (int id = 0; id < ARG_COUNT; id++) {
        const enum takes takes = cb_opt_table[id].takes;
        for (int i = 0; i < o->v[id].n; i++)
            if ((takes == TAKES_FILE || takes == TAKES_SCALED) && is_same(o->v[id].text[i], &file))
                return id;
    }
    for (int i = 0; i < o->n_operand; i++)
        if (is_same(o->operand[i], &file))
            return ARG_COUNT;
    return -1;
}

int cb_opts_check_files(const struct opts *o)
{
    for (int id = 0; id < ARG_COUNT; id++) {
        const struct arg_value *v = &o->v[id];
        if (cb_opt_table[id].takes != TAKES_NEW_FILE || !v->n)
            continue;
        if (cb_opts_reading(o, v->text[v->n - 1]) >= 0)
            return cb_usage("--%s %s: the command reads this file", cb_opt_table[id].name,
                            v->text[v->n - 1]);
    }
    return CB_OK;
}
