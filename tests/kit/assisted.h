/* SPDX-License-Identifier: MIT */
/* assisted.h - tiny models of Gemma 4 with assistants that guess for them. */
#ifndef ASSISTED_H
#define ASSISTED_H

#include "ctxbank.h"
#include "headed.h"

/* ASSISTED pairs: layers of the target share keys and are told of each token, or neither */
enum { ASSISTED = 2, ASSISTED_CTX = 512 };

struct assisted {
    struct recipe target, own; /* their recipes, which may be changed before they are opened */
    cb_model *m, *a;           /* target and assistant, after cb_assisted_open() */
};

void cb_assisted_recipes(struct assisted *x, int i);
/* Both models on a device. agrees: layers add nothing, and the assistant reads the last token's
 * embedding alone and has the target's output. */
void cb_assisted_open(struct assisted *x, const char *device, int agrees);
void cb_assisted_close(struct assisted *x);
/* One of the recipes as a model; the file is removed. */
cb_model *cb_assisted_model(const struct recipe *r, const char *device);
int cb_assisted_fails(const struct recipe *r, const char *device); /* the status of its opening */
cb_session *cb_assisted_target(const struct assisted *x, const char *policy, const char *type,
                               int chunk);
cb_session *cb_assisted_drafter(const struct assisted *x);
/* Guesses of s after token id of `of`, which is not decoded -> draft; their number */
int cb_assisted_guess(cb_session *s, cb_session *of, int32_t id, int32_t *draft, int most);

#endif
