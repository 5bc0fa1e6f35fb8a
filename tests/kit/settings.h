/* SPDX-License-Identifier: MIT */
/* settings.h - every policy, at budgets that drop and choose in some hundred tokens, and every form
 * in which keys and values are stored: for tests of what must hold for all of them. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stddef.h>

#include "ctxbank.h"

struct setting {
    const char *policy, *type, *prefill;
    int keeps; /* can timelines be cut? 1: anywhere after the first prompt; 2: there, but what was
                  quantised stays so; 0: not where slots were dropped or measured; -1: not where
                  slots were dropped */
};

extern const struct setting cb_setting[];
extern const int cb_n_setting;

/* Every type of keys and values, KIVI's in groups of 32 */
extern const char *const cb_setting_type[];
extern const int cb_n_setting_type;
/* The i-th policy of the program, each with a budget that 200 tokens exceed, and then the ways of
 * some that change how they go with others; 0: there are fewer */
int cb_setting_policy(int i, char *spec, size_t size);

/* The policies of the program that go with any model, in the order of the table: with a budget that
 * 1,000 tokens do not reach; with one that 60 exceed, in models of four layers. 0: there are fewer
 * than i + 1 */
int cb_setting_n_policy(void);
int cb_setting_wide(int i, char *spec, size_t size);
int cb_setting_narrow(int i, char *spec, size_t size);

/* 1: the policy drops or turns keys without their values, so it is refused where a row is both */
int cb_setting_parts_rows(const char *policy);

/* A session with chunks of 64 tokens; fails the test if it does not open. */
cb_session *cb_setting_session(cb_model *m, const struct setting *s, int n_ctx);

/* Fails the test, with `what`, where two sessions of m differ in a token or in a bit of a logit. */
void cb_setting_same(const cb_model *m, const cb_session *a, const cb_session *b, const char *what);

#endif
