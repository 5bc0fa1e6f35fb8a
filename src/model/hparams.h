/* SPDX-License-Identifier: MIT */
/* hparams.h - the metadata of a model. */
#ifndef HPARAMS_H
#define HPARAMS_H

#include "model.h"

/* Reads general.architecture -> m->arch, then all hyper-parameters but n_vocab -> m->hp. */
int cb_hparams_read(struct cb_model *m, const struct cb_model_params *p);
/* Sets each layer's window and rotation; m->layer has n_layer layers. */
int cb_hparams_layers(struct cb_model *m);

enum { REQUIRED, OPTIONAL };
/* ARCH.NAME; where it is optional and absent, *out stays */
int cb_hp_int(const struct cb_model *m, const char *name, int need, int min, int max, int *out);
int cb_hp_float(const struct cb_model *m, const char *name, int need, double min, double max,
                float *out);

#endif
