/* SPDX-License-Identifier: MIT */
/* expanded_latents.h - long prompts of latent attention read keys and values of each head. */
#ifndef EXPANDED_LATENTS_H
#define EXPANDED_LATENTS_H

#include "rows.h"
#include "session.h"

struct expanded_latents;

/* Numbers of a head's query and expanded key, the rotated ones first */
static inline int cb_expanded_hd(const struct hparams *hp)
{
    return hp->n_rot + hp->latent.key;
}

/* 1: rows r of layer l attend to expanded keys and values, their queries being of cb_expanded_hd()
 * numbers; 0: to the latents. The choice is that of the whole feed. Negative: CB_ENOMEM */
int cb_expanded_begin(const struct rows *r, int l);
/* call: the rows' chunk -> w.att[n][n_head][cb_expanded_hd()], which begin with the heads' values
 */
int cb_expanded_attend(const struct rows *r, const struct attention_call *call, int bits);
/* The values that w.att holds then -> w.qkv[n][n_head * value] */
const float *cb_expanded_values(struct cb_session *s, int n);
/* Work space of feeds of n_feed tokens, the last of which is token n_most */
size_t cb_expanded_bytes(const struct cb_session *s, int n_feed, int n_most);
/* Frees them, if there are any: at the end of a feed, and of a session. */
void cb_expanded_close(struct cb_session *s);
/* 1: the rows that attended last read them */
int cb_expanded_is_on(const struct cb_session *s);

#endif
