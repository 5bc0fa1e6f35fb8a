/* SPDX-License-Identifier: MIT */
/* info_plans.c - ctxbank info --plans: one line for each policy with its default options, and for
 * each type of keys and values: what a context takes, and with --fit how long it may be. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/cmd.h"
#include "info_plans.h"

struct row {
    const char *policy, *type_k, *type_v;
    struct cb_memory m;
    int longest;   /* tokens that fit into the limit, at most the context */
    char why[256]; /* it is refused */
};

struct plans {
    const struct opts *o;
    struct engine e;
    struct cb_session_params params;
    uint64_t limit; /* bytes; 0: none */
    json_t *list;   /* or NULL: text */
};

/* A context of n tokens -> *m. Notes of a model's log have been given when the row was planned. */
static int plan(const struct plans *x, const struct row *r, int n, struct cb_memory *m)
{
    struct cb_session_params p = x->params;
    cb_session *s = NULL;
    int err;

    p.policy = r->policy;
    p.type_k = r->type_k;
    p.type_v = r->type_v;
    p.n_ctx = n;
    err = cb_session_open(x->e.model, &p, &s);
    if (!err)
        err = cb_session_plan(s, n, 0, m);
    cb_session_close(s);
    return err;
}

/* The longest context within the limit, to a part in FINE and rather less: bytes grow about evenly
 * with tokens, so each try lies where a line through the last two bounds meets the limit; and work
 * space that sessions share stays as large as an earlier, longer one needed it. */
static int longest(const struct plans *x, const struct row *r)
{
    enum { FINE = 256, TRIES = 12, SHORT = 64 };
    int lo = 0, hi = x->e.n_ctx;
    double below = 0, above = (double)cb_memory_total(&r->m);
    struct cb_memory m;

    if (above <= (double)x->limit)
        return hi;
    for (int i = 0; i < TRIES && hi - lo > 1 + hi / FINE; i++) {
        const double part = i ? ((double)x->limit - below) / (above - below) : 0;
        const int at = lo + (int)(part * (hi - lo));
        const int n = at > lo + 1 ? at : hi - lo > SHORT ? lo + SHORT : lo + 1;
        if (plan(x, r, n, &m))
            break;
        if (cb_memory_total(&m) <= x->limit) {
            lo = n;
            below = (double)cb_memory_total(&m);
        } else {
            hi = n;
            above = (double)cb_memory_total(&m);
        }
    }
    return lo;
}

static void put_text(const struct plans *x, const struct row *r)
{
    char types[64];

    snprintf(types, sizeof types, !strcmp(r->type_k, r->type_v) ? "%s" : "%s, %s", r->type_k,
             r->type_v);
    printf("%-14s %-8s", r->policy, types);
    if (*r->why) {
        const char *after = strstr(r->why, ": "); /* "policy NAME" */
        printf("   %s\n", after ? after + 2 : r->why);
        return;
    }
    printf(" %10.1f %12.1f %11.1f %10.1f", cb_mib(r->m.kv_peak_bytes + r->m.state_bytes),
           cb_mib(r->m.kv_read_bytes_per_token), cb_mib(r->m.scratch_bytes),
           cb_mib(cb_memory_total(&r->m)));
    if (x->limit)
        printf(" %10d", r->longest);
    puts(x->limit && r->longest == x->e.n_ctx ? "  fits" : "");
}

static void put_json(struct plans *x, const struct row *r)
{
    json_t *j =
        json_pack("{s:s, s:s, s:s}", "policy", r->policy, "type_k", r->type_k, "type_v", r->type_v);

    if (*r->why) {
        cb_json_set(&j, "refused", cb_json_str(r->why));
    } else {
        json_t *mem = cb_json_memory(&r->m);
        json_object_del(mem, "rss_peak_bytes");
        cb_json_set(&j, "memory", mem);
        cb_json_set(&j, "total_bytes", json_integer((json_int_t)cb_memory_total(&r->m)));
        if (x->limit)
            cb_json_set(&j, "longest", json_integer(r->longest));
    }
    cb_json_add(&x->list, j);
}

static void put(struct plans *x, const char *policy, const char *type_k, const char *type_v)
{
    struct row r = { .policy = policy, .type_k = type_k, .type_v = type_v };
    const int err = plan(x, &r, x->e.n_ctx, &r.m);

    snprintf(r.why, sizeof r.why, "%s", err ? cb_error() : "");
    r.longest = !err && x->limit ? longest(x, &r) : 0;
    if (x->list)
        put_json(x, &r);
    else
        put_text(x, &r);
}

/* A line for each type of keys and values, or for the one that the user names */
static void put_types(struct plans *x, const char *policy)
{
    static const char *const type[] = { "f16", "q8_0", "kivi4", "kivi2" };
    const int named = cb_opt_set(x->o, ARG_TYPE_K) || cb_opt_set(x->o, ARG_TYPE_V);

    if (named)
        put(x, policy, x->params.type_k, x->params.type_v);
    for (size_t i = 0; i < sizeof type / sizeof *type && !named; i++)
        put(x, policy, type[i], type[i]);
}

static void put_all(struct plans *x)
{
    struct cb_method_info m;

    if (!x->list) {
        printf("%d tokens; MiB %30s %12s %11s %10s", x->e.n_ctx, "bank", "read a token",
               "work space", "total");
        puts(x->limit ? "    longest" : "");
    }
    if (cb_opt_set(x->o, ARG_POLICY)) {
        put_types(x, x->params.policy);
        return;
    }
    put_types(x, "full");
    for (int i = 0; !cb_policy_at(i, &m); i++)
        if (strcmp(m.name, "full") && (strcmp(m.name, "own") || !strcmp(x->e.info.policy, "own")))
            put(x, m.name, x->params.type_k, x->params.type_v);
}

int cb_info_plans(const struct opts *o)
{
    struct plans x = { .o = o, .limit = (uint64_t)cb_opt_int64(o, ARG_PLANS_FIT) };
    int rc = cb_engine_open(o, &x.e);

    if (!rc)
        rc =
            cb_engine_params(o, &x.e, cb_engine_policy(o, &x.e), cb_opt_int(o, ARG_CTX), &x.params);
    if (!rc) {
        x.e.n_ctx = x.params.n_ctx ? x.params.n_ctx : x.e.info.n_ctx_train;
        x.params.n_ctx = x.e.n_ctx;
        cb_note_long_context(&x.e);
        x.list = cb_opt_flag(o, ARG_JSON) ? json_array() : NULL;
        put_all(&x);
        if (!x.list)
            cb_print_uncounted(&x.e.info);
        rc = x.list ? cb_json_print(x.list) : cb_out_flush();
    }
    cb_engine_close(&x.e);
    return rc;
}
