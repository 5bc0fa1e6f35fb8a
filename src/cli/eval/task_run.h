/* SPDX-License-Identifier: MIT */
/* task_run.h - tasks that are asked under each policy, and a table of their scores: what the
 * commands eval needle, passkey, ruler, 2stage, longbench and file share. */
#ifndef TASK_RUN_H
#define TASK_RUN_H

#include "base/suggest.h"
#include "cli/cmd.h"
#include "cli/output/score_table.h"
#include "eval/gen.h"

struct tasks {
    const struct opts *o;
    struct engine e;
    struct run run;
    struct item_list items;
    struct haystack hay;
    struct answers have;
    struct progress bar;
};

/* ---- task_run.c ---- */
/* A note of the library, for the user */
void cb_task_warn(void *arg, const char *text);
/* Tokens of a text without special ones; or negative status */
int cb_task_tokens(void *tasks, const char *text, size_t n);
/* Runs a command: make() fills t->items, which are asked under each policy of the options.
 * truncate: where --too-long is not given, items that are too long are cut in their middle. */
int cb_task_run(const struct opts *o, int (*make)(struct tasks *t), int truncate);

/* ---- made_up_items.c: what tasks without a file share ---- */
struct made_up {
    struct gen g;
    int *length, *depth; /* owned */
};

/* Call cb_made_up_free() also after a failure. */
int cb_made_up(struct tasks *t, struct made_up *m);
void cb_made_up_free(struct made_up *m);
/* A list of integers of the command line: out[*n] */
int cb_made_up_ints(const struct opts *o, enum opt_id id, int **out, int *n);
/* Fills t->hay and makes it the text in which m hides things. */
int cb_made_up_haystack(struct tasks *t, struct made_up *m);

/* ---- item_files.c: tasks in files, and a choice among tasks ---- */
/* Is the name in the list of --tasks? Without the option every name is. */
int cb_task_picked(const struct opts *o, const char *name);
/* Each name of --tasks must be in the table. */
int cb_task_check_picked(const struct opts *o, name_fn at, const void *ctx);
/* Reads the operands into t->items: files of JSON lines, or folders of them. */
int cb_item_files(struct tasks *t);

/* What all commands of tasks take */
#define CB_TASK_SETS                                                                               \
    (SET_TASKS | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX | SET_POLICIES | SET_PROGRESS |    \
     SET_GENERAL)

#endif
