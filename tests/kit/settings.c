/* SPDX-License-Identifier: MIT */
/* settings.c - every policy and every form of keys and values. */
#include "settings.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "toy.h"

const struct setting cb_setting[] = {
    { "full", "f16", "dense", 1 },
    { "full", "f32", "dense", 1 },
    { "full", "q8_0", "dense", 1 },
    { "full", "kivi4:32", "dense", 2 },
    { "full", "kivi2:64:32:64", "dense", 2 },
    { "window:budget=64", "f16", "dense", -1 },
    { "streamingllm:budget=64", "f16", "dense", -1 },
    { "h2o:budget=64", "f16", "dense", 0 },
    { "streamingllm:budget=64,prefill=windowed", "f16", "dense", -1 },
    { "h2o:budget=140", "f16", "dense", 0 },
    { "h2o:budget=64,drop=chunk,chunk=32", "f16", "dense", 0 },
    { "h2o:budget=64,drop=first-decode", "f16", "dense", 0 },
    { "h2o:budget=64", "kivi2:32", "dense", 0 },
    { "h2o:budget=64", "kivi4:64:64:32", "dense", 0 },
    { "h2o:budget=64,positions=rolled", "f16", "dense", 0 },
    { "h2o:budget=140,positions=rolled,decode=grow", "f16", "dense", 0 },
    { "snapkv:budget=64,window=16,group=each", "f16", "dense", 0 },
    { "snapkv:budget=64,window=16", "f16", "dense", -1 },
    { "snapkv:budget=64,window=16,floor=0.2", "f16", "dense", -1 },
    { "snapkv:budget=64,window=16,floor=0", "kivi2:32", "dense", -1 },
    { "tova:budget=64", "f16", "dense", -1 },
    { "keydiff:budget=64,decode=bounded,chunk=20", "f16", "dense", -1 },
    { "keydiff:budget=64,drop=chunk,chunk=32", "q8_0", "dense", -1 },
    { "keydiff:budget=64", "kivi4:32", "dense", -1 },
    { "lm-infinite:sink=4,window=60", "f16", "dense", -1 },
    { "lm-infinite:sink=4,window=60", "kivi4:32", "dense", -1 },
    { "duo:heads=1,sink=4,recent=60", "f16", "dense", -1 },
    { "duo:heads=0,sink=4,recent=60", "kivi4:32", "dense", -1 },
    { "expected:budget=64", "f16", "dense", -1 },
    { "expected:budget=64,floor=1", "q8_0", "dense", -1 },
    { "kvzip:budget=64,chunk=48", "f16", "dense", -1 },
    { "kvzip:budget=64,among=layer", "kivi4:32", "dense", -1 },
    { "pyramidkv:budget=64", "f16", "dense", 0 },
    { "roco:budget=64,stride=20", "f16", "dense", 0 },
    { "roco:budget=64", "kivi4:32", "dense", 0 },
    { "pyramidinfer:decay=0.4,context=8,recent=0.02,block=4", "f16", "dense", 0 },
    { "pyramidinfer:decay=0.6,context=8,block=4", "kivi4:32", "dense", 0 },
    { "minicache:start=0,retain=20,tail=8", "f16", "dense", 0 },
    { "minicache:start=0,retain=20", "bf16", "dense", 1 },
    { "minicache:start=0,retain=0.1,tail=8", "q8_0", "dense", 0 },
    { "simlayerkv:recent=32", "f16", "dense", 0 },
    { "simlayerkv:recent=32,threshold=-1", "kivi4:32", "dense", 0 },
    { "d2o:budget=64", "f16", "dense", 0 },
    { "d2o:budget=64,drop=first-decode", "f16", "dense", 0 },
    { "omnikv:filter=0,budget=16", "f16", "dense", 1 },
    { "omnikv:filter=0,budget=16,select=uniform,window=4", "f16", "dense", 0 },
    { "omnikv:filter=0,budget=16", "f16", "omnikv:chunk=32,ratio=0.5", 1 },
    { "pod:sinks=4,recent=32", "f16", "dense", 0 },
    { "sieve:budget=16,recent=8", "f16", "dense", 1 },
    { "sieve:budget=16,recent=8", "q8_0", "omnikv:filter=0,chunk=32,ratio=0.5", 1 },
    { "sieve:budget=16,recent=8", "planes", "dense", 2 },
    { "sieve:budget=16,recent=8,bits=4,dense=1", "planes", "dense", 2 },
    { "quest:budget=32,page=8,dense=0", "f16", "dense", 1 },
    { "infinigen:alpha=0.1,dense=1", "f16", "dense", 1 },
    { "infinigen:alpha=0.1,dense=1,ratio=0.6", "kivi4:32", "dense", 2 },
    { "infllm:local=40,sink=4,block=8,blocks=3", "f16", "dense", 0 },
    { "infllm:local=40,sink=4,block=8,blocks=3", "q8_0", "dense", 0 },
    { "quest:budget=32,page=8,dense=0", "kivi4:32", "dense", 2 },
};
const int cb_n_setting = sizeof cb_setting / sizeof *cb_setting;

const char *const cb_setting_type[] = { "f32",      "f16",      "bf16",  "q8_0",
                                        "kivi4:32", "kivi2:32", "planes" };
const int cb_n_setting_type = sizeof cb_setting_type / sizeof *cb_setting_type;

static const char *const ways[] = {
    "window:prefill=dense", "streamingllm:prefill=windowed", "streamingllm:positions=kept",
    "h2o:drop=chunk",       "h2o:drop=first-decode",         "keydiff:drop=chunk",
    "snapkv:floor=0.2",     "d2o:drop=first-decode",         "omnikv:select=exp"
};
enum { N_WAY = sizeof ways / sizeof *ways };

/* Options of methods that have no budget, or need more than one to drop or choose in a short text;
 * a method that is not here has budget=N. wide: a text of 1,000 tokens is held and read as a whole;
 * narrow: one of 60 tokens is not; some: one of 200 tokens is not */
static const struct {
    const char *name, *wide, *narrow, *some;
} options[] = {
    { "full", "", "", "" },
    { "duo", ":heads=0,recent=1000", ":heads=1,sink=2,recent=20", ":heads=1+4,sink=4,recent=60" },
    { "expected", NULL, ":budget=24,future=64", NULL },
    { "infinigen", ":alpha=1e9,most=1000", ":alpha=0.2,most=24", "" },
    { "infllm", ":local=1000,chunk=16", ":local=20,sink=2,block=6,blocks=2,chunk=1",
      ":local=60,sink=4,block=16,blocks=3" },
    { "kvzip", NULL, ":budget=24,chunk=16", NULL },
    { "lm-infinite", ":window=1000", ":sink=2,window=20", "" },
    { "minicache", ":start=0,retain=1000", ":start=0,retain=10,tail=3", ":retain=50,tail=3" },
    { "omnikv", NULL, ":filter=1,budget=12,tail_max=3,window=2", NULL },
    { "pod", ":recent=1000", ":blocks=0+2,sinks=2,recent=9", "" },
    { "pyramidinfer", ":decay=1,keep=1,gen_decay=1", ":decay=0.4,context=8,recent=0.1,block=2",
      "" },
    { "pyramidkv", ":budget=1000,beta=1", ":budget=24,window=8", NULL },
    { "quest", ":budget=1000,dense=0", ":budget=24,page=8,dense=0", NULL },
    { "sieve", NULL, ":budget=24,recent=8", NULL },
    { "simlayerkv", ":recent=1000", ":sink=2,recent=10,threshold=0.5", "" },
    { "snapkv", NULL, ":budget=24,window=8", NULL },
};

enum budget { WIDE, NARROW, SOME };

static int policy_of(int i, enum budget how, char *spec, size_t size)
{
    static const char *const usual[] = { ":budget=1000", ":budget=24", ":budget=80" };
    const struct method *m = i < cb_setting_n_policy() ? cb_method_at(i) : NULL;
    const char *own = NULL;

    for (size_t j = 0; m && j < sizeof options / sizeof *options; j++)
        if (!strcmp(options[j].name, m->name))
            own = how == WIDE     ? options[j].wide
                  : how == NARROW ? options[j].narrow
                                  : options[j].some;
    if (m)
        snprintf(spec, size, "%s%s", m->name, own ? own : usual[how]);
    return m != NULL;
}

int cb_setting_wide(int i, char *spec, size_t size)
{
    return policy_of(i, WIDE, spec, size);
}

int cb_setting_narrow(int i, char *spec, size_t size)
{
    return policy_of(i, NARROW, spec, size);
}

int cb_setting_n_policy(void)
{
    int n = 0;

    /* own comes last; it is for models with trained selectors alone */
    while (cb_method_at(n) && strcmp(cb_method_at(n)->name, "own"))
        n++;
    return n;
}

int cb_setting_policy(int i, char *spec, size_t size)
{
    const int n = cb_setting_n_policy();

    if (i < n)
        return policy_of(i, SOME, spec, size);
    if (i - n >= N_WAY)
        return 0;
    snprintf(spec, size, "%s,budget=80", ways[i - n]);
    return 1;
}

int cb_setting_parts_rows(const char *policy)
{
    return !strncmp(policy, "pod", 3) || !strncmp(policy, "infllm", 6);
}

cb_session *cb_setting_session(cb_model *m, const struct setting *r, int n_ctx)
{
    const struct cb_session_params p = { .n_ctx = n_ctx,
                                         .chunk = 64,
                                         .type_k = r->type,
                                         .type_v = cb_toy_values(r->type),
                                         .policy = r->policy,
                                         .prefill = r->prefill };
    cb_session *s;

    ck_assert_msg(!cb_session_open(m, &p, &s), "%s: %s", r->policy, cb_error());
    return s;
}

void cb_setting_same(const cb_model *m, const cb_session *a, const cb_session *b, const char *what)
{
    const size_t n = (size_t)cb_n_vocab(m);

    ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), n * sizeof(float)), "%s",
                  what);
    ck_assert_int_eq(cb_session_len(a), cb_session_len(b));
    ck_assert_mem_eq(cb_session_tokens(a), cb_session_tokens(b),
                     (size_t)cb_session_len(a) * sizeof(int32_t));
}
