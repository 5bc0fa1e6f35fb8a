/* SPDX-License-Identifier: MIT */
/* probe.c - a session that keeps and reads everything, and reports the attention of its tokens. */
#include "probe.h"

#include "base/err.h"
#include "engine/session.h"

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const struct probe *x = p->arg;

    for (int l = 0; l < sh->n_layer; l++) {
        row[l].score.when = x->prompt ? WHEN_ALWAYS : WHEN_STEP;
        row[l].score.heads = EACH_HEAD;
    }
    return 0;
}

static int observe(struct policy *p, int l, void *state, const struct scores *s)
{
    const struct probe *x = p->arg;

    (void)state;
    x->look(x->arg, l, s->prompt ? s->n : cb_view_prompt_end(p), s);
    return 0;
}

static const struct method_opt none[] = { { .name = NULL } };
static const struct method probe = {
    .name = "probe", .opts = none, .plan = plan_layers, .observe = observe
};

int cb_probe_open(cb_model *m, const struct probe *p, int n_ctx, cb_session **out)
{
    const struct cb_session_params params = { .n_ctx = n_ctx };
    struct probe *const arg = (struct probe *)(uintptr_t)p; /* read through p->arg alone */

    return cb_session_open_as(m, &params, &probe, arg, out);
}

int cb_probe_feed(cb_session *s, const int32_t *ids, int n, int n_step,
                  const struct cb_prefill *how)
{
    cb_session_clear(s);
    TRY(cb_session_prefill(s, ids, n - n_step, how));
    for (int i = n - n_step; i < n; i++) {
        if (how && how->progress && how->progress(how->progress_arg, i, n))
            return cb_fail(CB_ECANCEL, "stopped");
        TRY(cb_session_decode(s, ids[i]));
    }
    return CB_OK;
}
