/* SPDX-License-Identifier: MIT */
/* fork.c - splits a timeline into two, or cuts it back. */
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "session.h"

static void copy_logits(struct cb_session *to, const struct cb_session *from)
{
    memcpy(to->w.logits, from->w.logits, (size_t)from->model->hp.n_vocab * sizeof *to->w.logits);
}

int cb_session_fork(const cb_session *s, cb_session **out)
{
    /* a method outside the table cannot be opened by name */
    const struct method *own = cb_policy_is_listed(s->policy) ? NULL : s->policy->m;
    cb_session *f;
    int err;

    *out = NULL;
    TRY(cb_session_check_idle(s));
    TRY(cb_session_open_as(s->model, &s->params, own, s->policy->arg, &f));
    err = cb_bank_copy(&f->bank, &s->bank);
    if (err) {
        cb_session_close(f);
        return err;
    }
    cb_attention_copy(&f->attention, &s->attention);
    f->top = s->top;
    f->luck = s->luck;
    copy_logits(f, s);
    *out = f;
    return CB_OK;
}

/* 0 < n < tokens fed */
static int cut(struct cb_session *s, int n)
{
    const char *why = cb_attention_uncut(&s->attention, n);

    if (why)
        return cb_fail(CB_EUNSUPPORTED, "truncate: policy %s cannot go back to %d tokens: %s",
                       s->policy->m->name, n, why);
    cb_attention_cut(&s->attention, n);
    return CB_OK;
}

int cb_session_truncate(cb_session *s, int n)
{
    int err = CB_OK;

    TRY(cb_session_check_idle(s));
    if (n < 0 || n > s->bank.n_seen)
        return cb_fail(CB_EARG, "truncate: %d tokens of %d", n, s->bank.n_seen);
    if (n == s->bank.n_seen)
        return CB_OK;
    TRY(cb_device_lock(s->dev)); /* the device unpacks prepacked blocks into rows */
    if (n)
        err = cut(s, n);
    cb_device_unlock(s->dev);
    if (!n)
        cb_session_clear(s);
    if (!err)
        memset(s->w.logits, 0, (size_t)s->model->hp.n_vocab * sizeof *s->w.logits);
    return err;
}
