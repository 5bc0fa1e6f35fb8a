/* SPDX-License-Identifier: MIT */
/* answer.h - answers and their scores, kept as JSON lines so that an interrupted run can
 * continue. */
#ifndef ANSWER_H
#define ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

enum question { QUESTION_AWARE, QUESTION_BLIND };

/* Who answers. All answers of one policy in one run share it. */
struct answerer {
    const char *model; /* name and quantisation */
    const char *policy, *type_k, *type_v, *prefill;
    enum question question;
};

struct answer {
    struct answerer by; /* the texts belong to the list */
    char *id, *task, *pred;
    uint64_t item; /* hash of the item as asked */
    double score;  /* 0..1 */
    int length, depth, prompt_tokens, truncated;
    uint64_t kv_bytes, kv_full_bytes, kv_read_bytes;
    int kept_min, kept_max;
    double prompt_density; /* of a sparse prompt, if it is known; otherwise 0 */
};

struct answers {
    struct answer *at; /* [n] */
    int n, cap;
    int *place; /* [mask + 1] open addressing by item, id and policy: an answer's index + 1, 0 =
                   free */
    size_t mask;
    struct hash_key key;
    char **text; /* [n_text] strings of all answerers, without duplicates */
    int n_text;
    int fd; /* of the file, or -1 */
    const char *path;
};

/* Reads the answers in the file and opens it for more; path NULL: nothing is kept. The
 * beginning of an answer that a killed run left as the last line is cut off. Any other line that is
 * no answer stays and is reported to warn(), but an incomplete last one is an error. */
int cb_answers_open(const char *path, void (*warn)(void *arg, const char *text), void *arg,
                    struct answers *out);
void cb_answers_close(struct answers *x);

const struct answer *cb_answers_find(const struct answers *x, const struct answerer *by,
                                     const char *id, uint64_t item);
/* Copies the answer, and writes its line. metric: its name. */
int cb_answers_add(struct answers *x, const struct answer *a, const char *metric);

uint64_t cb_hash(uint64_t h, const char *s); /* FNV-1a, continued from h (0 at the start) */
const char *cb_question_name(enum question q);

#endif
