/* SPDX-License-Identifier: MIT */
/* item_files.c - tasks in files of JSON lines: which are read, and which of them are asked. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/macos.h"
#include "base/suggest.h"
#include "base/words.h"
#include "task_run.h"

int cb_task_picked(const struct opts *o, const char *name)
{
    const char *list = cb_opt_text(o, ARG_TASKS);

    return !list || cb_word_index(list, ',', name, strlen(name)) >= 0;
}

int cb_task_check_picked(const struct opts *o, name_fn at, const void *ctx)
{
    const char *list = cb_opt_text(o, ARG_TASKS), *p;
    char names[600];
    size_t n;

    while ((p = cb_word(&list, ',', &n))) {
        const char *near;
        if (cb_name_find(p, n, at, ctx) >= 0)
            continue;
        near = cb_name_nearest(p, n, at, ctx);
        if (near)
            return cb_usage("--tasks %.*s: no such task; did you mean %s?", (int)n, p, near);
        cb_name_list(names, sizeof names, at, ctx);
        return cb_usage("--tasks %.*s: no such task; there are %s", (int)n, p, names);
    }
    return CB_OK;
}

static int by_task(const void *a, const void *b, void *arg)
{
    const struct item *at = arg;
    const int i = *(const int *)a, j = *(const int *)b, d = strcmp(at[i].task, at[j].task);

    return d ? d : i - j;
}

/* Marks --items items of each task in chosen[n], the same ones for the same seed. */
static int choose(const struct tasks *t, char *chosen)
{
    const struct item_list *all = &t->items;
    const int want = cb_opt_int(t->o, ARG_ITEMS);
    int *order = cb_calloc(2 * (size_t)all->n + 1, sizeof *order), *pick = order + all->n;

    if (!order)
        return CB_ENOMEM;
    for (int i = 0; i < all->n; i++)
        order[i] = i;
    qsort_r(order, (size_t)all->n, sizeof *order, by_task, all->at);
    for (int from = 0, to; from < all->n; from = to) {
        const char *task = all->at[order[from]].task;
        struct rng r = cb_rng_for((uint64_t)cb_opt_int64(t->o, ARG_TASK_SEED), task, 0, 0, 0);
        int n;
        for (to = from + 1; to < all->n && !strcmp(all->at[order[to]].task, task);)
            to++;
        n = want < to - from ? want : to - from;
        cb_rng_choose(&r, pick, n, to - from);
        for (int k = 0; k < n; k++)
            chosen[order[from + pick[k]]] = 1;
    }
    free(order);
    return CB_OK;
}

/* Keeps --items items of each task, in their order. */
static int sample(struct tasks *t)
{
    struct item_list kept = { .n_bad = t->items.n_bad };
    char *chosen = cb_calloc((size_t)t->items.n + 1, 1);
    int rc = chosen ? choose(t, chosen) : CB_ENOMEM;

    for (int i = 0; i < t->items.n && !rc; i++)
        if (chosen[i]) {
            rc = cb_item_add(&kept, &t->items.at[i]);
            t->items.at[i] = (struct item){ 0 };
        }
    free(chosen);
    cb_item_list_free(&t->items);
    t->items = kept;
    return rc;
}

static int is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int is_jsonl(const struct dirent *d)
{
    const size_t n = strlen(d->d_name);
    return n > 6 && !strcmp(d->d_name + n - 6, ".jsonl");
}

static int read_folder(struct tasks *t, const char *path)
{
    struct dirent **list;
    const int n = scandir(path, &list, is_jsonl, alphasort), before = t->items.n;
    int rc = CB_OK;

    if (n < 0)
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char file[PATH_MAX], task[256];
        snprintf(task, sizeof task, "%.*s", (int)strlen(list[i]->d_name) - 6, list[i]->d_name);
        if (!rc && cb_task_picked(t->o, task)) {
            if (snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name) < (int)sizeof file)
                rc = cb_item_read(file, cb_task_warn, NULL, &t->items);
        }
        free(list[i]);
    }
    free(list);
    if (!rc && t->items.n == before)
        rc = cb_fail(CB_EIO, "%s: no .jsonl file of these tasks", path);
    return rc;
}

/* A file that is named is read whole: of its items from the one at `from` on, --tasks keeps those
 * of the tasks, unless it names the file itself. */
static int pick(struct tasks *t, const char *path, int from)
{
    struct item_list *all = &t->items;
    char file[256];
    int n = from;

    cb_item_task_of(path, file, sizeof file);
    if (cb_task_picked(t->o, file))
        return CB_OK;
    for (int i = from; i < all->n; i++) {
        if (cb_task_picked(t->o, all->at[i].task))
            all->at[n++] = all->at[i];
        else
            cb_item_free(&all->at[i]);
    }
    all->n = n;
    return n > from ? CB_OK : cb_usage("--tasks: %s has no item of these tasks", path);
}

static int read_file(struct tasks *t, const char *path)
{
    const int from = t->items.n;

    TRY(cb_item_read(path, cb_task_warn, NULL, &t->items));
    return pick(t, path, from);
}

/* Does the word of --tasks name an item's task or one of the files? */
static int is_there(const struct tasks *t, const char *word, size_t n)
{
    for (int i = 0; i < t->items.n; i++)
        if (cb_is_word(t->items.at[i].task, word, n))
            return 1;
    for (int i = 0; i < t->o->n_operand; i++) {
        char name[PATH_MAX];
        struct stat st;
        cb_item_task_of(t->o->operand[i], name, sizeof name);
        if (cb_is_word(name, word, n))
            return 1;
        snprintf(name, sizeof name, "%s/%.*s.jsonl", t->o->operand[i], (int)n, word);
        if (!stat(name, &st))
            return 1;
    }
    return 0;
}

static int check_tasks(const struct tasks *t)
{
    const char *list = cb_opt_text(t->o, ARG_TASKS), *word;
    size_t n;

    while ((word = cb_word(&list, ',', &n)))
        if (!is_there(t, word, n))
            return cb_usage("--tasks %.*s: there is no such task in what was read", (int)n, word);
    return CB_OK;
}

int cb_item_files(struct tasks *t)
{
    if (!t->o->n_operand)
        return cb_usage("no file given: ctxbank %s FILE.jsonl", t->o->cmd->name);
    for (int i = 0; i < t->o->n_operand; i++)
        TRY(is_folder(t->o->operand[i]) ? read_folder(t, t->o->operand[i])
                                        : read_file(t, t->o->operand[i]));
    TRY(check_tasks(t));
    return cb_opt_set(t->o, ARG_ITEMS) ? sample(t) : CB_OK;
}
