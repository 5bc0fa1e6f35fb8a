/* SPDX-License-Identifier: MIT */
/* formulas.h - which tokens policies drop and merge, from their papers' formulas. Each function is
 * called after a prompt (1) or after a decoded token (0), and masks tokens of the slow run. What
 * they remember of earlier calls is global: one run at a time. */
#ifndef FORMULAS_H
#define FORMULAS_H

#include "kit/slow.h"

enum { CB_REF_CAP = 256, CB_REF_LAYERS = 4 }; /* tokens and layers of the slow run */

void cb_ref_window(struct slow *s, int prompt);
void cb_ref_dense(struct slow *s, int prompt);
void cb_ref_streaming(struct slow *s, int prompt);
void cb_ref_streaming_long(struct slow *s, int prompt);
void cb_ref_h2o_first(struct slow *s, int prompt);
void cb_ref_h2o(struct slow *s, int prompt);
void cb_ref_h2o_mean(struct slow *s, int prompt);
void cb_ref_h2o_long(struct slow *s, int prompt);
void cb_ref_adakv(struct slow *s, int prompt);
void cb_ref_adakv_bounded(struct slow *s, int prompt);
void cb_ref_duo(struct slow *s, int prompt);
void cb_ref_keydiff(struct slow *s, int prompt);
void cb_ref_keydiff_bounded(struct slow *s, int prompt);
void cb_ref_expected(struct slow *s, int prompt);
void cb_ref_expected_even(struct slow *s, int prompt);
/* kvzip_formula.c */
void cb_ref_kvzip(struct slow *s, int prompt);
void cb_ref_kvzip_layer(struct slow *s, int prompt); /* among=layer,recent=6 */
void cb_ref_roco(struct slow *s, int prompt);
void cb_ref_snapkv(struct slow *s, int prompt);
void cb_ref_snapkv_bounded(struct slow *s, int prompt);
void cb_ref_pyramid(struct slow *s, int prompt);
void cb_ref_pyramid_entropy(struct slow *s, int prompt); /* shape=entropy,measure=prompt */
void cb_ref_pyramid_gini(struct slow *s, int prompt);
void cb_ref_pyramid_bounded(struct slow *s, int prompt);
/* simlayerkv_formula.c: sink=2,recent=10; in a prompt, window=6 */
void cb_ref_sim_decode(struct slow *s, int prompt);
void cb_ref_sim_prefill(struct slow *s, int prompt);
void cb_ref_sim_nonlazy(struct slow *s, int prompt); /* layers=nonlazy */
void cb_ref_sim_nonlazy_prefill(struct slow *s, int prompt);
void cb_ref_sim_pyramid(struct slow *s, int prompt); /* layers=pyramid */
void cb_ref_sim_pyramid_prefill(struct slow *s, int prompt);
void cb_ref_sim_reset(void);
/* d2o_formula.c */
void cb_ref_d2o(struct slow *s, int prompt);
void cb_ref_d2o_printed(struct slow *s, int prompt);
void cb_ref_d2o_code(struct slow *s, int prompt);
void cb_ref_d2o_by_values(struct slow *s, int prompt); /* similar=values */
void cb_ref_d2o_by_each(struct slow *s, int prompt);
void cb_ref_d2o_share(struct slow *s, int prompt);
void cb_ref_d2o_gate(struct slow *s, int prompt);
void cb_ref_d2o_paper(struct slow *s, int prompt);  /* layers=paper,alpha=2 */
void cb_ref_d2o_gate_5(struct slow *s, int prompt); /* alpha=5, 24 tokens */
void cb_ref_d2o_first2(struct slow *s, int prompt);
void cb_ref_d2o_late(struct slow *s, int prompt);
void cb_ref_d2o_average(struct slow *s, int prompt);
void cb_ref_d2o_drop(struct slow *s, int prompt);
void cb_ref_d2o_sinks(struct slow *s, int prompt);
void cb_ref_d2o_values(struct slow *s, int prompt);
void cb_ref_d2o_reset(void);
void cb_ref_tova(struct slow *s, int prompt);
/* pyramidinfer_formula.c: recent=0.1,decay=0.5,context=8,sink=2,weight=1.5,gen_decay=0.3; and
 * recent=0.25,decay=0.7,interval=2,context=0,block=5,keep=0.7 */
void cb_ref_pyramidinfer(struct slow *s, int prompt);
void cb_ref_pyramidinfer_pass(struct slow *s, int l);
void cb_ref_pyramidinfer_rare(struct slow *s, int prompt);
void cb_ref_pyramidinfer_rare_pass(struct slow *s, int l);
/* minicache_formula.c: retain=24,tail=10; and start=0,t=0.3,retain=0.1,tail=7 */
void cb_ref_minicache(struct slow *s, int prompt);
void cb_ref_minicache_share(struct slow *s, int prompt);

void cb_ref_reset(void);        /* before a run */
extern double cb_ref_threshold; /* simlayerkv's; sink 2, recent 10 */
extern double cb_ref_gate_at;   /* d2o's */

/* Tokens that are left in layer l, KV head h, ascending -> out, count. */
int cb_ref_left(const struct slow *s, int l, int h, int *out);
void cb_ref_drop(struct slow *s, int l, int h, int tok);
/* Drops all but the first `sink` and the last `recent` */
void cb_ref_drop_middle(struct slow *s, int l, int sink, int recent);
/* Down to `keep`: the worst by score of what is neither among the first `sink` nor the last
 * `recent` goes, one by one; of equals by `raw`, then the later. score, raw: [CB_REF_CAP] by token
 */
void cb_ref_drop_worst(struct slow *s, int l, int h, const double *score, const double *raw,
                       int keep, int sink, int recent);
/* Attention of query i to the first `sink` and the last `recent` tokens, mean over heads */
double cb_ref_ends(const struct slow *s, int l, int i, int sink, int recent);
/* What d2o's gate compares */
double cb_ref_variance(const struct slow *s, int l);

#endif
