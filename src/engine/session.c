/* SPDX-License-Identifier: MIT */
/* session.c - opens, plans, feeds and closes a timeline. */
#include "config.h"

#include "attention/session.h"

#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "attention/nearest_key.h"
#include "attention/sparse_prefill.h"
#include "base/err.h"
#include "device/kivi.h"

enum { DEFAULT_CHUNK = 512, MAX_CHUNK = 1 << 16 };

const char *cb_version(void)
{
    return PACKAGE_VERSION;
}

/* ---- work space ---- */

static int grow(float **p, size_t n, uint64_t *bytes)
{
    free(*p);
    *p = cb_alloc_aligned(n, sizeof **p);
    *bytes += (uint64_t)n * sizeof **p;
    return *p ? CB_OK : CB_ENOMEM;
}

size_t cb_session_tok_floats(const struct cb_session *s)
{
    return (size_t)s->model->hp.n_embd + (size_t)s->model->hp.n_rot;
}

/* Room for a feed of n tokens. */
static int work_fit(struct cb_session *s, int n)
{
    struct work *w = &s->w;
    uint64_t unused = 0;

    if (n <= w->cap_tok)
        return CB_OK;
    w->bytes -= (uint64_t)w->cap_tok * cb_session_tok_floats(s) * sizeof(float);
    w->cap_tok = 0;
    TRY(grow(&w->x, (size_t)n * (size_t)s->model->hp.n_embd, &unused));
    TRY(grow(&w->cs, (size_t)n * (size_t)s->model->hp.n_rot, &unused));
    w->cap_tok = n;
    w->bytes += (uint64_t)n * cb_session_tok_floats(s) * sizeof(float);
    return CB_OK;
}

static int work_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    struct work *w = &s->w;
    const size_t c = (size_t)s->chunk, nq = (size_t)hp->n_head * (size_t)hp->hd;
    const size_t nkv = (size_t)hp->n_kv * (size_t)hp->hd;

    TRY(grow(&w->norm, c * (size_t)hp->n_embd, &w->bytes));
    TRY(grow(&w->qkv, c * (nq + 2 * nkv), &w->bytes));
    TRY(grow(&w->att, c * nq, &w->bytes));
    TRY(grow(&w->gate, c * (size_t)hp->n_ff, &w->bytes));
    TRY(grow(&w->up, c * (size_t)hp->n_ff, &w->bytes));
    return grow(&w->logits, (size_t)hp->n_vocab, &w->bytes);
}

static void work_close(struct work *w)
{
    float *const all[] = { w->x, w->cs, w->norm, w->qkv, w->att, w->gate, w->up, w->logits };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- open ---- */

/* "kivi4" or "kivi2:64": f16 rows, of which all but the newest are quantised. Returns 1 for such.
 */
static int kivi_form(const struct cb_session *s, const char *option, const char *name,
                     struct kivi_form *out)
{
    char *end;
    long r;

    if (!name || strncmp(name, "kivi", 4) || (name[4] != '2' && name[4] != '4'))
        return 0;
    out->bits = name[4] - '0';
    r = name[5] == ':' ? strtol(name + 6, &end, 10) : 128;
    if (name[5] && (name[5] != ':' || end == name + 6 || *end))
        return cb_fail(CB_EARG, "%s %s: unknown type", option, name);
    if (r < KIVI_GROUP || r > 65536 || r % KIVI_GROUP)
        return cb_fail(CB_EARG, "%s %s: must keep a multiple of %d tokens, at least %d", option,
                       name, KIVI_GROUP, KIVI_GROUP);
    if (s->model->hp.hd % KIVI_GROUP || s->model->hp.hd > CB_KIVI_MAX_HD)
        return cb_fail(
            CB_EARG, "%s %s: needs a head_dim that is a multiple of %d up to %d; the model has %d",
            option, name, KIVI_GROUP, CB_KIVI_MAX_HD, s->model->hp.hd);
    out->residual = (int)r;
    return 1;
}

static int kv_type(const struct cb_session *s, const char *option, const char *name,
                   enum kv_type *out, struct kivi_form *kivi)
{
    const int q = kivi_form(s, option, name, kivi);
    const int t = name && !q ? cb_kv_type_find(name) : KV_F16;

    TRY(q);
    if (t < 0)
        return cb_fail(CB_EARG, "%s %s: unknown type", option, name);
    if (s->model->hp.hd % cb_kv_type[t].block)
        return cb_fail(CB_EARG,
                       "%s %s: needs a head_dim that is a multiple of %d; the model has %d", option,
                       name, cb_kv_type[t].block, s->model->hp.hd);
    *out = (enum kv_type)t;
    return CB_OK;
}

static int open_policy(struct cb_session *s, const char *spec, const struct method *m, void *arg)
{
    const struct hparams *hp = &s->model->hp;
    const struct shape sh = { hp->n_layer, hp->n_head, hp->n_kv,
                              hp->hd,      s->n_ctx,   s->model->fingerprint };

    if (m)
        TRY(cb_policy_open_as(m, arg, &sh, &s->policy));
    else
        TRY(cb_policy_open(spec ? spec : "full", &sh, &s->policy));
    s->plan = cb_calloc((size_t)hp->n_layer, sizeof *s->plan);
    s->plan_opened = cb_calloc((size_t)hp->n_layer, sizeof *s->plan_opened);
    if (!s->plan || !s->plan_opened)
        return CB_ENOMEM;
    for (int l = 0; l < hp->n_layer; l++) {
        s->plan[l].kv_of = l;
        s->plan[l].read.unit = 1;
        s->plan[l].read.fetch = -1;
    }
    s->policy->plan = s->plan;
    s->policy->session = s;
    if (s->policy->m->plan)
        TRY(s->policy->m->plan(s->policy, &sh, s->plan));
    memcpy(s->plan_opened, s->plan, (size_t)hp->n_layer * sizeof *s->plan);
    return CB_OK;
}

static int open_stores(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;

    s->store = cb_calloc((size_t)hp->n_layer, sizeof *s->store);
    if (!s->store)
        return CB_ENOMEM;
    for (int l = 0; l < hp->n_layer; l++) {
        TRY(cb_store_open(&s->store[l], hp->n_kv, hp->hd, s->n_ctx, s->type_k, s->type_v,
                          s->policy->slot_floats + cb_nearest_key_columns(s->policy)));
        if (s->kivi_k.bits || s->kivi_v.bits)
            TRY(cb_kivi_open(&s->store[l], s->kivi_k, s->kivi_v));
    }
    return CB_OK;
}

static int reserve_device(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const int nq = hp->n_head * hp->hd;
    int max_in = hp->n_ff > hp->n_embd ? hp->n_ff : hp->n_embd;
    int64_t bytes;

    if (nq > max_in)
        max_in = nq;
    bytes =
        s->dev->ops->reserve(s->dev, s->chunk, max_in, hp->n_vocab > max_in ? hp->n_vocab : max_in,
                             hp->n_head, hp->hd, s->n_ctx);
    if (bytes < 0)
        return (int)bytes;
    s->w.bytes += (uint64_t)bytes;
    return CB_OK;
}

static int open_steps(struct cb_session *s, const struct cb_session_params *p,
                      const struct method *m, void *arg)
{
    const struct hparams *hp = &s->model->hp;

    if (p->n_ctx < 0 || p->chunk < 0 || p->chunk > MAX_CHUNK)
        return cb_fail(CB_EARG, "context %d, chunk %d: out of range", p->n_ctx, p->chunk);
    s->n_ctx = p->n_ctx ? p->n_ctx : hp->n_ctx_train;
    s->chunk = p->chunk ? p->chunk : DEFAULT_CHUNK;
    if (s->chunk > s->n_ctx)
        s->chunk = s->n_ctx;
    TRY(kv_type(s, "type of keys", p->type_k, &s->type_k, &s->kivi_k));
    TRY(kv_type(s, "type of values", p->type_v, &s->type_v, &s->kivi_v));
    if ((s->kivi_k.bits || s->kivi_v.bits) && (s->type_k != KV_F16 || s->type_v != KV_F16))
        return cb_fail(CB_EARG, "types of keys and values: kivi goes with kivi or f16");
    TRY(open_policy(s, p->policy, m, arg));
    TRY(open_stores(s));
    TRY(cb_prefill_open(s, p->prefill));
    TRY(work_open(s));
    TRY(cb_attend_open(s));
    return reserve_device(s);
}

int cb_session_open(cb_model *model, const struct cb_session_params *params, cb_session **out)
{
    return cb_session_open_as(model, params, NULL, NULL, out);
}

int cb_session_open_as(cb_model *model, const struct cb_session_params *params,
                       const struct method *m, void *arg, cb_session **out)
{
    static const struct cb_session_params defaults = { 0 };
    struct cb_session *s = cb_calloc(1, sizeof *s);
    int err;

    *out = NULL;
    if (!s)
        return CB_ENOMEM;
    s->model = model;
    s->dev = model->dev;
    err = open_steps(s, params ? params : &defaults, m, arg);
    if (err) {
        cb_session_close(s);
        return err;
    }
    *out = s;
    return CB_OK;
}

void cb_session_close(cb_session *s)
{
    if (!s)
        return;
    for (int l = 0; s->store && l < s->model->hp.n_layer; l++)
        cb_store_close(&s->store[l]);
    cb_attend_close(s);
    cb_prefill_close(s);
    cb_policy_close(s->policy);
    work_close(&s->w);
    free(s->store);
    free(s->plan);
    free(s->plan_opened);
    free(s);
}

/* ---- feed ---- */

void cb_session_clear(cb_session *s)
{
    for (int l = 0; l < s->model->hp.n_layer; l++)
        cb_store_cut(&s->store[l], 0);
    cb_attend_clear(s);
    s->n_seen = s->n_feed = s->ctx_end = 0;
}

/* What the context must hold is slots: a policy that drops tokens goes on for ever. */
static int check_feed(const struct cb_session *s, const int32_t *tokens, int n)
{
    int held = 0;

    if (n < 1)
        return cb_fail(CB_EARG, "prompt: no tokens");
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const int len = cb_store_max_len(&s->store[l]);
        held = len > held ? len : held;
    }
    if (n > s->n_ctx - held || n > INT32_MAX - s->n_seen)
        return cb_fail(
            CB_EFULL,
            "context: %d tokens do not fit behind %d in a context of %d; raise it with -c", n, held,
            s->n_ctx);
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model->hp.n_vocab)
            return cb_fail(CB_EARG, "token %d: id %d is not in the vocabulary of %d", i, tokens[i],
                           s->model->hp.n_vocab);
    return CB_OK;
}

/* Forgets what a feed that failed had added; all, where slots may have been dropped meanwhile. */
static void undo(struct cb_session *s)
{
    if (s->policy->m->compact || s->policy->m->layer_bytes || s->cross_layer) {
        cb_session_clear(s);
        return;
    }
    for (int l = 0; l < s->model->hp.n_layer; l++)
        cb_store_cut(&s->store[l], s->n_seen);
}

struct feed {
    cb_session *s;
    const int32_t *tokens;
    int n, status;
    const struct cb_prefill *how;
};

static void feed_body(void *ctx)
{
    struct feed *f = ctx;
    f->status = cb_forward(f->s, f->tokens, f->n, f->how);
}

static int feed(cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how)
{
    struct feed f = { s, tokens, n, CB_OK, how };

    TRY(check_feed(s, tokens, n));
    TRY(work_fit(s, n));
    cb_par_run(s->dev->par, feed_body, &f);
    s->n_feed = 0;
    if (f.status)
        undo(s);
    return f.status;
}

int cb_session_prefill(cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how)
{
    if (how && how->logits && (how->logits_from < 0 || how->logits_from > n))
        return cb_fail(CB_EARG, "prefill: logits from token %d of %d", how->logits_from, n);
    s->decoding = 0;
    TRY(feed(s, tokens, n, how));
    s->ctx_end = s->n_seen;
    return CB_OK;
}

int cb_session_decode(cb_session *s, int32_t token)
{
    s->decoding = 1;
    return feed(s, &token, 1, NULL);
}

int cb_session_want_top(cb_session *s, int k)
{
    if (k < 0)
        return cb_fail(CB_EARG, "the %d largest logits", k);
    if (k)
        TRY(cb_model_prune_head(s->model));
    s->top = k;
    return CB_OK;
}

const float *cb_session_logits(const cb_session *s)
{
    return s->w.logits;
}

int cb_session_len(const cb_session *s)
{
    return s->n_seen;
}

const char *cb_session_note(const cb_session *s)
{
    return s->policy->note;
}
