/* SPDX-License-Identifier: MIT */
/* sampling.c - lists of tokens for the sampler: --logit-bias and --dry-sequence-breaker. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/number.h"
#include "cmd.h"

/* "15043+1.5", "15043-inf" */
static int parse_bias(const char *text, int n_vocab, struct cb_logit_bias *out)
{
    char *end, *rest;
    const long id = strtol(text, &end, 10);

    if (end == text || (*end != '+' && *end != '-'))
        return cb_usage("--logit-bias: '%s' is not ID+X or ID-X", text);
    if (id < 0 || id >= n_vocab)
        return cb_usage("--logit-bias: token %ld is not in the vocabulary of %d", id, n_vocab);
    out->token = (int32_t)id;
    if (!strcmp(end + 1, "inf")) {
        out->bias = *end == '+' ? INFINITY : -INFINITY;
        return CB_OK;
    }
    out->bias = (float)cb_number(end + 1, &rest) * (*end == '-' ? -1 : 1);
    if (rest == end + 1 || *rest || !isfinite(out->bias))
        return cb_usage("--logit-bias: '%s' has no number after the token", text);
    return CB_OK;
}

static int biases(const struct opts *o, const struct engine *e, struct sampling *s)
{
    int n;
    const char *const *text = cb_opt_texts(o, ARG_LOGIT_BIAS, &n);

    s->bias = cb_calloc((size_t)n + 1, sizeof *s->bias);
    if (!s->bias)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++)
        TRY(parse_bias(text[i], e->info.n_vocab, &s->bias[i]));
    s->p.bias = s->bias;
    s->p.n_bias = n;
    return CB_OK;
}

static int has_breaker(const struct engine *e, int32_t id, const struct buf *text, int n)
{
    char bytes[256];
    const int len = cb_token_bytes(e->model, id, 1, bytes, sizeof bytes);

    for (int i = 0; i < n; i++)
        if (text[i].n && len <= (int)sizeof bytes &&
            memmem(bytes, (size_t)len, text[i].s, text[i].n))
            return 1;
    return 0;
}

/* All tokens that have one of the texts in them */
static int collect(const struct engine *e, const struct buf *text, int n, struct sampling *s)
{
    s->breaker = cb_calloc((size_t)e->info.n_vocab, sizeof *s->breaker);
    if (!s->breaker)
        return CB_ENOMEM;
    for (int32_t id = 0; id < e->info.n_vocab; id++)
        if (has_breaker(e, id, text, n))
            s->breaker[s->p.n_dry_breaker++] = id;
    s->p.dry_breaker = s->breaker;
    return CB_OK;
}

static int breakers(const struct opts *o, const struct engine *e, struct sampling *s)
{
    static const char *const usual[] = { "\n", ":", "\"", "*" };
    int n, rc = CB_OK;
    const char *const *given = cb_opt_texts(o, ARG_DRY_BREAKER, &n);
    struct buf *text;

    if (n == 1 && !strcmp(given[0], "none"))
        return CB_OK;
    if (!n) {
        given = usual;
        n = sizeof usual / sizeof *usual;
    }
    text = cb_calloc((size_t)n, sizeof *text);
    if (!text)
        return CB_ENOMEM;
    for (int i = 0; i < n && !rc; i++)
        rc = cb_put_text(o, given[i], &text[i]);
    if (!rc)
        rc = collect(e, text, n, s);
    for (int i = 0; i < n; i++)
        cb_buf_free(&text[i]);
    free(text);
    return rc;
}

int cb_sampling_open(const struct opts *o, const struct engine *e, struct sampling *s)
{
    const int last = cb_opt_int(o, ARG_DRY_LAST_N);

    *s = (struct sampling){ .bias = NULL };
    TRY(cb_sampler_from(o, &s->p));
    s->p.dry_last_n = last < 0 ? e->n_ctx : last;
    TRY(biases(o, e, s));
    return s->p.dry_multiplier != 0 && s->p.dry_last_n ? breakers(o, e, s) : CB_OK;
}

void cb_sampling_close(struct sampling *s)
{
    free(s->bias);
    free(s->breaker);
    *s = (struct sampling){ .bias = NULL };
}
