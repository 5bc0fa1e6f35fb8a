/* SPDX-License-Identifier: MIT */
/* sample.c - token sequences cut from texts. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/plain_text.h"
#include "eval/ask.h"
#include "eval/item.h"

/* A file from which samples are cut. */
struct source {
    int32_t *ids; /* [n] tokens of a text; bos: the first is BOS, as the model asks for it */
    int n, bos;
    struct item_list items; /* items of JSON lines */
    int jsonl;
};

static int read_text(const cb_model *m, const char *path, struct source *x)
{
    struct cb_model_info info;
    struct buf text = { 0 };
    int err = cb_file_read_path(path, &text);

    cb_model_get_info(m, &info);
    x->bos = info.add_bos;
    if (!err)
        err = cb_plain_text(path, &text, NULL);
    if (!err)
        err = cb_tokenize(m, text.s, text.n, CB_TOK_BOS, &x->ids, &x->n);
    cb_buf_free(&text);
    return err;
}

static int source_open(const cb_model *m, const char *path, struct source *x)
{
    const size_t n = strlen(path);

    x->jsonl = n > 6 && !strcmp(path + n - 6, ".jsonl");
    return x->jsonl ? cb_item_read(path, NULL, NULL, &x->items) : read_text(m, path, x);
}

static void source_close(struct source *x)
{
    free(x->ids);
    cb_item_list_free(&x->items);
}

/* Cuts the i-th of n samples. If the text begins with BOS, each sample does. */
static int cut(const cb_model *m, const struct source *x, int i, int n, int n_ctx,
               struct sample *out)
{
    const int room = x->n - n_ctx;

    if (x->jsonl) {
        struct prompt p;
        TRY(cb_ask_prompt(m, NULL, &x->items.at[(int64_t)i * x->items.n / n], n_ctx, 1, &p));
        *out = (struct sample){ p.ids, p.n };
        return CB_OK;
    }
    out->n = room < 0 ? x->n : n_ctx;
    out->ids = cb_calloc((size_t)out->n + 1, sizeof *out->ids);
    if (!out->ids)
        return CB_ENOMEM;
    memcpy(out->ids, x->ids + (room > 0 && n > 1 ? (int64_t)room * i / (n - 1) : 0),
           (size_t)out->n * sizeof *out->ids);
    if (out->n && x->bos)
        out->ids[0] = x->ids[0];
    return CB_OK;
}

/* How many of `want` samples a source can give. */
static int has(const struct source *x, int want, int n_ctx)
{
    const int most = x->jsonl ? x->items.n : (x->n + n_ctx - 1) / n_ctx;
    return want < most ? want : most;
}

int cb_samples_read(const cb_model *m, const char *const *path, int n_path, int want, int n_ctx,
                    int least, struct samples *out)
{
    int err = CB_OK;

    *out = (struct samples){ cb_calloc((size_t)want + 1, sizeof *out->at), 0 };
    if (!out->at)
        return CB_ENOMEM;
    for (int f = 0; f < n_path && !err; f++) {
        struct source x = { 0 };
        int n = want / n_path + (f < want % n_path);
        err = source_open(m, path[f], &x);
        n = has(&x, n, n_ctx);
        for (int i = 0; i < n && !err; i++) {
            err = cut(m, &x, i, n, n_ctx, &out->at[out->n]);
            if (!err && out->at[out->n].n >= least)
                out->n++;
            else
                free(out->at[out->n].ids);
        }
        source_close(&x);
    }
    if (!err && !out->n)
        err = cb_fail(CB_EARG, "%s: no sample of %d tokens or more", path[0], least);
    if (err)
        cb_samples_free(out);
    return err;
}

void cb_samples_free(struct samples *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->at[i].ids);
    free(s->at);
    *s = (struct samples){ 0 };
}
