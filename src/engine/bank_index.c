/* SPDX-License-Identifier: MIT */
/* bank_index.c - what the files of a bank folder hold: a table by name. A file that was replaced is
 * another one by its number or its length. */
#include "bank_index.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "bank_room.h"
#include "base/err.h"
#include "base/ints.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "saved_about.h"
#include "saved_bank.h"

enum {
    BLOCK = KV_PREPACK,
    CAP = 1 << 12,        /* places of the table; half of them are used at most */
    MOST_TOKENS = 1 << 24 /* of all files: 64 MiB */
};

struct known {
    char name[BANK_NAME]; /* "": free */
    dev_t dev;
    ino_t ino;
    off_t bytes;
    uint64_t settings;
    int32_t *token; /* [n] */
    int n, logits;
};

struct bank_index {
    pthread_mutex_t lock;
    struct known at[CAP];
    int n;
    int64_t n_token;
};

/* ---- what serves ---- */

int cb_bank_settings_hash(const json_t *settings, uint64_t *out)
{
    char *text = cb_json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return cb_json_fail("bank");
    *out = XXH3_64bits(text, strlen(text));
    free(text);
    return CB_OK;
}

/* `same` tokens are common, and the timeline has n_have. Where it has no logits of the prompt's
 * last token, that one is fed. Files that share less than a block are none of the prompt. */
static int served(const struct bank_prompt *p, int same, int n_have, int logits)
{
    int n;

    if (same == n_have && (same == p->n ? logits : p->grid))
        return same;
    n = p->grid ? min_int(same, p->n - 1) / p->grid * p->grid : 0;
    return n < BLOCK ? 0 : n;
}

int cb_bank_prompt_serves(const struct bank_prompt *p, const int32_t *have, int n_have, int logits)
{
    int same = 0;

    while (same < n_have && same < p->n && have[same] == p->tokens[same])
        same++;
    return served(p, same, n_have, logits);
}

/* ---- the table ---- */

int cb_bank_index_new(struct bank_index **out)
{
    struct bank_index *x = *out = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    if (pthread_mutex_init(&x->lock, NULL)) {
        free(x);
        *out = NULL;
        return cb_fail(CB_ENOMEM, "out of memory");
    }
    return CB_OK;
}

static void forget_all(struct bank_index *x)
{
    for (int i = 0; i < CAP; i++) {
        free(x->at[i].token);
        x->at[i] = (struct known){ .n = 0 };
    }
    x->n = 0;
    x->n_token = 0;
}

void cb_bank_index_free(struct bank_index *x)
{
    if (!x)
        return;
    forget_all(x);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* The place of `name`, or the free one where it belongs */
static struct known *place(struct bank_index *x, const char *name)
{
    size_t i = (size_t)XXH3_64bits(name, strlen(name)) % CAP;

    while (*x->at[i].name && strcmp(x->at[i].name, name))
        i = (i + 1) % CAP;
    return &x->at[i];
}

/* ---- reading a file ---- */

static int read_settings(const struct saved_bank *b, uint64_t *out)
{
    json_t *settings;
    int err;

    *out = 0; /* a prompt's settings have another hash */
    if (!json_is_object(json_object_get(b->about, "session")))
        return CB_OK;
    settings = cb_saved_settings(b->about);
    err = settings ? cb_bank_settings_hash(settings, out) : CB_ENOMEM;
    json_decref(settings);
    return err;
}

static int read_file(const char *path, struct known *k)
{
    struct saved_bank *b;
    struct stat st;
    int err;

    TRY(cb_saved_open_alone(path, &b));
    err = fstat(b->file.fd, &st) ? cb_fail(CB_EIO, "%s: %s", path, strerror(errno)) : CB_OK;
    if (!err)
        err = read_settings(b, &k->settings);
    if (!err)
        err = cb_saved_tokens(b, &k->token, &k->n);
    if (!err) {
        k->dev = st.st_dev;
        k->ino = st.st_ino;
        k->bytes = st.st_size;
        k->logits = cb_saved_has_logits(b->about);
    }
    cb_saved_close(b);
    return err;
}

static int is_same(const struct known *k, const struct stat *st)
{
    return *k->name && k->dev == st->st_dev && k->ino == st->st_ino && k->bytes == st->st_size;
}

/* Reads the file into the place of its name. */
static int learn(struct bank_index *x, const char *path, const char *name, struct known **out)
{
    struct known fresh = { .n = 0 }, *k;
    int err = read_file(path, &fresh);

    if (err) {
        free(fresh.token);
        return err;
    }
    if (2 * x->n >= CAP || x->n_token > MOST_TOKENS)
        forget_all(x);
    k = place(x, name);
    x->n += !*k->name;
    x->n_token += fresh.n - k->n;
    free(k->token);
    *k = fresh;
    memcpy(k->name, name, BANK_NAME);
    *out = k;
    return CB_OK;
}

int cb_bank_index_serves(struct bank_index *x, const char *path, const char *name,
                         const struct bank_prompt *p, int *n)
{
    struct known *k;
    struct stat st;
    int err = CB_OK;

    *n = 0;
    if (stat(path, &st))
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    pthread_mutex_lock(&x->lock);
    k = place(x, name);
    if (!is_same(k, &st))
        err = learn(x, path, name, &k);
    if (!err)
        *n = k->settings == p->settings ? cb_bank_prompt_serves(p, k->token, k->n, k->logits) : 0;
    pthread_mutex_unlock(&x->lock);
    return err;
}
