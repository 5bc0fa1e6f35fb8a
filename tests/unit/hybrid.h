/* SPDX-License-Identifier: MIT */
/* hybrid.h - what tests of layers that remember without keys share: tiny models of all kinds, and a
 * timeline of prompts and decoded tokens. */
#ifndef HYBRID_H
#define HYBRID_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bank/states.h"
#include "ctxbank.h"
#include "engine/session.h"
#include "kit/recipe.h"
#include "kit/suite.h"

enum { N_CTX = 1024, N_ID = 900, GRID = 128 };

static const char *const recipes[] = { "qwen35",        "qwen3next",      "lfm2",
                                       "granitehybrid", "nemotron_h_moe", "falcon-h1",
                                       "mamba2",        "kimi-linear",    "deepseek4" };
/* The last one has entries beside a window (readers/entries.c), and takes no drafts. */
enum { N_RECIPE = sizeof recipes / sizeof *recipes, N_DRAFT = N_RECIPE - 1 };

static struct recipe recipe;
static char file[64], saved[64];
static cb_model *m;
static int32_t ids[N_ID];
static int n_note;
static char last_note[512];

static inline void take_note(void *arg, enum cb_log_level level, const char *text)
{
    (void)arg;
    if (level != CB_LOG_NOTE)
        return;
    n_note++;
    snprintf(last_note, sizeof last_note, "%s", text);
}

static inline cb_model *open_with(int threads)
{
    const struct cb_model_params p = { .n_threads = threads, .log = take_note };
    cb_model *x;

    ck_assert_ok(cb_model_open(file, &p, &x));
    return x;
}

static inline void open_recipe(int i)
{
    struct gguf_make g;
    char name[80];
    uint32_t x = 7;

    snprintf(name, sizeof name, "family-%s.json", recipes[i]);
    cb_recipe_open(&recipe, name);
    snprintf(file, sizeof file, "hybrid.%d.gguf", (int)getpid());
    snprintf(saved, sizeof saved, "hybrid.%d.ctxbank", (int)getpid());
    cb_recipe_make(&recipe, &g);
    cb_make_save(&g, file);
    m = open_with(2);
    for (int j = 0; j < N_ID; j++) {
        x = 1103515245u * x + 12345u;
        ids[j] = (int32_t)((x >> 8) % (uint32_t)recipe.n_vocab);
    }
}

static inline void close_recipe(void)
{
    cb_model_close(m);
    unlink(file);
    unlink(saved);
    cb_recipe_close(&recipe);
}

static inline cb_session *session_of(cb_model *of, int chunk, uint64_t checkpoint_bytes)
{
    const struct cb_session_params p = { .n_ctx = N_CTX,
                                         .chunk = chunk,
                                         .checkpoint_bytes = checkpoint_bytes };
    cb_session *s;

    ck_assert_ok(cb_session_open(of, &p, &s));
    return s;
}

/* Feeds tokens from..to-1 of the test's timeline: prompts of 300 tokens, 45 decoded ones, and so on
 * in turn */
static inline void feed(cb_session *s, int from, int to)
{
    enum { PROMPT = 300, TURN = 345 };

    for (int i = from, n; i < to; i += n) {
        const int at = i % TURN;
        n = at < PROMPT ? PROMPT - at : 1;
        n = n < to - i ? n : to - i;
        ck_assert_ok(at < PROMPT ? cb_session_prefill(s, ids + i, n, NULL)
                                 : cb_session_decode(s, ids[i]));
    }
}

static inline void same(const cb_session *a, const cb_session *b, const char *what)
{
    const size_t n = (size_t)recipe.n_vocab;

    ck_assert_int_eq(cb_session_len(a), cb_session_len(b));
    ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), n * sizeof(float)), "%s: %s",
                  recipe.root ? what : "", what);
}

/* Feeds both sessions the same tokens and a prompt, and compares them. */
static inline void feed_both(cb_session *a, cb_session *b, const char *what)
{
    const int32_t next[] = { ids[3], ids[1], ids[4] };

    for (int i = 0; i < 2; i++) {
        ck_assert_ok(cb_session_decode(a, next[i]));
        ck_assert_ok(cb_session_decode(b, next[i]));
        same(a, b, what);
    }
    ck_assert_ok(cb_session_prefill(a, next, 3, NULL));
    ck_assert_ok(cb_session_prefill(b, next, 3, NULL));
    same(a, b, what);
}

static inline uint64_t held(const cb_session *s, uint64_t *state)
{
    struct cb_memory now;

    cb_session_memory(s, &now);
    *state = now.state_bytes;
    return now.checkpoint_bytes;
}

#endif
