/* SPDX-License-Identifier: MIT */
/* session_open.c - opens and closes a timeline, on every rank of its model. */
#include <stdlib.h>
#include <string.h>

#include "bank/mapped_files.h"
#include "base/err.h"
#include "base/ints.h"
#include "expanded_latents.h"
#include "in_step.h"
#include "model/assistant.h"
#include "prompt_repeat.h"
#include "session.h"
#include "snapshot.h"

enum {
    DEFAULT_CHUNK = 512,
    MAX_CHUNK = 1 << 16,
    MAX_CTX = 1 << 30 /* sizes in blocks and pages are rounded up in int */
};

/* Where no layer has keys, there is nothing to choose from. */
static int check_keys(const struct cb_session *s, const struct shape *sh)
{
    const char *prefill = s->params.prefill;

    if (sh->n_layer)
        return CB_OK;
    if (strcmp(s->policy->m->name, "full"))
        return cb_fail(CB_EUNSUPPORTED, "policy %s: no layer of the model has keys",
                       s->policy->m->name);
    return !prefill || !strcmp(prefill, "dense")
               ? CB_OK
               : cb_fail(CB_EUNSUPPORTED, "prefill %s: no layer of the model has keys", prefill);
}

static int open_policy(struct cb_session *s, const struct cb_session_params *p,
                       const struct method *m, void *arg)
{
    const struct hparams *hp = &s->model->hp;
    const struct layer_share *own = &s->model->share;
    struct shape sh = { .n_layer = cb_model_policy_layers(s->model),
                        .n_head = hp->n_head,
                        .n_kv = hp->n_kv,
                        .hd = hp->hd,
                        .n_ctx = s->bank.n_ctx,
                        .one_row = s->bank.one_row,
                        .at = s->model->global,
                        .n_model_layer = hp->n_layer,
                        .model = s->model->fingerprint,
                        .preset_dir = s->model->preset_dir,
                        .trained_blocks = s->model->blocks.start,
                        .trained_sinks = s->model->blocks.sinks,
                        .trained_recent = s->model->blocks.recent,
                        .selects = cb_model_selects(s->model),
                        .guest = p->guest };

    if (own->n_all) {
        sh.n_layer = own->n_policy;
        sh.n_model_layer = own->n_all;
        sh.own = (struct own_layers){ own->policy_first, own->n_own, own->at, hp->n_layer };
    }
    if (m)
        TRY(cb_policy_open_as(m, arg, &sh, &s->policy));
    else
        TRY(cb_policy_open(p->policy, &sh, &s->policy));
    TRY(check_keys(s, &sh));
    return cb_policy_plan(s->policy, &s->bank);
}

static int open_attention(struct cb_session *s, const char *prefill)
{
    s->attention = (struct attention){ .model = s->model,
                                       .dev = s->dev,
                                       .host = cb_device_host(s->dev),
                                       .bank = &s->bank,
                                       .policy = s->policy,
                                       .rope = s->rope,
                                       .chunk = s->chunk,
                                       .max_draft = 1 };
    return cb_attention_open(&s->attention, prefill);
}

static int reserve_device(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const int nq = hp->n_head * hp->hd_max;
    const struct ngrams *grams = cb_stream_ngrams(s->model);
    int max_in = max_int(hp->n_ff_max, hp->n_stream * hp->n_embd);
    int64_t bytes;

    max_in = max_int(max_int(max_in, nq), max_int(hp->latent.low, hp->compress.low));
    max_in = max_int(max_in, hp->compress.n_group * hp->compress.group_low);
    max_in = max_int(max_in, hp->mix.n_head * hp->mix.dv);
    max_in = max_int(max_in, hp->stream_rank);
    max_in = grams ? max_int(max_in, grams->n_head * grams->dim) : max_in;
    max_in = s->model->mtp_of ? max_int(max_in, 2 * hp->n_embd) : max_in;
    max_in = s->model->assistant ? max_int(max_in, 2 * s->model->assistant->n_target) : max_in;
    bytes = s->dev->ops->reserve(
        s->dev, s->chunk, max_in, hp->n_vocab > max_in ? hp->n_vocab : max_in,
        max_int(hp->n_head, max_int(hp->selector.n_head, hp->compress.n_index)),
        max_int(hp->hd_max, max_int(hp->selector.hd, hp->compress.index_hd)), s->bank.n_ctx);
    if (bytes < 0)
        return (int)bytes;
    s->device_bytes = (uint64_t)bytes;
    return CB_OK;
}

/* What has a part on the device; call with it locked, since other sessions may compute. */
static int open_on_device(struct cb_session *s, const struct cb_session_params *p)
{
    /* methods that merge need one column more, for the length of each key */
    TRY(cb_bank_open(&s->bank, p->type_k, p->type_v,
                     s->policy->slot_floats + s->policy->m->merges));
    TRY(open_attention(s, p->prefill));
    TRY(cb_session_work_open(s));
    return reserve_device(s);
}

static int open_steps(struct cb_session *s, const struct cb_session_params *p,
                      const struct method *m, void *arg)
{
    const struct hparams *hp = &s->model->hp;
    int err;

    if (p->n_ctx < 0 || p->n_ctx > MAX_CTX || p->chunk < 0 || p->chunk > MAX_CHUNK)
        return cb_fail(CB_EARG, "context %d, chunk %d: out of range", p->n_ctx, p->chunk);
    if (p->act_bits && p->act_bits != 8 && p->act_bits != 16)
        return cb_fail(CB_EARG, "activations of %d bits: only 8 and 16 are possible", p->act_bits);
    s->act_bits = p->act_bits ? p->act_bits : 16;
    s->bank = (struct bank){ .dev = s->dev,
                             .rows_only = s->model->rows_only,
                             .small_pages = s->model->small_pages,
                             .n_layer = hp->n_layer,
                             .one_row = hp->one_row,
                             .checkpoint_bytes = p->checkpoint_bytes,
                             .n_kv = hp->n_kv,
                             .hd = hp->hd,
                             .layer = s->model->layer,
                             .n_ctx = p->n_ctx ? p->n_ctx : hp->n_ctx_train };
    s->chunk = s->model->assistant ? 1 : p->chunk ? p->chunk : DEFAULT_CHUNK;
    if (s->chunk > s->bank.n_ctx)
        s->chunk = s->bank.n_ctx;
    TRY(cb_model_rope(s->model, s->bank.n_ctx, s->rope));
    TRY(open_policy(s, p, m, arg));
    s->n_ctx = s->bank.n_ctx;
    TRY(cb_prompt_repeat_new(s->model, s->policy, s->n_ctx, &s->repeat));
    s->bank.n_ctx += cb_prompt_repeat_room(s->repeat, s->n_ctx);
    TRY(cb_device_lock(s->dev));
    err = open_on_device(s, p);
    cb_device_unlock(s->dev);
    return err;
}

struct cb_session_params cb_session_defaults(void)
{
    return (struct cb_session_params){ 0 };
}

struct cb_prefill cb_prefill_defaults(void)
{
    return (struct cb_prefill){ 0 };
}

int cb_session_open(cb_model *model, const struct cb_session_params *params, cb_session **out)
{
    TRY(cb_session_open_as(model, params, NULL, NULL, out));
    if (*(*out)->policy->note)
        cb_model_log(model, CB_LOG_NOTE, "%s", (*out)->policy->note);
    return CB_OK;
}

/* The addresses of the texts in params */
static void texts_of(struct cb_session_params *p, const char **text[4])
{
    text[0] = &p->type_k;
    text[1] = &p->type_v;
    text[2] = &p->policy;
    text[3] = &p->prefill;
}

static int own_params(struct cb_session *s, const struct cb_session_params *p)
{
    const char **text[4];
    int err = CB_OK;

    s->params = *p;
    if (!p->policy)
        s->params.policy = cb_model_policy(s->model);
    texts_of(&s->params, text);
    for (int i = 0; i < 4; i++) {
        const char *given = *text[i];
        *text[i] = given ? strdup(given) : NULL;
        if (given && !*text[i])
            err = cb_fail(CB_ENOMEM, "out of memory");
    }
    return err;
}

static void free_params(struct cb_session_params *p)
{
    const char **text[4];

    texts_of(p, text);
    for (int i = 0; i < 4; i++)
        free((void *)(uintptr_t)*text[i]); /* own_params' strdup */
}

int cb_session_open_as(cb_model *model, const struct cb_session_params *params,
                       const struct method *m, void *arg, cb_session **out)
{
    const struct cb_session_params defaults = cb_session_defaults();
    struct cb_session *s;
    int err;

    *out = NULL;
    if (!model->dev)
        return cb_fail(CB_EARG, "session: the model was opened for its vocabulary alone");
    s = cb_calloc(1, sizeof *s);
    if (!s)
        return CB_ENOMEM;
    s->model = model;
    s->dev = model->dev;
    err = cb_in_step_begin_open(model, params ? params : &defaults, m);
    if (err) {
        free(s);
        return err;
    }
    err = own_params(s, params ? params : &defaults);
    if (!err)
        err = open_steps(s, &s->params, m, arg);
    err = cb_in_step_end_open(model, s, err);
    if (err) {
        cb_session_close(s);
        return err;
    }
    *out = s;
    return CB_OK;
}

static void close_here(cb_session *s)
{
    int locked;

    /* memory of the device's own: others may compute; not locked: in a callback of theirs */
    locked = s->dev->ops->memory && !cb_device_lock(s->dev);
    if (s->follower)
        s->follower->close(s->follower);
    cb_snapshot_drop(&s->snapshot);
    cb_prompt_repeat_free(s->repeat);
    cb_attention_close(&s->attention);
    cb_policy_close(s->policy);
    cb_mapped_files_close(s->mapped);
    cb_bank_close(&s->bank);
    cb_expanded_close(s);
    cb_session_work_close(s->dev, &s->w);
    if (locked)
        cb_device_unlock(s->dev);
    free(s->lent);
    free(s->token);
    free(s->decoded);
    for (int i = 0; i < ROPE_TABLES; i++)
        cb_rope_close(&s->rope[i]);
    free_params(&s->params);
    free(s);
}

void cb_session_close(cb_session *s)
{
    struct in_step *x;
    int told;

    if (!s || s->busy) /* called from a callback */
        return;
    x = s->in_step;
    told = !cb_in_step_begin(s, VERB_CLOSE, NULL, 0);
    if (told)
        cb_in_step_forget(s);
    close_here(s);
    if (told)
        cb_in_step_end(x, CB_OK);
}
