/* SPDX-License-Identifier: MIT */
/* published.h - prompts, output lengths and metrics of published benchmarks, read from
 * templates.json in the data folder. */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include <jansson.h>

struct metric;
struct templates;

struct template
{
    const char *name;            /* of the task */
    const char *prompt;          /* with {context}, {input}, {A}..{D}, {words} */
    const struct metric *metric; /* NULL: each question names its own */
    int max_new, chat, stop_at_line;
};

int cb_templates_open(struct templates **out);
void cb_templates_close(struct templates *t);
const struct template *cb_template_find(const struct templates *t, const char *task); /* or NULL */
const struct template *cb_template_at(const struct templates *t, int i); /* NULL past the last */
const char *cb_template_nearest(const struct templates *t, const char *task); /* or NULL */

struct filling {
    const char *context, *input;
    const json_t *options; /* of {A}..{D}; NULL: none */
    int words;
};
/* Fills in the prompt, in two texts: up to the end of the context, and what follows it. Caller
 * frees. */
int cb_template_fill(const struct template *t, const struct filling *f, char **before,
                     char **after);

#endif
