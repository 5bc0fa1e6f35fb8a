/* SPDX-License-Identifier: MIT */
/* index_keys.h - the keys that a trained selector scores, one row a token, in reserved memory of
 * their own: forks share it, saved banks map it. For readers. */
#ifndef INDEX_KEYS_H
#define INDEX_KEYS_H

#include "attention.h"
#include "bank/store_areas.h"

struct index_keys {
    enum kv_type type; /* of rows */
    int hd;
    uint8_t *at; /* rows, in the order of tokens; NULL: the layer has none */
    size_t row_bytes, reserved;
};

/* Room for n rows. CB_EARG where the type's blocks do not fit hd; CB_ENOMEM */
int cb_index_keys_open(struct index_keys *x, const struct policy *p, enum kv_type type, int hd,
                       int n);
void cb_index_keys_close(struct index_keys *x);
/* The type of keys of hd numbers that the plan asks for, in a bank whose keys are of type_k */
enum kv_type cb_index_keys_type(enum select_keys asked, enum kv_type type_k, int hd);
/* Rows k[n][hd], `stride` floats apart, become rows at.. */
void cb_index_keys_put(const struct index_keys *x, struct device *d, const float *k, int stride,
                       int n, int at);
/* Adds the logits q . k of tokens i..i+m-1 of chunk c, with the first n rows, to logit[m][n_head]
 * [stride]. causal: the last of them sees n rows, and each one before it a row less */
void cb_index_keys_logits(const struct index_keys *x, const struct attention *a,
                          const struct chunk *c, int i, int m, int n, int causal, float *logit,
                          int stride);
/* CB_EUNSUPPORTED where the session's device does not score such keys */
int cb_index_keys_device(const struct attention *a);
/* The first n rows as an area of layer l -> *out; returns 1, or 0 if there are none */
int cb_index_keys_area(const struct index_keys *x, int l, int n, struct area *out);

#endif
