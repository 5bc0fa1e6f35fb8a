/* SPDX-License-Identifier: MIT */
/* completion_figures.c - tokens, times and memory of a completion. */
#include <stdlib.h>
#include <string.h>

#include "completion.h"

int cb_completion_prompt_tokens(const struct completion *t)
{
    return t->order.n;
}

int cb_completion_cached_tokens(const struct completion *t)
{
    return t->choice[0].job ? t->choice[0].job->n_cached : 0;
}

int cb_completion_made_tokens(const struct completion *t)
{
    int n = 0;

    for (int i = 0; i < t->n; i++)
        n += t->choice[i].job ? t->choice[i].job->n_out : 0;
    return n;
}

/* The thought's text is tokenized: which token ended it is not known. */
int cb_completion_thought_tokens(const struct completion *t)
{
    int32_t *ids = NULL;
    int all = 0, n;

    for (int i = 0; i < t->n; i++) {
        const struct buf *b = &t->choice[i].thought;
        if (b->n && cb_tokenize(t->s->m.model, b->s, b->n, 0, &ids, &n) == CB_OK) {
            all += n;
            free(ids);
        }
    }
    return all;
}

int cb_choice_cut_in_thought(const struct choice *c)
{
    return cb_reply_in_thought(&c->reply) && cb_choice_is_cut(c);
}

static double rate(int n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

json_t *cb_completion_timings(const struct completion *t)
{
    const struct job *j = t->choice[0].job;
    const struct job_times *at = &j->times;
    const double prompt_s = at->read - at->admitted, made_s = at->ended - at->read;
    const int n = t->order.n - j->n_cached;

    return json_pack("{s:f, s:i, s:f, s:f, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "queue_s",
                     at->admitted - at->ordered, "prompt_tokens", n, "prompt_s", prompt_s,
                     "prompt_tps", rate(n, prompt_s), "predicted_tokens", j->n_out, "predicted_s",
                     made_s, "predicted_tps", rate(j->n_out, made_s), "drafted_tokens",
                     (json_int_t)j->end.drafts.drafted, "accepted_tokens",
                     (json_int_t)j->end.drafts.accepted, "model_drafted_tokens",
                     (json_int_t)j->end.drafts.model_drafted, "model_accepted_tokens",
                     (json_int_t)j->end.drafts.model_accepted, "mtp_drafted_tokens",
                     (json_int_t)j->end.drafts.mtp_drafted, "mtp_accepted_tokens",
                     (json_int_t)j->end.drafts.mtp_accepted);
}

json_t *cb_completion_memory(const struct completion *t)
{
    const struct cb_memory *m = &t->choice[0].job->end.memory;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i}", "weights_bytes",
                     (json_int_t)m->weights_bytes, "kv_bytes", (json_int_t)m->kv_bytes,
                     "kv_full_bytes", (json_int_t)m->kv_full_bytes, "kv_peak_bytes",
                     (json_int_t)m->kv_peak_bytes, "kv_read_bytes_per_token",
                     (json_int_t)m->kv_read_bytes_per_token, "kept_min", m->kept_min, "kept_max",
                     m->kept_max, "bank_hit_tokens", t->choice[0].job->n_remembered);
}
