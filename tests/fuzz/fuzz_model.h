/* SPDX-License-Identifier: MIT */
/* fuzz_model.h - a tiny model for targets that need one: opened once, with one thread. */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "ctxbank.h"
#include "kit/tiny.h"

/* Writes a model of the family to `path`, room for cap bytes; rows are multiples of 32. */
void cb_fuzz_model_save(const char *family, char *path, size_t cap);
cb_model *cb_fuzz_model(void);

#endif
