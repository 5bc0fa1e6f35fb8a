/* SPDX-License-Identifier: MIT */
/* hparams.h - the metadata of a model. */
#ifndef HPARAMS_H
#define HPARAMS_H

#include "model.h"

/* Reads general.architecture -> m->arch, then all hyper-parameters but n_vocab -> m->hp. */
int cb_hparams_read(struct cb_model *m, const struct cb_model_params *p);
/* Makes m->layer and sets what metadata says of each layer: its heads, width, window, rotation, and
 * whose keys and values it reads (layers.c). */
int cb_hparams_layers(struct cb_model *m);
/* The same for the block that guesses a later token: it is like the last layer with keys. */
int cb_hparams_mtp(struct cb_model *m);

/* Is the model of a family that guesses for another one alone (assistant.h)? */
static inline int cb_model_has_target(const struct cb_model *m)
{
    return m->arch && (m->arch->has & HAS_TARGET);
}

enum { REQUIRED, OPTIONAL };
const char *cb_hp_key(const struct cb_model *m, const char *name, char (*key)[128]); /* ARCH.NAME */
/* ARCH.NAME; where it is optional and absent, *out stays */
int cb_hp_int(const struct cb_model *m, const char *name, int need, int min, int max, int *out);
/* The same for layer l: of an array, its value; else the one that all layers have */
int cb_hp_at(const struct cb_model *m, const char *name, int need, int min, int max, int l,
             int *out);
/* Must feed_forward_length be there? Not where all networks are experts, or there are none. */
int cb_hp_need_ff(const struct cb_model *m);
/* The shapes of layers that mix tokens without keys -> m->hp.mix (recurrent.c) */
int cb_hp_mixer(struct cb_model *m);
/* 1: layer l is such a layer; negative status */
int cb_hp_is_mixed(const struct cb_model *m, int l);
/* The layer that has embeddings of n-grams, or -1 (ngrams.c) */
int cb_hp_ngram_layer(const struct cb_model *m, int *out);
/* Attention over compressed rows, and streams -> m->hp.compress, n_stream, rope (compressed.c) */
int cb_hp_compressed(struct cb_model *m);
/* Tokens that an entry of layer l stands for; 0: it has none */
int cb_hp_ratio(const struct cb_model *m, int l, int *out);
/* The number that layer l has of an optional array, or that all layers have */
int cb_hp_float_at(const struct cb_model *m, const char *name, double min, double max, int l,
                   float *out);
int cb_hp_float(const struct cb_model *m, const char *name, int need, double min, double max,
                float *out);

#endif
