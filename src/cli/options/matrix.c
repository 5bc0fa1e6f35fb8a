/* SPDX-License-Identifier: MIT */
/* matrix.c - which policies go with which forms of prefill: each policy as it is, and each value of
 * its options that changes the answer. */
#include "matrix.h"

#include <stdio.h>
#include <string.h>

#include "attention/attend.h"
#include "base/words.h"
#include "policy/policy.h"

/* Any model whose layers see everything */
static const struct shape shape = {
    .n_layer = 32, .n_head = 32, .n_kv = 8, .hd = 128, .n_ctx = 32768, .n_model_layer = 32
};

/* 0: the policy is refused by itself, as an option may need another */
static int ask(struct matrix_row *row)
{
    struct policy *p;
    int ok;

    if (cb_policy_open(row->policy, &shape, &p))
        return 0;
    ok = !cb_policy_plan(p, NULL);
    for (int i = 0; ok && cb_prompt_method_at(i); i++)
        row->why[i] = cb_attention_refuses(cb_prompt_method_at(i), p->plan, shape.n_layer);
    cb_policy_close(p);
    return ok;
}

/* The j-th value of all choices of a method -> "NAME:key=value"; 0: there are fewer */
static int variant(const struct method *m, int j, char *spec, size_t size)
{
    for (const struct method_opt *o = m->opts; o->name; o++) {
        const char *list = o->kind == OPT_CHOICE ? o->choices : NULL, *word;
        size_t n;
        while ((word = cb_word(&list, ' ', &n)))
            if (!j--) {
                snprintf(spec, size, "%s:%s=%.*s", m->name, o->name, (int)n, word);
                return 1;
            }
    }
    return 0;
}

/* Without a preset duo needs its heads; which ones makes no difference. */
static int with_heads(const struct method *m, struct matrix_row *row)
{
    struct matrix_row given = { .why = { NULL } };
    int ok;

    snprintf(given.policy, sizeof given.policy, "%s:heads=0", m->name);
    ok = ask(&given);
    memcpy(row->why, given.why, sizeof row->why);
    return ok;
}

static int same(const struct matrix_row *a, const struct matrix_row *b)
{
    for (int i = 0; i < MATRIX_FORMS; i++)
        if (!a->why[i] != !b->why[i])
            return 0;
    return 1;
}

int cb_matrix_next(int *i, int *j, struct matrix_row *out)
{
    const struct method *m;

    for (; (m = cb_method_at(*i)); ++*i, *j = 0) {
        struct matrix_row plain = { .why = { NULL } };
        snprintf(plain.policy, sizeof plain.policy, "%s", m->name);
        if (!ask(&plain) && !with_heads(m, &plain))
            continue;
        *out = plain;
        if (!*j)
            return ++*j;
        while (variant(m, (*j)++ - 1, out->policy, sizeof out->policy))
            if (ask(out) && !same(out, &plain))
                return 1;
    }
    return 0;
}
