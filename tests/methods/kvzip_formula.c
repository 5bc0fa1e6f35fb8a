/* SPDX-License-Identifier: MIT */
/* kvzip_formula.c - what KVzip drops, from the paper's formula, in doubles: the model repeats the
 * prompt, and tokens count by the most attention that they get. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formulas.h"
#include "kit/toy.h"
#include "text/tok.h"

enum { ZIP_SINK = 4, ZIP_PIECE = 32, ZIP_BUDGET = 24 };
static double zip[CB_REF_LAYERS][8][CB_REF_CAP];

static int put_text(const struct slow *s, const char *text, int flags, int32_t *to, int n)
{
    int32_t *id;
    int m;

    ck_assert_int_eq(cb_tok_encode(s->m->tok, text, strlen(text), flags, &id, &m), 0);
    memcpy(to + n, id, (size_t)m * sizeof *id);
    free(id);
    return n + m;
}

/* The model repeats tokens from..to-1 of a text of n, which it has read. */
static void repeat(struct slow *s, const int32_t *text, int n, int from, int to)
{
    const int group = s->hp.n_head / s->hp.n_kv;
    int32_t id[CB_REF_CAP];
    int m = 0;

    if (from == ZIP_SINK) {
        m = put_text(s, "\n\nRepeat the previous context exactly.", 0, id, m);
    } else {
        m = put_text(s, "\n\nRepeat the part of the previous context exactly, starting with", 0, id,
                     m);
        for (int j = from - 8; j < from; j++)
            id[m++] = text[j];
    }
    if (cb_tok_find(s->m->tok, "<|im_end|>") >= 0) /* the model has a chat form */
        m = put_text(s, "<|im_end|>\n<|im_start|>assistant\n", CB_TOK_SPECIAL, id, m);
    else
        m = put_text(s, "\n", 0, id, m);
    for (int j = from; j < to; j++)
        id[m++] = text[j];
    ck_assert_int_le(n + m, s->cap);
    cb_slow_feed(s, id, m);
    for (int l = 0; l < CB_REF_LAYERS; l++)
        for (int h = 0; h < s->hp.n_head; h++)
            for (int u = n; u < n + m; u++) {
                double sum = 0;
                for (int j = 0; j <= u; j++)
                    if (j < ZIP_SINK || (j >= from && j < to) || j >= n)
                        sum += cb_slow_p(s, l, h, u, j);
                for (int j = from; j < to; j++)
                    zip[l][h / group][j] =
                        fmax(zip[l][h / group][j], cb_slow_p(s, l, h, u, j) / sum);
            }
}

/* The worst of all tokens between the first ones and the last `recent`, in layers first..end-1 */
static void drop_least_repeated(struct slow *s, int first, int end, int recent)
{
    int worst[3] = { -1, 0, 0 };

    for (int l = first; l < end; l++)
        for (int h = 0; h < s->hp.n_kv; h++)
            for (int j = ZIP_SINK; j < s->n - recent; j++)
                if (s->left[cb_slow_at(s, l, h, j)] &&
                    (worst[0] < 0 || zip[l][h][j] <= zip[worst[0]][worst[1]][worst[2]])) {
                    worst[0] = l;
                    worst[1] = h;
                    worst[2] = j;
                }
    cb_ref_drop(s, worst[0], worst[1], worst[2]);
}

/* Only the first prompt is dropped; `step` layers compete. */
static void kvzip(struct slow *s, int step, int recent)
{
    const int n = s->n, feed = s->feed;
    const size_t bytes = (size_t)s->hp.n_vocab * sizeof(double);
    double *logits;

    if (feed > 0)
        return;
    logits = malloc(bytes);
    memcpy(logits, s->logits, bytes);
    memset(zip, 0, sizeof zip);
    for (int from = ZIP_SINK; from < n; from += ZIP_PIECE) {
        repeat(s, cb_toy_text(s->m), n, from, from + ZIP_PIECE < n ? from + ZIP_PIECE : n);
        s->n = n;
    }
    s->feed = feed;
    memcpy(s->logits, logits, bytes);
    free(logits);
    for (int first = 0; first < CB_REF_LAYERS; first += step)
        for (int gone = 0; gone < step * s->hp.n_kv * (n - ZIP_BUDGET); gone++)
            drop_least_repeated(s, first, first + step, recent);
}

void cb_ref_kvzip(struct slow *s, int prompt)
{
    if (prompt)
        kvzip(s, CB_REF_LAYERS, 0);
}

void cb_ref_kvzip_layer(struct slow *s, int prompt)
{
    if (prompt)
        kvzip(s, 1, 6);
}
