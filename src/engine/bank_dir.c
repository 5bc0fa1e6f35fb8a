/* SPDX-License-Identifier: MIT */
/* bank_dir.c - a folder that remembers prompts. The folder itself is the index: a file's name
 * begins with a hash of its settings and of its first block of tokens, so a look-up opens only
 * files that may serve, and compares all their tokens. Nothing there is trusted: what does not fit
 * is left, what contradicts itself is put aside, and the prompt is computed. A file that cannot be
 * read now may be sound: it stays. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "bank_index.h"
#include "bank_room.h"
#include "base/array.h"
#include "base/err.h"
#include "base/file.h"
#include "base/ints.h"
#include "base/json.h"
#include "in_step.h"
#include "rank_fill.h"
#include "saved_about.h"
#include "saved_bank.h"
#include "saved_head.h"
#include "saved_writer.h"
#include "session_state.h"
#include "whole_bank.h"

enum {
    BLOCK = KV_PREPACK, /* shortest common beginning that counts; a file continues whole ones */
    MOST_CONTINUED = 64 /* files in a row; the next one is whole. A look-up opens all of them */
};

struct cb_bank_dir {
    char *path;
    uint64_t most; /* bytes of all files */
    struct bank_index *index;
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
    if (!d->path || cb_bank_index_new(&d->index)) {
        cb_bank_dir_close(d);
        return cb_fail(CB_ENOMEM, "out of memory");
    }
    *out = d;
    return CB_OK;
}

void cb_bank_dir_close(cb_bank_dir *d)
{
    if (!d)
        return;
    cb_bank_index_free(d->index);
    free(d->path);
    free(d);
}

/* ---- candidates ---- */

/* What is looked for: files of these settings with a common beginning of tokens */
struct wanted {
    const cb_bank_dir *dir;
    cb_model *model;          /* its log */
    json_t *about, *settings; /* of a session that is to be filled, or was */
    uint64_t key;
    struct bank_prompt prompt;
    int locked; /* 1: the caller holds the folder's lock */
};

struct candidate {
    char name[BANK_NAME];
    int n; /* tokens that it saves */
};

struct candidates {
    struct candidate *c;
    int n;
};

/* As in struct bank_prompt: layers that remember without keys go back to checkpoints, and ranks to
 * blocks that they have dealt out. */
static int grid_of(const struct cb_session *s)
{
    if (!cb_session_extends(s))
        return 0;
    return cb_session_computes_again(s) || cb_context_split_deals_any(&s->attention) ? BLOCK : 1;
}

/* w->prompt.tokens[n], n >= BLOCK, are set by the caller, who ends with want_end(). */
static int want(struct wanted *w, const struct cb_session *s)
{
    struct bank_prompt *p = &w->prompt;
    int err;

    TRY(cb_device_lock(s->dev));
    err = cb_saved_about(s, &w->about);
    cb_device_unlock(s->dev);
    TRY(err);
    if (!(w->settings = cb_saved_settings(w->about)))
        return cb_fail(CB_ENOMEM, "%s: out of memory", w->dir->path);
    p->grid = grid_of(s);
    TRY(cb_bank_settings_hash(w->settings, &p->settings));
    w->key = XXH3_64bits_withSeed(p->tokens, BLOCK * sizeof *p->tokens, p->settings);
    return CB_OK;
}

static void want_end(struct wanted *w)
{
    json_decref(w->about);
    json_decref(w->settings);
}

/* ---- files that contradict themselves ---- */

static void note(const struct wanted *w, const char *more)
{
    cb_model_log(w->model, CB_LOG_NOTE, "%s%s", cb_error(), more);
}

/* CB_EFORMAT if the file, read whole, contradicts itself or those that it continues */
static int check_whole(const char *path)
{
    struct saved_bank *b;
    int err = cb_saved_open(path, &b);

    if (!err)
        err = cb_bank_file_verify(&b->file, 0, NULL);
    cb_saved_close(b);
    return err;
}

/* 1: `path` is still the file that b was read from */
static int is_still(const char *path, const struct saved_bank *b)
{
    struct stat now, was;

    return !stat(path, &now) && !fstat(b->file.fd, &was) && now.st_dev == was.st_dev &&
           now.st_ino == was.st_ino;
}

/* The file at `path` was found damaged. With the folder's lock it is read once more: another
 * program may have replaced it, and the failure may have passed. b: its checksums agree and its
 * content contradicts them all the same, or NULL. */
static void put_aside(const struct wanted *w, const char *path, const struct saved_bank *b)
{
    int lock = -1, damaged;

    if (!w->locked && cb_bank_folder_lock(w->dir->path, &lock)) {
        note(w, "");
        return;
    }
    damaged = b ? is_still(path, b) : check_whole(path) == CB_EFORMAT;
    if (damaged && !cb_bank_put_aside(path))
        note(w, "; it is put aside");
    if (lock >= 0)
        close(lock);
}

/* The content of b is refused: by a file of the chain that has changed, or by b itself. */
static void put_chain_aside(const struct wanted *w, const struct saved_bank *b)
{
    int err = CB_OK;

    for (const struct saved_bank *p = b; p && !err; p = p->parent) {
        err = cb_bank_file_verify(&p->file, 0, NULL);
        if (err == CB_EFORMAT)
            put_aside(w, p->file.path, NULL);
    }
    if (!err)
        put_aside(w, b->file.path, b);
}

/* Opens a file of the folder and those that it continues. */
static int open_file(const struct wanted *w, const char *name, struct saved_bank **out)
{
    char *path = cb_bank_path(w->dir->path, name);
    int err = path ? cb_saved_open(path, out) : CB_ENOMEM;

    if (err)
        *out = NULL;
    if (err == CB_EFORMAT)
        put_aside(w, path, NULL);
    free(path);
    return err;
}

/* ---- candidates ---- */

/* 1: b has the settings, and saves n tokens. The index may be of another file. */
static int is_candidate(const struct wanted *w, const struct saved_bank *b, int n)
{
    json_t *settings = cb_saved_settings(b->about);
    int32_t *ids = NULL;
    int n_have = 0, ok = 0;

    if (settings && json_equal(settings, w->settings) && !cb_saved_tokens(b, &ids, &n_have))
        ok = cb_bank_prompt_serves(&w->prompt, ids, n_have, cb_saved_has_logits(b->about)) == n;
    free(ids);
    json_decref(settings);
    return ok;
}

static int add(struct candidates *x, const char *name, int n)
{
    int at = x->n;

    TRY(cb_grow_by_one(&x->c, x->n, sizeof *x->c));
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
    int n = 0, err;

    err = path ? cb_bank_index_serves(w->dir->index, path, name, &w->prompt, &n) : CB_ENOMEM;
    if (err == CB_EFORMAT)
        put_aside(w, path, NULL);
    else if (err && err != CB_ENOMEM)
        note(w, "");
    free(path);
    return err == CB_ENOMEM ? err : n ? add(out, name, n) : CB_OK;
}

/* Files that may serve -> *out, the best first: all of them, or up to one that saves the whole
 * prompt. The caller frees out->c. */
static int look(const struct wanted *w, struct candidates *out)
{
    DIR *d = opendir(w->dir->path);
    const struct dirent *f;
    int err = CB_OK;

    *out = (struct candidates){ .c = NULL };
    if (!d)
        return cb_fail(CB_EIO, "%s: %s", w->dir->path, strerror(errno));
    while (!err && !(out->n && out->c[0].n == w->prompt.n)) {
        errno = 0;
        if (!(f = readdir(d)))
            break;
        if (cb_bank_name_has(f->d_name, w->key))
            err = look_at(w, f->d_name, out);
    }
    closedir(d);
    return err;
}

/* ---- finding ---- */

/* 1: the session holds it; 0: it does not fit, and the session is as it was; or an error, after
 * which the session can only be closed. */
static int take_candidate(const struct wanted *w, const struct candidate *c, struct cb_session *s)
{
    struct saved_bank *b = NULL;
    int err = open_file(w, c->name, &b);

    if (err || !is_candidate(w, b, c->n)) {
        if (err && err != CB_EFORMAT)
            note(w, "");
        cb_saved_close(b);
        return 0;
    }
    err = cb_rank_fill(s, b, c->n);
    if (err == CB_EFORMAT)
        put_chain_aside(w, b);
    else if (err)
        note(w, "");
    for (const struct saved_bank *p = err ? NULL : b; p; p = p->parent)
        cb_bank_file_count_use(&p->file);
    cb_saved_close(b);
    return err ? err : 1;
}

/* A session whose tokens have the same bits in every prompt */
static int open_new(struct cb_model *m, const struct cb_session_params *params, cb_session **out)
{
    struct cb_session_params p = params ? *params : cb_session_defaults();

    p.expand_latents = 0;
    return cb_session_open(m, &p, out);
}

/* Tries the candidates into *s, which stays a new session if none serves. Only what prevents a new
 * session is an error. */
static int try_all(const struct wanted *w, const struct candidates *list,
                   const struct cb_session_params *params, cb_session **s, int *n_hit)
{
    for (int i = 0; i < list->n; i++) {
        const int got = take_candidate(w, &list->c[i], *s);
        if (got > 0) {
            *n_hit = list->c[i].n;
            return CB_OK;
        }
        if (!got)
            continue;
        cb_session_close(*s);
        TRY(open_new(w->model, params, s));
    }
    return CB_OK;
}

static int find_file(struct wanted *w, const struct cb_session_params *params, cb_session **s,
                     int *n_hit)
{
    struct candidates list = { .c = NULL };
    int err = want(w, *s);

    if (!err)
        err = look(w, &list);
    if (err)
        note(w, "");
    err = try_all(w, &list, params, s, n_hit);
    free(list.c);
    want_end(w);
    return err;
}

int cb_bank_dir_find(cb_bank_dir *d, cb_model *m, const struct cb_session_params *params,
                     const int32_t *tokens, int n, cb_session **out, int *n_hit)
{
    struct wanted w = { .dir = d, .model = m, .prompt = { .tokens = tokens, .n = n } };

    *n_hit = 0;
    TRY(open_new(m, params, out));
    return n < BLOCK || !cb_in_step_has_bank(*out) ? CB_OK : find_file(&w, params, out, n_hit);
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
    struct saved_head head;
    struct area *a = NULL;
    size_t *bytes = NULL;
    int n = 0, err = cb_saved_head_list(s, &head);

    if (!err)
        err = cb_session_areas(s, &a, &n);
    if (!err && !(bytes = cb_calloc((size_t)n + (size_t)head.n + 1, sizeof *bytes)))
        err = CB_ENOMEM;
    for (int i = 0; !err && i < n; i++)
        bytes[i] = a[i].bytes - cb_session_area_of(s, &a[i], n_shared);
    for (int i = 0; !err && i < head.n; i++)
        bytes[n + i] = head.area[i].bytes;
    if (!err) /* and the counts */
        *out = cb_bank_file_bytes(bytes, n + head.n) +
               (uint64_t)cb_session_n_counts(s) * sizeof(int32_t);
    cb_saved_head_free(&head);
    free(bytes);
    free(a);
    return err;
}

/* Opens the file if it can be continued: 1; 0: not this one. CB_ENOMEM */
static int try_parent(const struct wanted *w, const struct candidate *c, struct saved_bank **parent)
{
    const int err = open_file(w, c->name, parent);

    if (!err && cb_saved_n_files(*parent) < MOST_CONTINUED && is_candidate(w, *parent, c->n))
        return 1;
    cb_saved_close(*parent);
    *parent = NULL;
    return err == CB_ENOMEM ? err : 0;
}

/* The best file to continue -> *parent; NULL where there is none, or too many files would continue
 * each other */
static int open_parent(const struct wanted *w, struct saved_bank **parent, int *n_shared)
{
    struct candidates list;
    int err, got = 0;

    *parent = NULL;
    *n_shared = 0;
    if (!w->prompt.grid)
        return CB_OK;
    err = look(w, &list);
    for (int i = 0; !err && !got && i < list.n && list.c[i].n / BLOCK == list.c[0].n / BLOCK; i++) {
        got = try_parent(w, &list.c[i], parent);
        *n_shared = got > 0 ? list.c[i].n / BLOCK * BLOCK : 0;
        err = min_int(got, 0);
    }
    free(list.c);
    return err;
}

/* A cut leaves zeros. */
static int has_logits(const struct cb_session *s)
{
    int i = 0;

    while (i < s->model->hp.n_vocab && s->w.logits[i] == 0)
        i++;
    return i < s->model->hp.n_vocab;
}

static int write_file(struct wanted *w, const struct cb_session *s, struct whole_bank *whole,
                      const char *path)
{
    struct saved_how how = { .unsynced = 1, .whole = whole };
    struct saved_bank *parent;
    uint64_t bytes = 0;
    int fits = 0, err = open_parent(w, &parent, &how.n_shared);

    TRY(err);
    how.parent = parent;
    cb_json_set(&w->about, "work",
                json_real(work_of(s, s->bank.n_seen) - work_of(s, how.n_shared)));
    cb_json_set(&w->about, "logits", json_boolean(has_logits(s)));
    if (!(how.about = w->about)) /* cb_json_set() has dropped it */
        err = CB_ENOMEM;
    if (!err)
        err = bytes_of(s, how.n_shared, &bytes);
    if (!err)
        fits = cb_bank_make_room(w->dir->path, w->dir->most, bytes,
                                 parent ? cb_file_name(parent->file.path) : NULL);
    if (!err && fits > 0)
        err = cb_saved_write(s, path, &how);
    cb_saved_close(parent);
    return err ? err : min_int(fits, 0);
}

/* s: the session, or its view in one process */
static int put(struct wanted *w, const struct cb_session *s, struct whole_bank *whole)
{
    const struct bank_prompt *p = &w->prompt;
    char name[BANK_NAME], *path;
    int lock, err;

    TRY(want(w, s));
    cb_bank_name(w->key, XXH3_64bits(p->tokens, (size_t)p->n * sizeof *p->tokens), name);
    if (!(path = cb_bank_path(w->dir->path, name)))
        return CB_ENOMEM;
    err = access(path, F_OK) ? cb_bank_folder_lock(w->dir->path, &lock) : 1;
    if (!err) {
        w->locked = 1;
        err = access(path, F_OK) ? write_file(w, s, whole, path) : CB_OK;
        close(lock);
    }
    free(path);
    return err < 0 ? err : CB_OK; /* 1: it is there */
}

int cb_bank_dir_put(cb_bank_dir *d, const cb_session *s)
{
    struct wanted w = { .dir = d,
                        .model = s->model,
                        .prompt = { .tokens = s->token, .n = s->bank.n_seen } };
    struct whole_bank *whole;
    int err;

    if (!cb_in_step_has_bank(s))
        TRY(cb_in_step_alone(s, "bank folder"));
    TRY(cb_session_check_idle(s));
    if (w.prompt.n < BLOCK || s->n_prefill_exact != w.prompt.n || !cb_policy_is_listed(s->policy) ||
        cb_session_expands(s))
        return CB_OK;
    err = cb_whole_bank_open(s, &whole);
    if (!err)
        err = put(&w, cb_whole_bank_session(whole, s), whole);
    cb_whole_bank_close(whole);
    want_end(&w);
    return err;
}
