/* SPDX-License-Identifier: MIT */
/* item.h - one question about a long context, with the reference answers and how to score it. */
#ifndef ITEM_H
#define ITEM_H

#include <stddef.h>
#include <stdint.h>

struct item {
    char *id, *task; /* "hotpotqa-012", "hotpotqa" */
    char *context;   /* what may be long; never empty */
    char *question;  /* what stands behind it; "" where the two cannot be told apart */
    char **answer;   /* [n_answer] */
    int n_answer;
    char **classes; /* [n_class], or NULL */
    int n_class;
    const struct metric *metric;
    int max_new;       /* tokens to generate */
    int chat;          /* 1 = in the model's chat form, as the benchmark publishes it */
    int stop_at_line;  /* 1 = the answer ends at its first line's end */
    uint64_t hash;     /* of what is asked; run.c sets it */
    int length, depth; /* made-up items: tokens asked for (0 = none), percent (-1 = none) */
};

/* A copy of each text; negative status when memory runs out. n_answer answers. */
int cb_item_make(struct item *it, const char *id, const char *task, const char *context,
                 const char *question, const char *const *answer, int n_answer);
void cb_item_free(struct item *it);

struct item_list {
    struct item *at; /* [n] */
    int n, cap;
    int n_bad; /* lines that could not be read */
};

int cb_item_add(struct item_list *list, struct item *it); /* takes it over, also when it fails */
void cb_item_list_free(struct item_list *list);

/* JSON lines: the suite's form (prompt, answers, metric, max_new), LongBench's (context, input,
 * answers, dataset, all_classes) or InfiniteBench's (context, input, answer, options; the task is
 * the file's name). A line that cannot be read is passed to `warn` with its number and counted; the
 * others still count. Negative when the file cannot be read, or holds no item at all. */
int cb_item_read(const char *path, void (*warn)(void *arg, const char *text), void *arg,
                 struct item_list *out);

#endif
