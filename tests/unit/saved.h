/* SPDX-License-Identifier: MIT */
/* saved.h - a model, sessions that are filled, and the file that they are saved to. For the
 * tests of saved banks. */
#ifndef SAVED_H
#define SAVED_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/folder.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_PROMPT = 300, N_STEP = 12, N_CTX = 640, N_IDS = 1024 };

static cb_model *m;
static int32_t ids[N_IDS];
static char path[4096];

static inline void setup(void)
{
    struct tiny t = cb_tiny_get("qwen2");
    uint32_t x = 7;

    m = cb_toy_model(&t, "cpu", 2);
    for (int i = 0; i < N_IDS; i++) {
        x = 1103515245u * x + 12345u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
    }
    snprintf(path, sizeof path, "%s/bank", cb_folder_make("saved"));
}

static inline void teardown(void)
{
    cb_model_close(m);
    cb_folder_remove();
}

static inline void prefill(cb_session *s, int from, int n)
{
    ck_assert_ok(cb_session_prefill(s, ids + from, n, NULL));
}

static inline void steps(cb_session *s, int from, int n)
{
    for (int i = from; i < from + n; i++)
        ck_assert_ok(cb_session_decode(s, ids[i]));
}

static inline void same(const cb_session *a, const cb_session *b, const char *what)
{
    struct cb_memory x, y;

    cb_setting_same(m, a, b, what);
    cb_session_memory(a, &x);
    cb_session_memory(b, &y);
    ck_assert_msg(x.kv_bytes == y.kv_bytes && x.kept_min == y.kept_min &&
                      x.kept_max == y.kept_max && x.kv_peak_bytes == y.kv_peak_bytes,
                  "%s: %llu and %llu bytes", what, (unsigned long long)x.kv_bytes,
                  (unsigned long long)y.kv_bytes);
}

static inline void save(const cb_session *s)
{
    ck_assert_ok(cb_session_save(s, path));
    ck_assert_ok(cb_bank_verify(path));
}

static inline cb_session *load(int n_ctx)
{
    cb_session *s;

    ck_assert_ok(cb_session_load(m, path, n_ctx, &s));
    return s;
}

static inline cb_session *filled(const struct setting *r, int when)
{
    cb_session *s = cb_setting_session(m, r, N_CTX);

    prefill(s, 0, N_PROMPT);
    if (when > 0)
        steps(s, N_PROMPT, N_STEP);
    if (when > 1)
        prefill(s, 400, 60);
    return s;
}

#endif
