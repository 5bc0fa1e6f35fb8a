/* SPDX-License-Identifier: MIT */
/* auto_table.h - what settings of a session cost a model, measured on a text and on needles of our
 * own: what --policy auto chooses by. */
#ifndef AUTO_TABLE_H
#define AUTO_TABLE_H

#include <jansson.h>

#include "ctxbank.h"

struct auto_setting {
    const char *policy;
    const char *type_k, *type_v; /* NULL: f16, both */
    double pace;                 /* time of attention to a byte of these types, f16: 1 */
    double search; /* time of choosing slots / that of full attention; 0: all are read */
};

enum { AUTO_SETTINGS = 17, AUTO_LENGTHS = 3 };

extern const struct auto_setting cb_auto_settings[AUTO_SETTINGS];

struct auto_cost {
    double kl;         /* mean KL divergence of a token from the full cache, nats */
    double kept, read; /* bytes held, bytes read by a token, both / the full cache's */
    int held;          /* needles found, of those that the full cache finds */
};

struct auto_table {
    int n_length;
    int length[AUTO_LENGTHS];  /* [n_length] tokens, ascending */
    int n_right[AUTO_LENGTHS]; /* needles that the full cache finds */
    int has[AUTO_SETTINGS];    /* 0: the model cannot have the setting */
    struct auto_cost cost[AUTO_SETTINGS][AUTO_LENGTHS];
    double seconds; /* that measuring took */
};

/* Measures at three lengths up to most_ctx tokens, or at fewer if those have taken patience_s.
 * text: the file in which needles are hidden and whose continuation is predicted. how: sees the
 * tokens of each prompt and can stop; or NULL. CB_ECANCEL: stopped; CB_EARG: most_ctx is too short.
 */
int cb_auto_measure(cb_model *m, const char *text, int most_ctx, double patience_s,
                    const struct cb_prefill *how, struct auto_table *out);

/* What setting i loses at worst: the largest KL of the lengths; infinite if it misses a needle that
 * the full cache finds, or if the model cannot have it */
double cb_auto_loss(const struct auto_table *t, int i);

/* Time of attention to a context of n tokens / that of the full cache at f16: what a token reads of
 * it, as measured, and where that fell with the length, continued so. kept: bytes held / the full
 * cache's */
double cb_auto_time(const struct auto_table *t, int i, int n, double kept);

json_t *cb_auto_to_json(const struct auto_table *t);            /* NULL: no memory */
int cb_auto_from_json(const json_t *j, struct auto_table *out); /* CB_EFORMAT */

#endif
