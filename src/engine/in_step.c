/* SPDX-License-Identifier: MIT */
/* in_step.c - opens a session on several ranks, and tells the others what comes. */
#include "in_step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "attention/attend.h"
#include "base/err.h"
#include "device/split_rows.h"
#include "gguf/gguf.h"
#include "orders.h"

enum { SETTINGS = 2048, SAMPLE = 4096 };

/* ---- are all ranks alike? ---- */

/* Tells models apart without reading their files whole: of each tensor its name, type and shape,
 * and bytes of its begin, middle and end. */
static uint64_t tensors_hash(const struct gguf *g)
{
    uint64_t h = 0;

    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        const int64_t shape[] = { t->type, t->dim[0], t->dim[1], t->dim[2], t->dim[3] };
        const size_t n = t->size < SAMPLE ? t->size : SAMPLE;
        h = XXH3_64bits_withSeed(t->name.s, t->name.n, h);
        h = XXH3_64bits_withSeed(shape, sizeof shape, h);
        for (int part = 0; part < 3; part++)
            h = XXH3_64bits_withSeed((const char *)t->data + (t->size - n) / 2 * (size_t)part, n,
                                     h);
    }
    return h;
}

/* What must be the same everywhere -> lines NAME=VALUE. Adapters count by their weights. */
static int settings(struct cb_session *s, char *text)
{
    const struct cb_session_params *p = &s->params;
    uint64_t weights = tensors_hash(s->model->gguf);

    if (s->model->max_rank)
        TRY(cb_model_fingerprint(s->model, &weights));
    memset(text, 0, SETTINGS);
    snprintf(text, SETTINGS,
             "version=%s\nsplit=%s\nmodel=%016" PRIx64 "\nweights=%016" PRIx64
             "\ninstruction set=%s\n"
             "prompt products=%s\ncontext=%d\nchunk=%d\nbits of activations=%d\nkeys=%s\n"
             "values=%s\nprefill=%s\npolicy=%.1000s\n",
             cb_version(), cb_split_rows_is(s->dev) ? "tensor" : "context", s->model->fingerprint,
             weights, s->dev->isa, s->model->matmul, s->n_ctx, s->chunk, s->act_bits,
             p->type_k ? p->type_k : "f16", p->type_v ? p->type_v : "f16",
             p->prefill ? p->prefill : "dense", p->policy ? p->policy : "full");
    return CB_OK;
}

/* The first line in which two texts differ: its name and its values there */
static int differ(const struct ranks *team, int rank, const char *a, const char *b)
{
    int name, na, nb;

    while (*a == *b) {
        const size_t n = strcspn(a, "\n") + 1;
        if (strncmp(a, b, n))
            break;
        a += n;
        b += n;
    }
    name = (int)strcspn(a, "=");
    na = (int)strcspn(a, "\n") - name - 1;
    nb = (int)strcspn(b + name, "\n") - 1;
    return cb_fail(CB_EARG, "rank %d (%s) differs from rank 0: %.*s %.*s, not %.*s", rank,
                   cb_ranks_host(team, rank), name, a, nb, b + name + 1, na, a + name + 1);
}

static int check_alike(struct cb_session *s, struct ranks *team)
{
    const int n = cb_ranks_n(team);
    char *all = cb_calloc((size_t)n + 1, SETTINGS), *mine = all + (size_t)n * SETTINGS;
    int err;

    if (!all)
        return CB_ENOMEM;
    err = settings(s, mine);
    if (!err)
        err = cb_ranks_share(team, mine, SETTINGS, all);
    for (int r = 1; !err && r < n; r++)
        if (strcmp(all, all + (size_t)r * SETTINGS))
            err = differ(team, r, all, all + (size_t)r * SETTINGS);
    free(all);
    return err;
}

int cb_session_split(struct cb_session *s, struct ranks *team)
{
    if (cb_ranks_n(team) == 1)
        return CB_OK;
    if (s->bank.n_seen)
        return cb_fail(CB_EARG, "split: the session is not empty");
    TRY(check_alike(s, team));
    if (!cb_split_rows_is(s->dev))
        TRY(cb_context_split_open(&s->attention, team));
    s->team = team;
    return CB_OK;
}

/* ---- what comes ---- */

int cb_in_step_tell(const struct cb_session *s, enum verb verb, const int32_t *number, int n)
{
    struct order o = { .verb = verb, .n = n };

    if (!s->team || cb_ranks_me(s->team))
        return CB_OK;
    for (int i = 0; i < n && i < ORDER_NUMBERS; i++)
        o.number[i] = number[i];
    TRY(cb_ranks_tell(s->team, 0, &o, sizeof o, 1));
    /* rank 0 only reads it */
    return n > ORDER_NUMBERS
               ? cb_ranks_tell(s->team, 0, (void *)(uintptr_t)number, (size_t)n * sizeof *number, 0)
               : CB_OK;
}

int cb_in_step_alone(const struct cb_session *s, const char *what)
{
    return s->team ? cb_fail(CB_EUNSUPPORTED, "%s: not yet on several ranks", what) : CB_OK;
}
