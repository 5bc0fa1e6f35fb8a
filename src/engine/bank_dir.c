/* SPDX-License-Identifier: MIT */
/* bank_dir.c - a folder that remembers prompts. The folder itself is the index: a file's name
 * begins with a hash of its settings and of its first block of tokens, so a look-up opens only
 * files that may serve, and compares all their tokens. Nothing there is trusted: what does not fit
 * is left, what is damaged is put aside, and the prompt is computed. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "bank_room.h"
#include "base/err.h"
#include "base/ints.h"
#include "base/json.h"
#include "saved_bank.h"
#include "session_state.h"

enum { BLOCK = KV_PREPACK }; /* shortest common beginning that counts, and its unit */

struct cb_bank_dir {
    char *path;
    uint64_t most; /* bytes of all files */
};

int cb_bank_dir_open(const char *path, const struct cb_bank_dir_params *params, cb_bank_dir **out)
{
    struct stat st;
    cb_bank_dir *d;

    *out = NULL;
    if (mkdir(path, 0700) && errno != EEXIST) /* prompts are private */
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return cb_fail(CB_EIO, "%s: is not a folder", path);
    if (!(d = cb_calloc(1, sizeof *d)))
        return CB_ENOMEM;
    d->path = strdup(path);
    d->most = params && params->bytes_max ? params->bytes_max : UINT64_MAX;
    if (!d->path) {
        free(d);
        return cb_fail(CB_ENOMEM, "out of memory");
    }
    *out = d;
    return CB_OK;
}

void cb_bank_dir_close(cb_bank_dir *d)
{
    if (d)
        free(d->path);
    free(d);
}

/* ---- candidates ---- */

/* What is looked for: files of these settings with a common beginning of tokens */
struct wanted {
    const cb_bank_dir *dir;
    json_t *about, *settings; /* of a session that is to be filled, or was */
    uint64_t key;
    const int32_t *tokens; /* [n] */
    int n, extends;
};

struct candidate {
    char name[BANK_NAME];
    int n; /* tokens that it saves */
};

struct candidates {
    struct candidate *c;
    int n, cap;
};

static uint64_t key_of(const json_t *settings, const int32_t *tokens)
{
    char *text = json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS);
    const uint64_t h = text ? XXH3_64bits(text, strlen(text)) : 0;

    free(text);
    return XXH3_64bits_withSeed(tokens, BLOCK * sizeof *tokens, h);
}

/* w->tokens[n], n >= BLOCK, are set by the caller, who ends with want_end(). */
static int want(struct wanted *w, const struct cb_session *s)
{
    int err;

    TRY(cb_device_lock(s->dev));
    err = cb_saved_about(s, &w->about);
    cb_device_unlock(s->dev);
    TRY(err);
    if (!(w->settings = cb_saved_settings(w->about)))
        return cb_json_fail("bank");
    w->extends = cb_session_extends(s);
    w->key = key_of(w->settings, w->tokens);
    return CB_OK;
}

static void want_end(struct wanted *w)
{
    json_decref(w->about);
    json_decref(w->settings);
}

/* How many of w's tokens a timeline of these begins with, as far as it can serve them. The whole
 * one has logits; one that is cut needs a token fed behind the cut. */
static int serves(const struct wanted *w, const int32_t *have, int n_have)
{
    int same = 0;

    while (same < n_have && same < w->n && have[same] == w->tokens[same])
        same++;
    if (same == n_have && (same == w->n || w->extends))
        return same;
    return w->extends ? min_int(same, w->n - 1) / BLOCK * BLOCK : 0;
}

/* Tokens that the file saves: 0 if it has other settings or other tokens */
static int appraise(const struct wanted *w, const struct saved_bank *b)
{
    json_t *settings = cb_saved_settings(b->about);
    int32_t *ids = NULL;
    int n = 0, saved = 0;

    if (settings && json_equal(settings, w->settings) && !cb_saved_tokens(b, &ids, &n))
        saved = serves(w, ids, n);
    free(ids);
    json_decref(settings);
    return saved;
}

static int add(struct candidates *x, const char *name, int n)
{
    int at = x->n;

    if (x->n == x->cap) {
        const int cap = 2 * x->cap + 8;
        struct candidate *c = cb_realloc(x->c, (size_t)cap, sizeof *c);
        if (!c)
            return CB_ENOMEM;
        x->c = c;
        x->cap = cap;
    }
    for (; at > 0 && x->c[at - 1].n < n; at--)
        x->c[at] = x->c[at - 1];
    memcpy(x->c[at].name, name, BANK_NAME);
    x->c[at].n = n;
    x->n++;
    return CB_OK;
}

static int look_at(const struct wanted *w, const char *name, struct candidates *out)
{
    char *path = cb_bank_path(w->dir->path, name);
    struct saved_bank *b = NULL;
    int n = 0, err = path ? cb_saved_open(path, &b) : CB_ENOMEM;

    if (!err)
        n = appraise(w, b);
    else if (err == CB_EFORMAT)
        cb_bank_put_aside(path);
    cb_saved_close(b);
    free(path);
    return err == CB_ENOMEM ? err : n ? add(out, name, n) : CB_OK;
}

/* All files that may serve -> *out, the best first; the caller frees out->c. */
static int look(const struct wanted *w, struct candidates *out)
{
    DIR *d = opendir(w->dir->path);
    const struct dirent *f;
    int err = CB_OK;

    *out = (struct candidates){ .c = NULL };
    if (!d)
        return cb_fail(CB_EIO, "%s: %s", w->dir->path, strerror(errno));
    while (!err && (f = readdir(d)))
        if (cb_bank_name_has(f->d_name, w->key))
            err = look_at(w, f->d_name, out);
    closedir(d);
    return err;
}

/* ---- finding ---- */

/* Fills the new session s with the first n tokens of a file. After a failure, s can only be
 * closed. */
static int take(const struct saved_bank *b, int n, struct cb_session *s)
{
    TRY(cb_saved_fill(b, s));
    s->anew = s->bank.n_seen;
    if (n == s->bank.n_seen)
        return CB_OK;
    TRY(cb_session_truncate(s, n));
    s->bank.peak_bytes = cb_bank_bytes(&s->bank); /* as if the others had never been fed */
    s->bank.n_most = n;
    return CB_OK;
}

static int take_candidate(const struct wanted *w, const struct candidate *c, struct cb_session *s)
{
    char *path = cb_bank_path(w->dir->path, c->name);
    struct saved_bank *b = NULL;
    int err = path ? cb_saved_open(path, &b) : CB_ENOMEM;

    if (!err)
        err = take(b, c->n, s);
    if (err == CB_EFORMAT) {
        cb_model_log(s->model, CB_LOG_NOTE, "%s; it is put aside", cb_error());
        cb_bank_put_aside(path);
    }
    for (const struct saved_bank *p = err ? NULL : b; p; p = p->parent)
        cb_bank_file_count_use(&p->file);
    cb_saved_close(b);
    free(path);
    return err;
}

/* Tries the candidates into *s, which stays a new session if none serves. Only what prevents a new
 * session is an error. */
static int try_all(const struct wanted *w, const struct candidates *list,
                   const struct cb_session_params *params, cb_session **s, int *n_hit)
{
    cb_model *m = (*s)->model;

    for (int i = 0; i < list->n; i++) {
        if (!take_candidate(w, &list->c[i], *s)) {
            *n_hit = list->c[i].n;
            return CB_OK;
        }
        cb_session_close(*s);
        TRY(cb_session_open(m, params, s));
    }
    return CB_OK;
}

static int find(struct wanted *w, const struct cb_session_params *params, cb_session **s,
                int *n_hit)
{
    struct candidates list = { .c = NULL };
    int err = want(w, *s);

    if (!err)
        err = look(w, &list);
    if (err)
        cb_model_log((*s)->model, CB_LOG_NOTE, "%s", cb_error());
    err = try_all(w, &list, params, s, n_hit);
    free(list.c);
    want_end(w);
    return err;
}

int cb_bank_dir_find(cb_bank_dir *d, cb_model *m, const struct cb_session_params *params,
                     const int32_t *tokens, int n, cb_session **out, int *n_hit)
{
    struct wanted w = { .dir = d, .tokens = tokens, .n = n };

    *n_hit = 0;
    TRY(cb_session_open(m, params, out));
    return n < BLOCK ? CB_OK : find(&w, params, out, n_hit);
}

/* ---- putting ---- */

/* About how many multiplications a prompt of n tokens takes: what the file saves */
static double work_of(const struct cb_session *s, int n)
{
    const struct hparams *hp = &s->model->hp;
    const double each = (double)s->model->n_params;
    const double pair = (double)hp->n_layer * hp->n_head * hp->hd;

    return (double)n * (each + pair * (double)n);
}

/* About how long the file of s will be -> *out */
static int bytes_of(const struct cb_session *s, int n_shared, uint64_t *out)
{
    struct area *a = NULL;
    size_t *bytes = NULL;
    int n = 0, err = cb_session_areas(s, &a, &n);

    if (!err && !(bytes = cb_calloc((size_t)n + 1, sizeof *bytes)))
        err = CB_ENOMEM;
    for (int i = 0; !err && i < n; i++)
        bytes[i] = a[i].bytes - cb_session_area_of(s, &a[i], n_shared);
    if (!err) /* and the counts */
        *out = cb_bank_file_bytes(bytes, n) + (uint64_t)cb_session_n_counts(s) * sizeof(int32_t);
    free(bytes);
    free(a);
    return err;
}

/* The best file to continue -> *parent, NULL where there is none */
static int open_parent(const struct wanted *w, struct saved_bank **parent, int *n_shared)
{
    struct candidates list;
    char *path = NULL;
    int err = w->extends ? look(w, &list) : CB_OK;

    *parent = NULL;
    *n_shared = 0;
    if (!w->extends || err)
        return err;
    if (list.n) {
        *n_shared = list.c[0].n / BLOCK * BLOCK;
        path = cb_bank_path(w->dir->path, list.c[0].name);
        err = path ? cb_saved_open(path, parent) : CB_ENOMEM;
    }
    free(list.c);
    free(path);
    return err;
}

static int write_file(struct wanted *w, const struct cb_session *s, const char *path)
{
    struct saved_how how = { .unsynced = 1 };
    struct saved_bank *parent;
    uint64_t bytes;
    int fits = 0, err = open_parent(w, &parent, &how.n_shared);

    TRY(err);
    how.parent = parent;
    cb_json_set(&w->about, "work",
                json_real(work_of(s, s->bank.n_seen) - work_of(s, how.n_shared)));
    how.about = w->about;
    err = bytes_of(s, how.n_shared, &bytes);
    if (!err)
        fits = cb_bank_make_room(w->dir->path, w->dir->most, bytes,
                                 parent ? strrchr(parent->file.path, '/') + 1 : NULL);
    if (!err && fits > 0)
        err = cb_saved_write(s, path, &how);
    cb_saved_close(parent);
    return err ? err : min_int(fits, 0);
}

static int put(struct wanted *w, const struct cb_session *s)
{
    char name[BANK_NAME], *path;
    int lock, err;

    TRY(want(w, s));
    cb_bank_name(w->key, XXH3_64bits(w->tokens, (size_t)w->n * sizeof *w->tokens), name);
    if (!(path = cb_bank_path(w->dir->path, name)))
        return CB_ENOMEM;
    err = access(path, F_OK) ? cb_bank_folder_lock(w->dir->path, &lock) : 1;
    if (!err) {
        err = access(path, F_OK) ? write_file(w, s, path) : CB_OK;
        close(lock);
    }
    free(path);
    return err < 0 ? err : CB_OK; /* 1: it is there */
}

int cb_bank_dir_put(cb_bank_dir *d, const cb_session *s)
{
    struct wanted w = { .dir = d, .tokens = s->token, .n = s->bank.n_seen };
    int err;

    TRY(cb_session_check_idle(s));
    if (w.n < BLOCK || s->anew != w.n || !cb_policy_is_listed(s->policy))
        return CB_OK;
    err = put(&w, s);
    want_end(&w);
    return err;
}
