/* SPDX-License-Identifier: MIT */
/* check_mtp.c - drafts by the head for later tokens that a model's file has: the formula, the text
 * that stays the same, a head that is always right, and files whose head cannot be used. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/mtp_drafter.h"
#include "engine/session.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "model/mtp_head.h"

enum { N_CTX = 512, N_ID = 300, PROMPT = 200, TEXT = 120 };

/* Families with such heads: delta nets, experts, latent attention */
static const char *const recipes[] = { "qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek3" };
enum { N_RECIPE = sizeof recipes / sizeof *recipes };

/* What is done to the file */
enum {
    RANDOM,
    STILL /* layers add nothing */,
    AGREES /* and the head sees the next token alone */
};

static struct recipe recipe;
static char file[64];
static cb_model *m;
static int32_t ids[N_ID];

static void ok(int status)
{
    ck_assert_msg(!status, "%s", cb_error());
}

/* ---- files ---- */

static const char *name_of(const json_t *row)
{
    return json_string_value(json_array_get(row, 0));
}

static json_t *key(const char *name)
{
    json_t *kv = json_object_get(recipe.root, "kv");

    for (size_t i = 0; i < json_array_size(kv); i++)
        if (strstr(name_of(json_array_get(kv, i)), name))
            return json_array_get(kv, i);
    return NULL;
}

/* Does a name end so? */
static int ends(const char *s, const char *with)
{
    const size_t n = strlen(s), k = strlen(with);

    return n >= k && !strcmp(s + n - k, with) && (n == k || s[n - k - 1] == '.');
}

/* Removes the tensors of block l, or those that end so. */
static void remove_rows(int l, const char *end)
{
    json_t *t = json_object_get(recipe.root, "tensors");

    for (size_t i = json_array_size(t); i-- > 0;) {
        const char *name = name_of(json_array_get(t, i));
        int at = -1;
        sscanf(name, "blk.%d.", &at);
        if (end ? ends(name, end) : at == l)
            json_array_remove(t, i);
    }
}

static void add_row(int l, const char *name, int a, int b, double mean, double width)
{
    json_t *shape = b ? json_pack("[i, i]", a, b) : json_pack("[i]", a);
    char full[80];

    snprintf(full, sizeof full, "blk.%d.%s", l, name);
    json_array_append_new(json_object_get(recipe.root, "tensors"),
                          json_pack("[s, o, f, f]", full, shape, mean, width));
}

/* The last block with attention becomes block l as well. */
static void copy_block(int l)
{
    json_t *t = json_object_get(recipe.root, "tensors");
    const size_t n = json_array_size(t);
    int from = -1, at;

    for (size_t i = 0; i < n; i++)
        if (sscanf(name_of(json_array_get(t, i)), "blk.%d.", &at) == 1 && at < l && at > from &&
            ends(name_of(json_array_get(t, i)), "attn_output.weight"))
            from = at;
    ck_assert_int_ge(from, 0);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(t, i);
        char name[80];
        int end = 0;
        if (sscanf(name_of(row), "blk.%d.%n", &at, &end) != 1 || at != from)
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", l, name_of(row) + end);
        row = json_deep_copy(row);
        json_array_set_new(row, 0, json_string(name));
        json_array_append_new(t, row);
    }
}

static int width_of_embedding(void)
{
    return (int)json_integer_value(json_array_get(key(".embedding_length"), 2));
}

/* Gives the recipe a head, in the block after its layers. */
static void add_head(void)
{
    const char *arch = json_string_value(json_object_get(recipe.root, "arch"));
    json_t *blocks = key(".block_count");
    const int ne = width_of_embedding();
    int n = (int)json_integer_value(json_array_get(blocks, 2));
    char name[80];

    if (key("nextn_predict_layers")) {
        n--;
    } else {
        snprintf(name, sizeof name, "%s.nextn_predict_layers", arch);
        json_array_append_new(json_object_get(recipe.root, "kv"),
                              json_pack("[s, s, i]", name, "uint32", 1));
        json_array_set_new(blocks, 2, json_integer(n + 1));
    }
    remove_rows(n, NULL);
    copy_block(n);
    add_row(n, "nextn.enorm.weight", ne, 0, 1, 0.3);
    add_row(n, "nextn.hnorm.weight", ne, 0, 1, 0.3);
    add_row(n, "nextn.shared_head_norm.weight", ne, 0, 1, 0.3);
    add_row(n, "nextn.eh_proj.weight", 2 * ne, ne, 0, 0.2);
}

/* The tensors whose names end so have the same number everywhere. */
static void level(const char *end)
{
    json_t *t = json_object_get(recipe.root, "tensors");

    for (size_t i = 0; i < json_array_size(t); i++)
        if (ends(name_of(json_array_get(t, i)), end))
            json_array_set_new(json_array_get(t, i), 3, json_real(0));
}

/* No layer adds anything to the residual stream. */
static void still(void)
{
    static const char *const outs[] = { "attn_output.weight", "ffn_down.weight", "ssm_out.weight",
                                        "ffn_down_exps.weight", "ffn_down_shexp.weight" };

    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        level(outs[i]);
}

/* An output of its own, and for AGREES a head that hands on the next token's embedding: it then
 * gives what the model gives after that token. */
static void own_tensors(struct gguf_make *g, int agrees)
{
    const int ne = width_of_embedding();
    const int64_t out[] = { ne, recipe.n_vocab }, join[] = { 2 * ne, ne };
    float *x = calloc((size_t)recipe.n_vocab * (size_t)ne, sizeof *x);
    float *y = calloc(2 * (size_t)ne * (size_t)ne, sizeof *y);
    const int l = (int)json_integer_value(json_array_get(key(".block_count"), 2)) - 1;
    uint64_t seed = 5;
    char name[80];

    for (int64_t i = 0; i < out[0] * out[1]; i++)
        x[i] = cb_rand_normal(&seed);
    cb_make_tensor(g, "output.weight", DT_F32, 2, out, x);
    for (int i = 0; i < ne; i++)
        y[(size_t)i * 2 * (size_t)ne + (size_t)i] = 1;
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", l);
    if (agrees)
        cb_make_tensor(g, name, DT_F32, 2, join, y);
    free(x);
    free(y);
}

static void make(int i, int what)
{
    struct gguf_make g;
    char name[80];
    uint32_t x = 7;

    snprintf(name, sizeof name, "family-%s.json", recipes[i]);
    cb_recipe_open(&recipe, name);
    add_head();
    if (what != RANDOM) {
        still();
        remove_rows(-1, "output.weight");
    }
    if (what == AGREES) {
        level("nextn.enorm.weight");
        remove_rows(-1, "nextn.eh_proj.weight");
        remove_rows(-1, "nextn.shared_head_norm.weight");
    }
    snprintf(file, sizeof file, "check_mtp.%d.gguf", (int)getpid());
    cb_recipe_make(&recipe, &g);
    if (what != RANDOM)
        own_tensors(&g, what == AGREES);
    cb_make_save(&g, file);
    for (int j = 0; j < N_ID; j++) {
        x = 1103515245u * x + 12345u;
        ids[j] = (int32_t)((x >> 8) % (uint32_t)recipe.n_vocab);
    }
}

static void open_model(int draft)
{
    const struct cb_model_params p = { .n_threads = 2, .draft_mtp = draft };

    ok(cb_model_open(file, &p, &m));
}

static void open_made(int i, int what, int draft)
{
    make(i, what);
    open_model(draft);
    ck_assert_ptr_nonnull(m->mtp);
}

static void close_all(void)
{
    cb_model_close(m);
    unlink(file);
    cb_recipe_close(&recipe);
}

static cb_session *session_of(const char *policy, int chunk)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .chunk = chunk, .policy = policy };
    cb_session *s;

    ok(cb_session_open(m, &p, &s));
    return s;
}

/* What the head guesses after token `id`, without decoding it -> mtp->draft */
static int guess(cb_session *s, int32_t id, int most)
{
    ok(cb_session_note_tokens(s, &id, 1));
    return cb_session_mtp_guess(s, most);
}

/* ---- the formula ---- */

static void norm(const float *w, const double *x, int n, double *y)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    sum = 1 / sqrt(sum / n + (double)m->hp.norm_eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * sum * (double)w[i];
}

static int32_t expected(int32_t last, int32_t next)
{
    enum { MOST = 256 };
    const int ne = m->hp.n_embd;
    const float *embd = m->embd.raw, *join = m->mtp->join.raw, *out = m->output.raw;
    double x[MOST] = { 0 }, both[2 * MOST], y[MOST], best = -INFINITY;
    int32_t id = -1;

    ck_assert_int_le(ne, MOST);
    for (int i = 0; i < ne; i++)
        x[i] = (double)embd[(size_t)next * (size_t)ne + (size_t)i] * (double)m->hp.embd_scale;
    norm(m->mtp->of_embd.w, x, ne, both);
    for (int i = 0; i < ne; i++)
        x[i] = (double)embd[(size_t)last * (size_t)ne + (size_t)i] * (double)m->hp.embd_scale;
    norm(m->out_norm.w, x, ne, y);
    norm(m->mtp->of_state.w, y, ne, both + ne);
    for (int o = 0; o < ne; o++) {
        y[o] = 0;
        for (int i = 0; i < 2 * ne; i++)
            y[o] += (double)join[(size_t)o * 2 * (size_t)ne + (size_t)i] * both[i];
    }
    norm(m->mtp->norm.w, y, ne, x);
    for (int t = 0; t < m->hp.n_vocab; t++) {
        double sum = 0;
        for (int i = 0; i < ne; i++)
            sum += (double)out[(size_t)t * (size_t)ne + (size_t)i] * x[i];
        if (sum > best) {
            best = sum;
            id = t;
        }
    }
    return id;
}

/* Layers that add nothing leave the formula's rest: embeddings, norms, the join and the output. */
START_TEST(formula)
{
    cb_session *s;

    open_made(_i, STILL, 1);
    s = session_of("full", 0);
    ok(cb_session_prefill(s, ids, 40, NULL));
    for (int i = 40; i < 90; i++) {
        const int32_t want = expected(ids[i - 1], ids[i]);
        const int n = guess(s, ids[i], 1);
        if (n || !cb_token_is_end(m, want)) {
            ck_assert_int_eq(n, 1);
            ck_assert_int_eq(cb_mtp_drafter_of(s)->draft[0], want);
        }
        ok(cb_session_decode(s, ids[i]));
    }
    cb_session_close(s);
    close_all();
}
END_TEST

/* ---- texts ---- */

static struct cb_speculation_counts same_text(cb_session *one, cb_session *s, float temp)
{
    struct cb_sampler_params p = cb_sampler_defaults();
    struct cb_speculation_counts counts;
    cb_sampler *a, *b;
    cb_speculation *x;

    p.temp = temp;
    p.seed = 3;
    ok(cb_sampler_new(&p, recipe.n_vocab, &a));
    ok(cb_sampler_new(&p, recipe.n_vocab, &b));
    ok(cb_speculation_new(s, 0, &x));
    for (int i = 0; i < TEXT; i++) {
        const int32_t id = cb_sampler_pick(a, cb_session_logits(one));
        ck_assert_int_eq(cb_sampler_pick(b, cb_speculation_logits(x)), id);
        ck_assert(!memcmp(cb_session_logits(one), cb_speculation_logits(x),
                          (size_t)recipe.n_vocab * sizeof(float)));
        ok(cb_session_decode(one, id));
        ok(cb_speculation_decode(x, id));
    }
    ok(cb_speculation_end(x));
    ck_assert_int_eq(cb_session_len(s), cb_session_len(one));
    cb_speculation_get_counts(x, &counts);
    ck_assert_int_eq(counts.drafted, counts.mtp_drafted);
    ck_assert_int_eq(counts.accepted, counts.mtp_accepted);
    cb_speculation_free(x);
    cb_sampler_free(a);
    cb_sampler_free(b);
    return counts;
}

/* A session without drafts, of the same file, in a model that leaves the head unused */
static struct cb_speculation_counts texts(float temp, const char *policy)
{
    const struct cb_model_params p = { .n_threads = 1 };
    const struct cb_session_params sp = { .n_ctx = N_CTX, .policy = policy };
    struct cb_speculation_counts counts;
    cb_session *one, *s = session_of(policy, 64);
    cb_model *plain;

    ok(cb_model_open(file, &p, &plain));
    ok(cb_session_open(plain, &sp, &one));
    ck_assert_int_eq(cb_session_draft_mtp(one), 0);
    ck_assert_int_gt(cb_session_draft_mtp(s), 0);
    ok(cb_session_prefill(one, ids, PROMPT, NULL));
    ok(cb_session_prefill(s, ids, PROMPT, NULL));
    counts = same_text(one, s, temp);
    cb_session_close(one);
    cb_session_close(s);
    cb_model_close(plain);
    return counts;
}

/* All drafts of this head are accepted. */
START_TEST(a_head_that_is_right)
{
    struct cb_speculation_counts c;

    open_made(_i, AGREES, 1);
    c = texts(0, "full");
    ck_assert_int_gt(c.mtp_drafted, 3); /* they may pause: a tiny model gains no time */
    ck_assert_msg(c.mtp_accepted >= c.mtp_drafted - 1, "%d of %d", (int)c.mtp_accepted,
                  (int)c.mtp_drafted); /* the last one may be unfinished */
    close_all();
}
END_TEST

START_TEST(the_text_without_drafts)
{
    static const char *const policies[] = { "full", "quest:budget=64,page=16,dense=0",
                                            "sieve:budget=64,recent=16,sink=4" };
    struct cb_speculation_counts c;

    open_made(_i % N_RECIPE, RANDOM, 3);
    c = texts(_i % 2 ? 0.8f : 0, m->hp.latent.rank ? "full" : policies[_i % 3]);
    ck_assert_int_gt(c.mtp_drafted, 0);
    close_all();
}
END_TEST

/* ---- what the head holds ---- */

/* The same tokens in pieces, in steps, in batches, cut back, and forked leave the head the same. */
START_TEST(pieces_cuts_and_forks)
{
    cb_session *a, *b, *c, *pair[2];
    int32_t next[2];
    int got;

    open_made(_i, RANDOM, 4);
    a = session_of("full", 0);
    b = session_of("full", 32);
    ok(cb_session_prefill(a, ids, PROMPT, NULL));
    ok(cb_session_prefill(b, ids, 50, NULL));
    ok(cb_session_prefill(b, ids + 50, PROMPT - 50, NULL));
    ck_assert_int_eq(guess(a, ids[0], 1), guess(b, ids[0], 1));
    ck_assert_int_eq(cb_mtp_drafter_of(a)->draft[0], cb_mtp_drafter_of(b)->draft[0]);
    ck_assert_int_eq(cb_mtp_drafter_of(a)->s->bank.n_seen, PROMPT);
    ck_assert_int_eq(cb_mtp_drafter_of(b)->s->bank.n_seen, PROMPT);
    ok(cb_session_decode(a, ids[0]));
    ok(cb_session_decode(b, ids[0]));
    ok(cb_session_fork(a, &c));
    ck_assert_ptr_nonnull(c->follower);
    pair[0] = a;
    pair[1] = b;
    for (int i = 1; i < 80; i++) { /* more than wait for a draft */
        next[0] = next[1] = ids[i];
        ok(cb_decode_batch(pair, next, 2));
        ok(cb_session_decode(c, ids[i]));
    }
    got = guess(c, ids[3], 1);
    ck_assert_int_eq(guess(a, ids[3], 1), got);
    ck_assert_int_eq(guess(b, ids[3], 1), got);
    ck_assert_int_eq(cb_mtp_drafter_of(a)->draft[0], cb_mtp_drafter_of(c)->draft[0]);
    ck_assert_int_eq(cb_mtp_drafter_of(b)->draft[0], cb_mtp_drafter_of(c)->draft[0]);
    ok(cb_session_truncate(c, PROMPT - 20));
    ok(cb_session_prefill(c, ids + PROMPT - 20, 20, NULL));
    ck_assert_int_ge(guess(c, ids[0], 2), 0);
    ck_assert_int_ge(cb_mtp_drafter_of(c)->s->bank.n_seen,
                     PROMPT - 2); /* a row may be missing at the cut */
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(c);
    close_all();
}
END_TEST

START_TEST(plans)
{
    struct cb_memory plan, now;
    cb_speculation *x;
    cb_session *s;
    double off;

    open_made(_i, RANDOM, 1);
    s = session_of("full", 64);
    ok(cb_speculation_new(s, 0, &x));
    cb_speculation_free(x);
    ok(cb_session_plan(s, PROMPT, 0, &plan));
    ok(cb_session_prefill(s, ids, PROMPT, NULL));
    cb_session_memory(s, &now);
    off = (double)plan.scratch_bytes / (double)now.scratch_bytes - 1;
    ck_assert_msg(fabs(off) < 0.01, "planned %llu, is %llu", (unsigned long long)plan.scratch_bytes,
                  (unsigned long long)now.scratch_bytes);
    cb_session_close(s);
    close_all();
}
END_TEST

/* ---- files whose head cannot be used ---- */

static char noted[512];

static void note(void *arg, enum cb_log_level level, const char *message)
{
    (void)arg, (void)level;
    if (strstr(message, "later tokens"))
        snprintf(noted, sizeof noted, "%s", message);
}

START_TEST(heads_left_unused)
{
    const struct cb_model_params p = { .n_threads = 1, .draft_mtp = 1, .log = note };
    const int ne = 48;
    struct cb_model_info info;
    struct gguf_make g;
    cb_session *s;
    int l;

    cb_recipe_open(&recipe, "family-qwen35.json");
    add_head();
    l = (int)json_integer_value(json_array_get(key(".block_count"), 2)) - 1;
    remove_rows(-1, _i ? "nextn.hnorm.weight" : "nextn.eh_proj.weight");
    if (!_i)
        add_row(l, "nextn.eh_proj.weight", ne, ne, 0, 0.2);
    snprintf(file, sizeof file, "check_mtp.%d.gguf", (int)getpid());
    cb_recipe_make(&recipe, &g);
    cb_make_save(&g, file);
    *noted = '\0';
    ok(cb_model_open(file, &p, &m));
    ck_assert_msg(strstr(noted, _i ? "nextn.hnorm" : "nextn.eh_proj") != NULL, "%s", noted);
    cb_model_get_info(m, &info);
    ck_assert_int_eq(info.n_unused_layer, 1);
    s = session_of("full", 0);
    ck_assert_int_eq(cb_session_draft_mtp(s), 0);
    ok(cb_session_prefill(s, recipe.ids, recipe.n, NULL));
    cb_session_close(s);
    close_all();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mtp");
    TCase *tc = tcase_create("mtp");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, formula, 0, N_RECIPE);
    tcase_add_loop_test(tc, a_head_that_is_right, 0, N_RECIPE);
    tcase_add_loop_test(tc, the_text_without_drafts, 0, 2 * N_RECIPE);
    tcase_add_loop_test(tc, pieces_cuts_and_forks, 0, N_RECIPE);
    tcase_add_loop_test(tc, plans, 0, N_RECIPE);
    tcase_add_loop_test(tc, heads_left_unused, 0, 2);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
