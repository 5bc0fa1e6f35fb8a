/* SPDX-License-Identifier: MIT */
/* item.h - one question about a long context, with its reference answers and its metric. */
#ifndef ITEM_H
#define ITEM_H

#include <stddef.h>
#include <stdint.h>

struct item {
    char *id, *task; /* "hotpotqa-012", "hotpotqa" */
    char *context;   /* the long text; never empty */
    char *question;  /* the text after it; "" where the two cannot be separated */
    char **answer;   /* [n_answer] */
    int n_answer;
    char **classes; /* [n_class], or NULL */
    int n_class;
    const struct metric *metric;
    int max_new;       /* tokens to generate */
    int chat;          /* 1 = in the model's chat form, as the benchmark publishes it */
    int stop_at_line;  /* 1 = the answer ends at its first line's end */
    uint64_t hash;     /* of the item as asked; ask_all.c sets it */
    int length, depth; /* generated items: tokens requested (0 = none), percent (-1 = none) */
};

/* Copies each text. answer[n_answer]. Negative status when out of memory. */
int cb_item_make(struct item *it, const char *id, const char *task, const char *context,
                 const char *question, const char *const *answer, int n_answer);
void cb_item_free(struct item *it);

struct item_list {
    struct item *at; /* [n] */
    int n;
    int n_bad; /* lines that could not be read */
};

int cb_item_add(struct item_list *list, struct item *it); /* owns *it, also on failure */
void cb_item_list_free(struct item_list *list);

/* NAME of /dir/NAME.jsonl -> task[n] */
void cb_item_task_of(const char *path, char *task, size_t n);

/* Reads JSON lines: the suite's form (prompt, answers, metric, max_new), LongBench's (context,
 * input, answers, dataset, all_classes), InfiniteBench's (context, input, answer, options; the
 * task is the file's name), or L-Eval's (input, instructions, outputs: a document with several
 * questions; the same). Documents of L-Eval whose answers need a judge are left out with a warning.
 * A line that cannot be read is counted and reported to `warn` with its number; the others are
 * kept. Negative when the file cannot be read or holds no item. */
int cb_item_read(const char *path, void (*warn)(void *arg, const char *text), void *arg,
                 struct item_list *out);

#endif
