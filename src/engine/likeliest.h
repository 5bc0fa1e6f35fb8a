/* SPDX-License-Identifier: MIT */
/* likeliest.h - which token a drafter guesses. */
#ifndef LIKELIEST_H
#define LIKELIEST_H

#include <math.h>
#include <stdint.h>

/* A token is guessed where it leads the next one by so much (logits): odds of 2 to 1. */
#define CB_LEAD 0.7f

/* The likeliest token of logits[n], or -1: with `sure`, it does not lead by CB_LEAD */
static inline int32_t cb_likeliest(const float *logits, int n, int sure)
{
    float best = logits[0], next = -INFINITY;
    int32_t id = 0;

    for (int i = 1; i < n; i++) {
        if (logits[i] <= next)
            continue;
        next = logits[i] > best ? best : logits[i];
        if (logits[i] > best) {
            best = logits[i];
            id = i;
        }
    }
    return sure && !(best - next >= CB_LEAD) ? -1 : id;
}

#endif
