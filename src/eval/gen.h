/* SPDX-License-Identifier: MIT */
/* gen.h - generated items: the same ones for the same seed, fitted to a length in tokens of the
 * model's tokenizer. */
#ifndef GEN_H
#define GEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "item.h"

/* ---- haystack.c: text to hide things in ---- */

struct word {
    size_t at;
    int n;        /* bytes */
    int is_first; /* first of a sentence */
};

struct haystack {
    char *text;
    struct word *word; /* [n] */
    int n;
};

int cb_haystack_make(const char *text, size_t n, struct haystack *out); /* CB_EFORMAT: no words */
int cb_haystack_read(const char *path, struct haystack *out);
void cb_haystack_free(struct haystack *h);

/* ---- what to make ---- */

struct gen {
    uint64_t seed;
    const int *length; /* [n_length] tokens of prompt and answer together */
    int n_length;
    const int *depth; /* [n_depth] percent of the haystack before the needle; n 0: anywhere */
    int n_depth;
    int n_needle;                                        /* needles hidden for one question */
    int items;                                           /* items of each length (and depth) */
    const struct haystack *haystack;                     /* may be NULL where the task needs none */
    const char *qa_file;                                 /* RULER's qa tasks: JSON lines */
    int reserve;                                         /* tokens that a chat template adds */
    int (*count)(void *arg, const char *text, size_t n); /* tokens, or negative */
    void *arg;
};

int cb_gen_needle(const struct gen *g, struct item_list *out);
int cb_gen_passkey(const struct gen *g, struct item_list *out);
/* OmniKV's dictionary and equation (Hao et al. 2025, appendix A). cot: the answer may reason
 * first. */
int cb_gen_2stage(const struct gen *g, int cot, struct item_list *out);
/* The same as the authors make it: dictionaries of 40 to 200 entries, whatever g's lengths are; the
 * answer begins with the sum. */
int cb_gen_2stage_published(const struct gen *g, struct item_list *out);
/* The same for small models: sentences of colours, three worked examples, sums up to `most` (0: any
 * entry). Items have the number of entries as their length. CB_EARG: too few sums. */
int cb_gen_2stage_shown(const struct gen *g, int entries, int most, struct item_list *out);

struct ruler_task;
const struct ruler_task *cb_ruler_at(int i); /* NULL past the last of the 13 */
const char *cb_ruler_name(const struct ruler_task *t);
const char *cb_ruler_needs(const struct ruler_task *t,
                           const struct gen *g); /* or NULL: it can run */
int cb_gen_ruler(const struct gen *g, const struct ruler_task *t, struct item_list *out);

/* ---- gen.c: what the generators share ---- */

struct rng {
    uint64_t s; /* splitmix64 (Steele et al. 2014) */
};

int cb_rng_below(struct rng *r, int n);                                      /* 0..n-1 */
struct rng cb_rng_for(uint64_t seed, const char *task, int a, int b, int c); /* of one item */
void cb_rng_shuffle(struct rng *r, int *x, int n);
void cb_rng_choose(struct rng *r, int *x, int k, int n); /* x[k]: different ones of 0..n-1 */

enum value_kind { VALUE_WORDS, VALUE_NUMBERS, VALUE_UUIDS };
const char *cb_value_name(enum value_kind k, int many); /* "number", "numbers" */
void cb_value(struct rng *r, enum value_kind k, char (*out)[48]);
enum { PAIR_WORDS = 64 * 64 };
void cb_pair_word(int i,
                  char (*out)[48]); /* the i-th of PAIR_WORDS different adjective-noun pairs */

/* Builds a prompt with `units` units of filler; the same number gives the same text. */
struct recipe {
    int (*build)(void *arg, int units, struct buf *context, struct buf *question);
    void *arg;
    int min_units, max_units, max_new;
};

struct made {
    const char *task, *metric;
    int length, depth, index;
    int max_new;
    const char *const *answer; /* [n_answer] */
    int n_answer;
    int chat, stop_at_line; /* as in struct item */
};

/* Adds what was built as an item of this id. CB_ENOMEM */
int cb_gen_add(const struct made *m, const struct buf *id, const struct buf *context,
               const struct buf *question, struct item_list *out);

/* Fits the recipe and adds the item. */
int cb_gen_item(const struct gen *g, const struct recipe *r, const struct made *m,
                struct item_list *out);

/* Noise without information, one sentence a call (Mohtashami and Jaggi 2023). */
const char *cb_noise(int i);
/* `units` words of the haystack from word `start` on, wrapping around. insert[n] go in front of the
 * sentences at depth[n] (percent, ascending). */
void cb_hay_fill(const struct haystack *h, int start, int units, const char *const *insert,
                 const double *depth, int n, struct buf *out);

#endif
