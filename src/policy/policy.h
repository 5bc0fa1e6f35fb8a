/* SPDX-License-Identifier: MIT */
/* policy.h - one KV method: a plan (data, one row a layer) and up to four hooks. This is all that a
 * file in method/ includes. See doc/ADD-A-METHOD.md. */
#ifndef POLICY_H
#define POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "bank/evict.h"

struct shape {
    int n_layer, n_head, n_kv, hd; /* n_head % n_kv == 0 */
    int n_ctx;                     /* most tokens in the timeline */
    int window;                    /* > 0: every layer of the model sees the last `window` tokens */
    uint64_t model;                /* its fingerprint; 0 = none */
    const char *preset_dir;        /* where presets of models lie; NULL = there are none */
};

/* ---- the plan: data, unchanged once the policy is open ---- */

enum when { WHEN_NEVER, WHEN_PROMPT, WHEN_STEP, WHEN_ALWAYS };
enum by_heads { PER_KV_HEAD_MEAN, PER_KV_HEAD_MAX, MAX_HEADS, MEAN_HEADS, EACH_HEAD };
enum pool_kind { POOL_NONE, POOL_MEAN, POOL_MAX };

/* The attention scores of stored tokens that the hooks of a method get: softmax weights, summed
 * over queries. */
struct score_plan {
    enum when when;      /* cb_policy_watch() may change it while running */
    int window;          /* the last `window` queries of a prompt; 0 = every query */
    enum by_heads heads; /* how query heads combine: a row a KV head, one row for all, a row each */
    int sums; /* 1: with EACH_HEAD, scores add up in the store's columns: as many heads of a KV head
                 in each as it takes. Hooks get no scores of steps then. */
    int pool; /* odd width of 1-D pooling along tokens, after heads are combined */
    enum pool_kind pool_kind;
    /* band > 0, with a window: of each query's weights only those on its first `sink` entries and
     * on the last `band` that it sees, itself among them */
    int sink, band;
};

/* A layer that chooses for others: at each decoded token, the stored tokens with the largest score
 * of any query head. The score is a softmax over the candidates, or the logit itself. */
struct choice_plan {
    int k;        /* tokens chosen */
    double share; /* > 0: k is this share of the candidates, rounded down, at least 1 */
    int window;   /* the last `window` queries choose together; 0 = 1 */
    float decay;  /* query i of w weighs decay^(w-1-i); 0 means 1 */
    int logits;   /* 1: by logits instead of softmax weights */
    int tail;     /* > 0: tokens after the last prompt are always read and never candidates, until
                     there are more than this many */
};

/* A layer whose KV heads take the logits of distant tokens from an earlier layer. */
struct cross_layer_plan {
    /* [n_kv] the layer whose queries and keys are read outside of sink + recent, in the prompt as
     * well: the layer itself or an earlier one that has itself; NULL = no sharing in this layer */
    const int *from;
    int sink, recent; /* tokens that are read with the layer's own keys */
    int recent_after; /* > 0: recent, once the policy has dropped tokens of the layer */
    float skip; /* a step leaves the far part out where the near part's share >= skip; > 1: never */
};

struct layer_plan {
    struct score_plan score;
    struct choice_plan choice;
    struct cross_layer_plan cross;
    int reads;   /* decoded tokens read what this layer chose; -1: everything */
    int rolling; /* 1: slots are a run of first tokens and a run of last ones, read at positions as
                    if nothing had been between */
    int window;  /* > 0: a query sees the last `window` tokens only, in the prompt as well */
    int late;    /* 1 = at the end of a prompt, compact() waits for all layers */
};

static inline int cb_plan_chooses(const struct layer_plan *p)
{
    return p->choice.k > 0 || p->choice.share > 0;
}

/* How a prompt attends: the plan of a prefill form. Each `chunk` tokens of a feed read themselves,
 * causally, and k of the tokens before them; where there are no more than k, all. */
struct prompt_plan {
    int chunk; /* 0 = dense */
    int k;
    int stride; /* of a chunk's queries the last chooses, and each stride-th before it */
    int *as;    /* [n_layer] the layer whose choice is read; l itself: it reads all and chooses; -1:
                   it reads all. Before plan: as the policy's decoded tokens have it */
};

/* ---- options of a method ---- */

enum method_opt_kind { OPT_NUM, OPT_INT, OPT_FLAG, OPT_CHOICE, OPT_LIST, OPT_TEXT };

struct method_opt {
    const char *name, *unit, *text;
    enum method_opt_kind kind;
    double def, min, max;
    const char *choices; /* OPT_CHOICE: "mean max"; the value is the index. Others: default text */
};

struct opt_value {
    double num;       /* number, 0/1, or index of the choice */
    const char *text; /* as given (OPT_LIST: "2+8+18"), or the default text */
    int set;          /* 1 = the user gave it */
};

struct method;
struct bank;

struct policy {
    const struct method *m;
    const struct method_kind *kind; /* the table that m is from */
    struct shape sh;
    struct opt_value *val; /* one an option, in the order of the method's table */
    char *spec;            /* the text that val points into */
    int slot_floats;       /* the method's; plan() may ask for more */
    void *state; /* what cb_policy_state() gave: the method's own, beside that of a layer */
    size_t state_bytes;
    const struct layer_plan *plan; /* [n_layer] */
    struct layer_plan *planned;    /* the same, to be freed */
    void **layer_state;            /* [n_layer] the method's own, given to hooks as st */
    enum when *watch;  /* [n_layer] when layers are scored now: as planned, or cb_policy_watch() */
    struct bank *bank; /* for the view below; methods do not look inside */
    void *arg;         /* of a method that is not in the table */
    void *mem;         /* what plan() allocated with malloc; freed with the policy */
    int at_most; /* plan(): 1 = the memory plan is a bound, since the text decides what is kept */
    char note[256]; /* what the user should know: a default that was not made for this model */
};

/* ---- what hooks are given ---- */

/* s[row * stride + j]: score of stored entry j; rows as want.heads says. Where KV heads hold
 * different numbers of entries, a row has as many as its head (all heads in one row: they hold the
 * same). */
struct scores {
    int n_row, n, stride; /* n: entries of the longest */
    const float *s;       /* pooled */
    const float *raw;     /* before pooling; equal to s when there is none */
    int n_query;          /* queries that were summed */
    int prompt;           /* 1 = at the end of a prompt, 0 = a decode step */
};

struct method {
    const char *name, *cite, *brief;
    const struct method_opt *opts; /* ends with name NULL */
    size_t layer_bytes;            /* zeroed state a layer, given to hooks as st */
    int slot_floats;               /* float columns a slot and KV head; the core moves them */
    int (*plan)(struct policy *, const struct shape *, struct layer_plan *);
    int (*prompt)(struct policy *, const struct shape *, struct prompt_plan *); /* prefill forms */
    /* after attention, when scores were wanted */
    int (*observe)(struct policy *, int l, void *st, const struct scores *);
    /* after observe, at the end of a prompt and after each decoded token; scores may be NULL, and
     * are where the plan says late */
    int (*compact)(struct policy *, int l, void *st, const struct scores *, struct eviction *);
    /* slots that a KV head of layer l will hold after a prompt and n_gen generated tokens; the most
     * where that depends on the text. NULL: all. */
    int (*slots)(const struct policy *, int l, int n_prompt, int n_gen);
    int merges; /* 1: compact() asks cb_evict_nearest() */
};

/* ---- what hooks may ask ---- */

int cb_view_len(const struct policy *p, int l, int kv); /* slots in use */
int cb_view_seen(const struct policy *p);               /* tokens fed so far, those at hand too */
int cb_view_prompt_end(const struct policy *p);         /* tokens fed when the last prompt ended */
int cb_view_fed(const struct policy *p);                /* of them, those of the feed at hand */
const int32_t *cb_view_pos(const struct policy *p, int l, int kv); /* [len]; NULL = slot number */
float *cb_view_col(struct policy *p, int l, int kv, int col);      /* [len] one per-slot column */
/* stored key (v = 0) or value (v = 1) as f32 -> out[hd] */
void cb_view_kv(const struct policy *p, int l, int kv, int v, int slot, float *out);

/* ---- preset.c: for plan(), values that an offline analysis left in a JSON file. A file that names
 * a method or a model must name this one. ---- */

struct preset;
/* The file `path`; without one, that of this method and model in sh.preset_dir, or *out NULL. */
int cb_preset_open(struct policy *p, const char *path, struct preset **out);
void cb_preset_close(struct preset *x);
const char *cb_preset_path(const struct preset *x);
/* Blocks of layers, "start": [n_kv][n_layer] first layer of each layer's block ->
 * start[n_kv][n_layer]; sinks, recent: the file's, or as they were. */
int cb_preset_blocks(struct policy *p, const struct preset *x, int *start, int *sinks, int *recent);
/* List `key` of n numbers (0 or more, not all 0) -> out[n] */
int cb_preset_numbers(struct policy *p, const struct preset *x, const char *key, double *out,
                      int n);
int cb_preset_number(struct policy *p, const struct preset *x, const char *key, double min,
                     double max, double *out);
/* List `key` of ascending layers -> is_in[n_layer], 0 or 1 */
int cb_preset_layers(struct policy *p, const struct preset *x, const char *key, char *is_in);

/* For plan(): a list option of layers, "2+8+18", ascending: 1 -> mark[n_layer] at each. */
int cb_policy_layers(const struct policy *p, int opt, const struct shape *sh, char *mark);

/* For hooks: from now on layer l is scored at other times than planned. */
void cb_policy_watch(struct policy *p, int l, enum when when);

/* For plan(): zeroed memory for the method as a whole, p->state; zeroed again with the timeline. */
int cb_policy_state(struct policy *p, size_t bytes);

/* A budget option as a count. Below 1 it is a share of the tokens seen when the last prompt ended,
 * remembered in *share; refused (negative) where no prompt has been. */
int cb_policy_budget(struct policy *p, double budget, int prompt, int *share);

/* Reports a refusal: "policy NAME: ...", or "prefill NAME: ..." */
int cb_policy_refuse(const struct policy *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- keep.c: shared by methods ---- */

/* first `sink` and last `recent` of n -> ascending out, count */
int cb_keep_ends(int n, int sink, int recent, int *out);
/* those, and the best of the others until k are kept. Order: s, then raw (may be NULL), then lower
 * slot. Ascending out, count. */
int cb_keep_top(const float *s, const float *raw, int n, int k, int sink, int recent, int *out);
/* a budget option: >= 1 tokens, below 1 a fraction of n (at least 1) */
int cb_keep_budget(double budget, int n);
/* x >= 1: tokens, at most `of`; below 1 a share of them, at least one token; 0 = none */
int cb_keep_part(double x, int of);
/* what stays under a budget: min(prompt, budget) + generated where it grows, at most budget else */
int cb_keep_slots(double budget, int n_prompt, int n_gen, int grow);

/* cb_keep_top() of a KV head's n slots; a single one to drop is found without sorting */
int cb_evict_keep_top(struct eviction *e, int kv, const float *s, const float *raw, int n, int k,
                      int sink, int recent);
/* the same for every KV head, by scores of an observation window, which stays */
int cb_evict_keep_votes(struct eviction *e, const struct scores *s, int k, int sink, int window);
/* all heads, of n slots: down to `limit` by dropping slots first.. */
int cb_evict_drop_tail(struct eviction *e, int n, int limit, int first);

/* ---- budget.c: a budget split over n layers ---- */

/* Real budgets with sum mean * n, falling from the first layer to mean / beta in the last (beta >=
 * 1), none above max (>= mean): along a line, by a constant ratio, or as beta^(-l / (n - 1)). What
 * a cap cuts goes to the others. */
void cb_share_linear(double *share, int n, double mean, double beta, double max);
void cb_share_geometric(double *share, int n, double mean, double beta, double max);
void cb_share_exponential(double *share, int n, double mean, double beta, double max);
/* shares[n] with sum `total`, none above max: what is cut goes to the others in proportion */
void cb_share_cap(double *share, int n, double total, double max);
/* real shares[n] that sum to total -> integers that do (largest remainder, ties: lower index) */
void cb_share_round(const double *share, int n, int total, int *out);

/* Unbiased variance along the entries of the mean of rows [row, row + n_row) */
double cb_scores_variance(const struct scores *s, int row, int n_row);
/* Mean over rows of each one's variance, scaled to 0..1 between the least and the largest (D2O, Wan
 * et al. 2024, section 3.2) */
double cb_scores_spread(const struct scores *s);

/* ---- registry ---- */

const struct method *cb_method_at(int i);        /* NULL past the last */
const struct method *cb_prompt_method_at(int i); /* forms of prefill; NULL past the last */
/* "NAME[:key=value,...]" -> an opened policy; unknown names and keys suggest the nearest */
int cb_policy_open(const char *spec, const struct shape *sh, struct policy **out);
int cb_prompt_open(const char *spec, const struct shape *sh, struct policy **out);
/* The same with a method that is not in the table, and without options. */
int cb_policy_open_as(const struct method *m, void *arg, const struct shape *sh,
                      struct policy **out);
int cb_policy_plan(struct policy *p, struct bank *bank); /* asks the method: p->plan */
/* `to` was opened as `from` was, and remembers what that remembers. */
void cb_policy_copy(struct policy *to, const struct policy *from);
/* Does what it remembers depend on more than the last prompt's end? */
int cb_policy_remembers(const struct policy *p);
void cb_policy_clear(struct policy *p);          /* its state is as at the start */
int cb_policy_is_listed(const struct policy *p); /* 0: opened with cb_policy_open_as() */
void cb_policy_close(struct policy *p);

#endif
