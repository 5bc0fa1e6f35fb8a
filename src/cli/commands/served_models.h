/* SPDX-License-Identifier: MIT */
/* served_models.h - the models that serve offers, as its options say. */
#ifndef SERVED_MODELS_H
#define SERVED_MODELS_H

#include <signal.h>

#include "cli/cmd.h"
#include "serve/serve.h"

struct served_models {
    const struct opts *o;
    struct serve_entry *at; /* [n] */
    int n;
    char **text; /* [n_text] of names and paths */
    int n_text;
    const char **alias;         /* of all entries, one entry's side by side */
    struct cb_adapter *adapter; /* [n_adapter] of the only model */
    int n_adapter;
    const sigset_t *signals; /* of the thread that opens a model, which blocks them; or NULL */
};

/* Caller ends with cb_served_models_close(), also after a failure. */
int cb_served_models_open(const struct opts *o, struct served_models *s);
void cb_served_models_close(struct served_models *s);
/* As the server takes them; s must outlive it. */
struct serve_models cb_served_models(struct served_models *s);

#endif
