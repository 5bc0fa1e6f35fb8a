/* SPDX-License-Identifier: MIT */
/* drafted.c - a session with drafts beside one without. */
#include "drafted.h"

#include <check.h>
#include <string.h>

#include "engine/session.h"
#include "suite.h"

static int n_vocab_of(const cb_session *s)
{
    return s->model->hp.n_vocab;
}

int32_t cb_drafted_token(int i)
{
    return 3 + i * 7 % 50;
}

void cb_drafted_same_logits(const cb_session *s, const float *logits, const char *what, int at)
{
    const size_t bytes = (size_t)n_vocab_of(s) * sizeof(float);

    ck_assert_msg(!memcmp(cb_session_logits(s), logits, bytes), "%s, token %d", what, at);
}

void cb_drafted_at_once(cb_session *one, cb_session *all, int n)
{
    static const int sizes[] = { 1, 2, 5, 9, 16, 3 };

    for (int at = 0, k = 0; at < n; k++) {
        const int m = sizes[k % 6];
        const float *logits;
        int32_t tok[16];
        for (int i = 0; i < m; i++)
            tok[i] = cb_drafted_token(1000 + at + i);
        ck_assert_ok(cb_session_decode_all(all, tok, m, &logits));
        for (int i = 0; i < m; i++) {
            ck_assert_ok(cb_session_decode(one, tok[i]));
            cb_drafted_same_logits(one, logits + (size_t)i * (size_t)n_vocab_of(one), "all",
                                   at + i);
        }
        cb_drafted_same_logits(one, cb_session_logits(all), "last", at);
        at += m;
    }
    cb_session_close(one);
    cb_session_close(all);
}

/* One token of the text; a and b: the samplers of the session without drafts, and of x */
static void step(cb_session *one, cb_speculation *x, cb_sampler *a, cb_sampler *b, int i)
{
    const int32_t id = cb_sampler_pick(a, cb_session_logits(one));

    cb_drafted_same_logits(one, cb_speculation_logits(x), "text", i);
    ck_assert_int_eq(cb_sampler_pick(b, cb_speculation_logits(x)), id);
    cb_sampler_accept(a, id);
    cb_sampler_accept(b, id);
    ck_assert_ok(cb_session_decode(one, id));
    ck_assert_ok(cb_speculation_decode(x, id));
    ck_assert_int_eq(cb_speculation_len(x), cb_session_len(one));
}

struct cb_speculation_counts cb_drafted_text(cb_session *one, cb_session *s,
                                             const struct drafted_text *x)
{
    struct cb_speculation_counts counts;
    cb_sampler *a, *b;
    cb_speculation *drafts;

    ck_assert_ok(cb_sampler_new(&x->pick, n_vocab_of(s), &a));
    ck_assert_ok(cb_sampler_new(&x->pick, n_vocab_of(s), &b));
    ck_assert_ok(cb_speculation_new(s, x->most, &drafts));
    ck_assert_ok(cb_speculation_set_draft(drafts, x->draft));
    for (int i = 0; i < x->n; i++)
        step(one, drafts, a, b, i);
    ck_assert_ok(cb_speculation_end(drafts));
    ck_assert_int_eq(cb_session_len(s), cb_session_len(one));
    ck_assert(!memcmp(cb_session_tokens(s), cb_session_tokens(one),
                      (size_t)cb_session_len(s) * sizeof(int32_t)));
    cb_speculation_get_counts(drafts, &counts);
    ck_assert_int_ge(counts.drafted, counts.accepted);
    cb_speculation_free(drafts);
    cb_sampler_free(a);
    cb_sampler_free(b);
    cb_session_close(one);
    cb_session_close(s);
    return counts;
}
