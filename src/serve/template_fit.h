/* SPDX-License-Identifier: MIT */
/* template_fit.h - what a chat template has a place for, and conversations mended to fit it. */
#ifndef TEMPLATE_FIT_H
#define TEMPLATE_FIT_H

#include "base/json.h"
#include "ctxbank.h"

/* What the template writes, as tried with small conversations */
struct template_fit {
    int jinja;           /* 0: a built-in form, which has roles and texts alone */
    int tools, calls;    /* tools; calls with their results */
    int systems, late;   /* several system messages at the front; one after others */
    int same_roles;      /* two messages of one role in a row */
    int assistant_first; /* a conversation that the assistant begins */
    int thoughts;        /* reasoning_content of a turn that called tools */
    int thinking;        /* the same by the name thinking (gpt-oss) */
};

int cb_template_fit(const cb_model *model, const struct cb_chat *chat, struct template_fit *out);

/* Mends messages: tools, calls and results as words where the template has no place for them;
 * several system messages become one; neighbours of one role become one. tools may be NULL.
 * CB_ENOMEM */
int cb_template_mend(const struct template_fit *f, json_t *messages, const json_t *tools);

#endif
