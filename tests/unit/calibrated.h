/* SPDX-License-Identifier: MIT */
/* calibrated.h - small models, the tokens that they are fed, and rows of scores. For the tests of
 * analyses. */
#ifndef CALIBRATED_H
#define CALIBRATED_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "policy/policy.h"

enum { N = 40, STEPS = 6 };

static inline struct cb_model *open_family(const char *family, int n_layer, int n_threads)
{
    struct tiny t = cb_tiny_small(family);

    t.n_layer = n_layer;
    return cb_toy_model(&t, "cpu", n_threads);
}

static inline struct cb_model *open_tiny(int n_layer, int n_threads)
{
    return open_family("qwen2", n_layer, n_threads);
}

static inline struct scores of(const float *rows, int n_row, int n, int prompt)
{
    return (struct scores){
        .n_row = n_row, .n = n, .stride = n, .s = rows, .raw = rows, .n_query = 1, .prompt = prompt
    };
}

static inline void tokens(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = 3 + i * 7 % 90;
}

#endif
