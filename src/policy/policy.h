/* SPDX-License-Identifier: MIT */
/* policy.h - one KV method: a plan (data, one row a layer) and a few hooks. This is all that a
 * file in method/ includes. See doc/ADD-A-METHOD.md. */
#ifndef POLICY_H
#define POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "bank/evict.h"

struct shape {
    int n_layer, n_head, n_kv, hd; /* n_head % n_kv == 0 */
    int n_ctx;                     /* capacity of the timeline in tokens */
    int one_row;                   /* 1: a token's key and value are one stored row */
    /* A model may have layers that see a window alone, beside layers that see everything. Methods
     * act on the latter: n_layer counts them, and layer l is the model's layer at[l] of
     * n_model_layer. at NULL: all layers, n_layer == n_model_layer. */
    const int *at;
    int n_model_layer;
    uint64_t model;         /* the model's fingerprint; 0 = none */
    const char *preset_dir; /* folder of the models' presets; NULL = none */
    /* [n_kv][n_layer]: a model trained for PoD names the first layer of each layer's block,
     * and how many tokens are near; NULL: it was not trained for it */
    const int *trained_blocks;
    int trained_sinks, trained_recent;
    int selects; /* 1: layers have trained selectors, which name what queries read */
    int guest;   /* 1: options come from a stranger, who may name files of preset_dir alone */
    /* A rank that has some of the layers plans for all, then keeps its own. n 0: it has all layers
     */
    struct own_layers {
        int first, n;
        const int *at;
        int n_model_layer;
    } own;
};

/* ---- the plan: data, unchanged once the policy is open ---- */

enum when { WHEN_NEVER, WHEN_PROMPT, WHEN_STEP, WHEN_ALWAYS = WHEN_PROMPT | WHEN_STEP };
enum by_heads { PER_KV_HEAD_MEAN, PER_KV_HEAD_MAX, MAX_HEADS, MEAN_HEADS, EACH_HEAD };
enum pool_kind { POOL_NONE, POOL_MEAN, POOL_MAX };

/* Which attention scores of the stored tokens a method's hooks get. A score is a token's softmax
 * weight, summed over queries. */
struct score_plan {
    enum when when;      /* cb_policy_watch() may change it while running */
    int window;          /* the last `window` queries of a prompt; 0 = every query */
    enum by_heads heads; /* how the scores of query heads combine: a row for each KV head, one row
                            for all, or a row for each query head */
    int sums; /* 1: with EACH_HEAD, the scores are accumulated in the store's columns, and a KV
                 head's query heads are spread evenly over its columns. Hooks then get no scores of
                 decode steps. */
    int pool; /* odd width of 1-D pooling along tokens, after heads are combined */
    enum pool_kind pool_kind;
    /* band > 0, with a window: each query scores only the first `sink` entries and the last `band`
     * that it sees, itself included */
    int sink, band;
    /* 1: with every query of a prompt and a row for each KV head, also the sums of the squares of
     * each query's score */
    int squares;
    /* future > 0, at prompts: in place of the prompt's queries, those expected at the next `future`
     * positions. They have the mean and the covariance of the prompt's queries before rotation. The
     * first `sink` tokens count neither as queries nor as entries. A score is the mean softmax
     * weight, plus eps, times the length of the entry's value. */
    int future;
    float eps;
    /* share > 0, with window 0 and without squares: the last 1 + share * n queries of a prompt of n
     * tokens, rounded down. They weigh 1 to `last`, along a line. The layer is read as one part. */
    double share;
    float last;
};

/* A layer that chooses for other layers: at each decoded token it chooses the stored tokens whose
 * largest score over the query heads is highest. The score is a softmax over the candidates, or the
 * logit itself. */
struct choice_plan {
    int k;        /* tokens chosen */
    double share; /* > 0: k is this share of the candidates, rounded down, at least 1 */
    int window;   /* the last `window` queries choose together; 0 = 1 */
    float decay;  /* query i of w weighs decay^(w-1-i); 0 means 1 */
    int logits;   /* 1: by logits instead of softmax weights */
    int tail; /* > 0: tokens generated since the last prompt are always read and never candidates,
                 until there are more than this many. Then all but the last tail_left are candidates
                 as well, and the count starts again */
    int tail_left; /* at most tail; 0 means 1 */
};

/* A layer whose KV heads take the logits of distant tokens from an earlier layer. */
struct cross_layer_plan {
    /* [n_kv] the layer whose queries and keys give the logits of tokens outside sink + recent, in
     * the prompt as well: this layer, or an earlier one whose from[kv] is itself; NULL = no sharing
     * in this layer */
    const int *from;
    int sink, recent; /* near tokens: read with the layer's own keys */
    int recent_after; /* > 0: replaces recent once the policy has dropped tokens of the layer */
    float skip; /* a query's head skips the far part if the near part's share of the attention >=
                   skip; > 1: never */
};

/* A layer whose decoded tokens find the slots that they read, in each KV head, by sketched keys. A
 * slot's score is its largest softmax weight for any query head of the KV head. Or they find pages,
 * by bounds that hold for each key of a page: the current page is read, and those whose bounds
 * allow the largest logits. Or they find slots by partial keys: the layer before guesses the
 * queries, skewed queries and keys give logits by their first columns, and each KV head reads as
 * many of the best slots as its layer's query heads have near their largest logits on average. */
struct sketch_plan {
    int bits;            /* 2 or 4 of a sketched key; 0: not by sketched keys */
    int half;            /* 1: with bits: half of the channels are scored */
    int page;            /* > 0: by bounds of pages of `page` slots */
    int columns;         /* > 0: by partial keys of `columns` columns; all three 0: by none */
    float alpha;         /* with columns: logits so far below the largest are near it */
    enum by_heads heads; /* with page: PER_KV_HEAD_MEAN or _MAX of the query heads' bounds, or a
                            choice for each of them, EACH_HEAD; with columns: _MAX of their logits,
                            each less its head's maximum, or EACH_HEAD */
    int k;               /* slots chosen; with page: slots of whole pages, of 3 at least; with
                            columns: at most */
    double share;        /* > 0: k is this share of the candidates, rounded down, at least 1 */
    double miss;         /* > 0: fewer than k, if the others' weights then sum to at most this */
    int sink, recent; /* slots that are read in any case, as are the newest ones without a sketch */
};

/* A layer whose queries see the last `local` tokens at their distances, and all others at the
 * distance local - 1: the first `sink`, and of the blocks of tokens after them the k that fit
 * best. A block is represented, in each query head, by the mean of its `reps` keys that had the
 * largest softmax weights while they were near, summed over queries in the query head's column. A
 * representative's product with the query is summed over all query heads. */
struct far_plan {
    int block; /* tokens; 0: no such layer */
    int k, reps, local, sink;
    int chunk; /* tokens of a prompt that choose by their mean query; its last token is alone */
};

/* When the first prompt has gone through all layers, it is fed again, after a request to repeat
 * it, in pieces of n tokens: to what is kept, these feeds add nothing. A query of them weighs
 * the first `sink` slots, its piece's, and the repetition up to itself. A slot's score, its largest
 * weight for any query of any query head of the KV head, is left in column 0 and goes to compact().
 * In every row, or in none; with late, and without `score`. */
struct repeat_plan {
    int piece; /* 0 = none */
    int sink;  /* first tokens, which are not repeated and get no score */
};

/* A layer that shares the directions of its keys and values with the layer before it, the model's
 * own: each has its own lengths. All tokens of a prompt, and later every `tail` generated ones, are
 * merged when the layer has attended. */
struct pair_plan {
    int tail;      /* 0: no such layer */
    double t;      /* of the angle from the earlier layer's direction to this one's, 0 to 1 */
    double retain; /* tokens of each KV head whose directions differ most, which stay in both; below
                      1: a share of the merged ones, rounded up */
};

/* How the keys of trained selectors are stored; AUTO: f32 where the bank's keys are, else q8_0 */
enum select_keys { SELECT_AUTO, SELECT_F32, SELECT_F16, SELECT_Q8_0 };

/* A layer whose trained selector, if it has one, names what queries read. */
struct select_plan {
    int on;
    enum select_keys keys;
};

/* Slots are read at positions as if they were adjacent. */
enum roll {
    ROLL_NOT,
    ROLL_RUNS,    /* they are a run of first tokens and a run of last ones */
    ROLL_COMPACT, /* any; all KV heads hold the same number */
    /* No: the last prompt_window tokens are at their true positions, and the first prompt_sink ones
     * as if they were prompt_window away, in the prompt and after it */
    ROLL_CLAMPED
};

struct layer_plan {
    struct score_plan score;
    struct choice_plan choice;
    struct cross_layer_plan cross;
    struct sketch_plan sketch;
    struct repeat_plan repeat;
    struct far_plan far;
    struct pair_plan pair;
    struct select_plan select;
    int reads; /* the layer whose choice decoded tokens read; -1: they read everything */
    enum roll rolling;
    int own_slots; /* 1: a query head does not read the slots whose column of it is not 0. A KV
                      head's query heads have the first columns, in order */
    int window;    /* > 0: a query sees the last `window` tokens only, in the prompt as well */
    /* prompt_window > 0: a query of a prompt sees the first prompt_sink tokens and the last
     * prompt_window, itself included. With rolling, distances to the first tokens are at most those
     * of prompt_sink + prompt_window adjacent tokens */
    int prompt_window, prompt_sink;
    int drop_every; /* > 0: compact() is called after every drop_every tokens of a prompt too, with
                       the scores of their queries */
    int late;       /* 1 = at the end of a prompt, compact() waits for all layers */
    int narrows;    /* 1: pass() says which tokens of a prompt the next layers compute */
};

static inline int cb_plan_chooses(const struct layer_plan *p)
{
    return p->choice.k > 0 || p->choice.share > 0;
}

/* Each query head of a block of 128 queries reads the first 128 tokens, its own, and of the blocks
 * of 128 between those that are estimated to hold most of its attention. Or it reads by a pattern.
 */
enum block_rule { BLOCKS_NONE, BLOCKS_BY_ANTIDIAGONALS, BLOCKS_BY_SKETCHES, BLOCKS_BY_PATTERNS };
/* BEST: the cheapest that holds enough, for each head and chunk */
enum pattern { PATTERN_BEST, PATTERN_A_SHAPE, PATTERN_VERTICAL_SLASH, PATTERN_BLOCK_SPARSE };
struct block_plan {
    enum block_rule rule;
    int stride;  /* antidiagonals: one query in `stride` meets a key, 4, 8 or 16; sketches: one
                    in `stride` is estimated */
    int bits;    /* of sketched keys, 2 or 4 */
    double keep; /* share of the estimate that the blocks read hold; 1: all are read */
    int last;    /* not patterns: queries among the `last` tokens of a prompt read all blocks */
    int sample; /* not patterns: one in `sample` tokens of the other blocks is read, with the weight
                   of all; a power of 2 to 128; 0: none */
    int n_upper; /* not patterns: in the model's last n_upper layers the first block, a query's own
                    and the one before it are read, and nothing else */
    /* Patterns */
    enum pattern pattern;
    int chunk;           /* tokens whose last queries choose, a multiple of 128; 0 = any */
    int least;           /* chunks that end before this many tokens attend densely */
    double recall;       /* BEST: the share of attention that is enough */
    int sink, local;     /* A_SHAPE: first and last tokens */
    int vertical, slash; /* VERTICAL_SLASH: columns, diagonals */
    int n_block;         /* BLOCK_SPARSE: blocks of 128 tokens */
};

/* How a prompt attends: the plan of a prefill form. Each chunk of `chunk` tokens attends to itself,
 * causally, and to k of the tokens before it, or to all of them if there are at most k. */
struct prompt_plan {
    int chunk; /* 0 = dense */
    int k;
    int stride; /* a chunk's last query chooses, and every stride-th query before it */
    int *as; /* [n_layer] the layer whose choice layer l reads; l itself: it reads all and chooses;
                -1: it reads all. The hook finds the policy's `reads` here */
    struct block_plan blocks; /* in place of all the above */
};

/* ---- options of a method ---- */

enum method_opt_kind { OPT_NUM, OPT_INT, OPT_FLAG, OPT_CHOICE, OPT_LIST, OPT_TEXT, OPT_FILE };

struct method_opt {
    const char *name, *unit, *text;
    enum method_opt_kind kind;
    double def, min, max;
    /* OPT_CHOICE: "mean max"; the value is the index. Numbers: a word that may stand in their
     * place, or NULL; the value is max. Lists and texts: default text. OPT_FILE: a text that names
     * a file to read */
    const char *choices;
};

/* Is choices the default text? */
static inline int cb_opt_has_text(const struct method_opt *o)
{
    return o->kind == OPT_LIST || o->kind == OPT_TEXT || o->kind == OPT_FILE;
}

struct opt_value {
    double num;       /* number, 0/1, or index of the choice */
    const char *text; /* as given (OPT_LIST: "2+8+18"), or the default text, or NULL */
    int set;          /* 1 = the user gave it */
};

/* Options of forms that estimate blocks: block_plan's `last`, `sample` and `n_upper` */
#define CB_PROMPT_LAST                                                                             \
    {                                                                                              \
        "last", "tokens", "the last n tokens of a prompt read everything", OPT_INT, 0, 0, 1 << 30, \
            NULL                                                                                   \
    }
#define CB_PROMPT_SAMPLE                                                                           \
    {                                                                                              \
        "sample", "tokens",                                                                        \
            "every n-th token of the other blocks is read, with the weight of all; 0: none",       \
            OPT_CHOICE, 0, 0, 0, "0 4 8 16 32"                                                     \
    }
#define CB_PROMPT_UPPER                                                                            \
    {                                                                                              \
        "upper", "",                                                                               \
            "share of the layers, the last ones, that read the first block, a query's own "        \
            "and the one before it, and nothing else",                                             \
            OPT_NUM, 0, 0, 1, NULL                                                                 \
    }
static inline int cb_prompt_upper(const struct opt_value *v, const struct shape *sh)
{
    const int lower = sh->n_layer - (int)(v->num * sh->n_layer + 0.5);

    if (lower >= sh->n_layer)
        return 0;
    return sh->n_model_layer - (sh->at ? sh->at[lower] : lower);
}
static inline int cb_prompt_sample(const struct opt_value *v)
{
    return v->num > 0 ? 2 << (int)v->num : 0;
}

struct method;
struct bank;

struct policy {
    const struct method *m;
    const struct method_kind *kind; /* the table that m is from */
    struct shape sh;
    struct opt_value *val; /* one for each option, in the order of the method's table */
    char *spec;            /* the text that val points into */
    int slot_floats;       /* the method's slot_floats; plan() may raise it */
    void *state; /* memory from cb_policy_state(): state of the method as a whole, beside the
                    layers' */
    size_t state_bytes;
    const struct layer_plan *plan; /* [n_layer] */
    struct layer_plan *planned;    /* the same, to be freed */
    const struct layer_plan *row;  /* [n_model_layer] the plan in the model's numbers of layers;
                                      layers on which no method acts have an empty row */
    struct layer_plan *rows;       /* the same, to be freed; NULL: row is plan */
    int *index, *from;  /* [n_model_layer] a layer's number here, or -1; rows' cross.from */
    void **layer_state; /* [n_layer] the method's own, given to hooks as st */
    enum when *watch;   /* [n_layer] when layers are scored: as planned, or cb_policy_watch() */
    struct bank *bank;  /* for the view below; methods do not look inside */
    void *arg;          /* for a method that is not in the table */
    void *mem;          /* memory that plan() got from malloc; freed with the policy */
    int at_most;    /* set by plan(): 1 = the memory plan is an upper bound, because what is kept
                       depends on the text */
    char note[256]; /* for the user, such as a default that was not calibrated for this model */
};

/* ---- what hooks are given ---- */

/* s[row * stride + j]: score of stored entry j. The plan's score.heads says what a row is. If KV
 * heads hold different numbers of entries, a row has as many as its KV head holds; one row for all
 * heads requires that all hold the same number. */
struct scores {
    int n_row, n, stride; /* n: entries of the longest row */
    const float *s;       /* pooled */
    const float *raw;     /* before pooling; equal to s when there is none */
    const float *squares; /* of each query's score, summed; NULL: not wanted, or a single query */
    int n_query;          /* queries that were summed */
    int prompt;           /* 1 = at the end of a prompt, 0 = a decode step */
};

struct method {
    const char *name, *cite, *brief;
    const struct method_opt *opts; /* ends with name NULL */
    size_t layer_bytes;            /* bytes of state for each layer, zeroed; hooks get it as st */
    int slot_floats; /* float columns for each slot of a KV head; they move with the slots */
    int (*plan)(struct policy *, const struct shape *, struct layer_plan *);
    int (*prompt)(struct policy *, const struct shape *, struct prompt_plan *); /* prefill forms */
    /* called after attention, if the plan asks for scores */
    int (*observe)(struct policy *, int l, void *st, const struct scores *);
    /* called after observe, at the end of a prompt (and within it, see drop_every) and after each
     * decoded token; scores may be NULL, and are at the end of a prompt if the plan sets late and
     * the prompt was not repeated */
    int (*compact)(struct policy *, int l, void *st, const struct scores *, struct eviction *);
    /* called after compact at the end of a prompt, where the plan sets narrows: of the prompt's
     * tokens 0..n-1 that layer l has computed, those that later layers compute as well -> ascending
     * out[n], count; the last token is one of them. n: all, and out is not read. Layer l itself
     * keeps what it has stored. */
    int (*pass)(struct policy *, int l, void *st, const struct scores *, int n, int *out);
    /* slots that a KV head of layer l will hold after a prompt and n_gen generated tokens; an upper
     * bound if that depends on the text. NULL: all are kept */
    int (*slots)(const struct policy *, int l, int n_prompt, int n_gen);
    int by_blocks; /* of a form of prefill: 1 = its plan is of blocks */
    int merges;    /* 1: compact() calls cb_evict_nearest() */
    int selected;  /* 1: it goes with models whose layers have trained selectors */
};

/* ---- what hooks may ask ---- */

int cb_view_len(const struct policy *p, int l, int kv); /* slots in use */
int cb_view_seen(const struct policy *p);       /* tokens fed so far, the current feed included */
int cb_view_prompt_end(const struct policy *p); /* tokens fed when the last prompt ended */
int cb_view_fed(const struct policy *p);        /* tokens of the current feed */
float *cb_view_col(struct policy *p, int l, int kv, int col); /* [len] column col */

/* ---- preset.c: for plan(), values from a JSON file that an offline analysis wrote. If the file
 * names a method or a model, it must be this one. ---- */

struct preset;
/* Opens the file `path`; path NULL: this method's preset for the model in sh.preset_dir, and *out
 * is NULL if there is none. With sh.guest, path is a name in sh.preset_dir. Errors quote nothing of
 * the file. */
int cb_preset_open(struct policy *p, const char *path, struct preset **out);
/* Whether the file is a preset of this method, of whatever model */
int cb_preset_check(struct policy *p, const char *path);
void cb_preset_close(struct preset *x);
const char *cb_preset_path(const struct preset *x);
int cb_preset_has(const struct preset *x, const char *key);
/* The share of the tokens that was read when the analysis tried its choice; -1: it does not say */
double cb_preset_read_share(const struct preset *x);
/* 0: the analysis says that no candidate kept enough of the full cache's answers */
int cb_preset_kept(const struct preset *x);
/* Blocks of layers, key "start": the first layer of each layer's block -> start[n_kv][n_layer].
 * *sinks and *recent are set if the file has them, else left alone. */
int cb_preset_blocks(struct policy *p, const struct preset *x, int *start, int *sinks, int *recent);
/* List `key` of n numbers (0 or more, not all 0) -> out[n] */
int cb_preset_numbers(struct policy *p, const struct preset *x, const char *key, double *out,
                      int n);
int cb_preset_number(struct policy *p, const struct preset *x, const char *key, double min,
                     double max, double *out);
/* List `key` of ascending layers -> is_in[n_layer], 0 or 1 */
int cb_preset_layers(struct policy *p, const struct preset *x, const char *key, char *is_in);

/* For plan(): a list option of ascending layers, "2+8+18": sets mark[l] = 1 for each layer l
 * listed; mark[n_layer]. */
int cb_policy_layers(const struct policy *p, int opt, const struct shape *sh, char *mark);

/* The number here of the model's layer l; -1: no method acts on it */
int cb_policy_index(const struct policy *p, int l);

/* For hooks: from now on layer l is scored when `when` says, not as planned. */
void cb_policy_watch(struct policy *p, int l, enum when when);

/* For plan(): zeroed memory for the method as a whole, p->state. Clearing the timeline zeroes it
 * again. */
int cb_policy_state(struct policy *p, size_t bytes);
/* Records that memory ran out; returns CB_ENOMEM. */
int cb_policy_no_memory(const struct policy *p);

/* A budget option as a count of tokens. Below 1 it is a share of the tokens seen when the last
 * prompt ended; the count is remembered in *share. Refused (negative) before the first prompt. */
int cb_policy_budget(struct policy *p, double budget, int prompt, int *share);

/* Reproducible, 0 to 1: number i of the seed's */
double cb_policy_draw(uint64_t seed, int i);

/* Reports a refusal: "policy NAME: ...", or "prefill NAME: ..." */
int cb_policy_refuse(const struct policy *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- keep.c: shared by methods ---- */

/* first `sink` and last `recent` of n -> ascending out, count */
int cb_keep_ends(int n, int sink, int recent, int *out);
/* the same ends, and the best of the other slots until k are kept. Order: s, then raw (may be
 * NULL), then the lower slot. -> ascending out, count. */
int cb_keep_top(const float *s, const float *raw, int n, int k, int sink, int recent, int *out);
/* a budget option: >= 1 tokens, below 1 a fraction of n (at least 1) */
int cb_keep_budget(double budget, int n);
/* x >= 1: tokens, at most `of`; below 1: a share of `of`, at least one token; 0 = none */
int cb_keep_part(double x, int of);
/* slots kept under a budget: min(n_prompt, budget) + n_gen with grow, else at most budget */
int cb_keep_slots(double budget, int n_prompt, int n_gen, int grow);

/* cb_keep_top() over a KV head's n slots; a single slot to drop is found without sorting */
int cb_evict_keep_top(struct eviction *e, int kv, const float *s, const float *raw, int n, int k,
                      int sink, int recent);
/* of the last `tail` slots of each KV head, the oldest go until `limit` are left */
int cb_evict_drop_tail(struct eviction *e, int tail, int limit);
/* tokens generated since the last prompt, as long as at most `limit` are kept and one goes at a
 * time: how many of them a KV head holds now */
int cb_view_tail(const struct policy *p, int limit);

/* ---- votes.c: shared by methods in which the last queries of a prompt vote (SnapKV, PyramidKV)
 * ---- */

/* How the votes of a KV head's query heads combine. EACH: not at all. Each query head keeps slots
 * of its own, the KV head those that any of them keeps. */
enum { VOTE_MEAN, VOTE_MAX, VOTE_EACH };
struct layer_plan cb_votes_plan(struct policy *p, int group, int window, int pool, int max);
/* Votes that wait until all layers have theirs (layer_plan.late): observe() leaves them in columns
 * 0 and 1 */
enum { VOTE_COLUMNS = 2 };
void cb_votes_store(struct policy *p, int l, const struct scores *s);
/* For every KV head: k slots, the window among them, which is kept. With floor below 1 only that
 * share of what a head chooses is its own: the KV heads of the layer compete for the rest, and hold
 * different numbers of slots. s NULL, with floor 1 and without VOTE_EACH: by the stored votes. */
int cb_evict_keep_votes(struct policy *p, int l, struct eviction *e, const struct scores *s, int k,
                        int sink, int window, double floor);
/* The most of n slots that this leaves a KV head */
int cb_keep_votes_most(const struct policy *p, int n, int k, int sink, int window);

/* ---- budget.c: a budget split over n layers ---- */

/* Real budgets with sum mean * n, falling from the first layer to mean / beta in the last (beta >=
 * 1), none above max (>= mean): along a line, by a constant ratio, or as beta^(-l / (n - 1)). The
 * excess over max goes to the other layers. */
void cb_share_linear(double *share, int n, double mean, double beta, double max);
void cb_share_geometric(double *share, int n, double mean, double beta, double max);
void cb_share_exponential(double *share, int n, double mean, double beta, double max);
/* share[n] scaled to sum `total`, none above max; the excess goes to the others in proportion */
void cb_share_cap(double *share, int n, double total, double max);
/* the same, and none below min (min * n <= total) */
void cb_share_clamp(double *share, int n, double total, double min, double max);
/* real share[n] with sum total -> integers with that sum (largest remainder, ties: lower index) */
void cb_share_round(const double *share, int n, int total, int *out);

/* Unbiased variance, along the entries, of the mean of rows [row, row + n_row) */
double cb_scores_variance(const struct scores *s, int row, int n_row);
/* Mean of the rows' variances, scaled so that the smallest of them is 0 and the largest 1 (D2O, Wan
 * et al. 2024, section 3.2) */
double cb_scores_spread(const struct scores *s);
/* Entropy in nats of x[n] >= 0, which sum to 1. */
double cb_row_entropy(const float *x, int n);
/* Gini coefficient of x[n] >= 0: 0 if all are equal, (n - 1) / n if one holds everything. `tmp`
 * [n] */
double cb_row_gini(const float *x, int n, float *tmp);

/* ---- paper_settings.c: policies as papers set them ---- */

struct paper_setting {
    const char *name, *method, *options; /* options "key=value,..." of the method */
};
const struct paper_setting *cb_paper_setting_at(int i); /* NULL past the last */
/* The setting for a method, or with method NULL the one for its paper's own; NULL: none */
const struct paper_setting *cb_paper_setting_find(const char *name, size_t n, const char *method);

/* ---- registry ---- */

const struct method *cb_method_at(int i);        /* NULL past the last */
const struct method *cb_prompt_method_at(int i); /* forms of prefill; NULL past the last */
/* "NAME[:key=value,...]" -> an opened policy; unknown names and keys suggest the nearest. The key
 * `as` stands for the options of a setting; other keys override them. A setting's name stands for
 * its paper's method with these options. */
int cb_policy_open(const char *spec, const struct shape *sh, struct policy **out);
int cb_prompt_open(const char *spec, const struct shape *sh, struct policy **out);
/* The same with a method that is not in the table, and without options. */
int cb_policy_open_as(const struct method *m, void *arg, const struct shape *sh,
                      struct policy **out);
int cb_policy_plan(struct policy *p, struct bank *bank); /* calls the method's plan() -> p->plan */
/* The state as plain data (bank/store_areas.h) -> out[n_layer + 2]; two policies opened with the
 * same spec and shape have the same areas. check() comes after they were filled from a file. */
struct area;
/* own_layers.c: where a rank has some of the layers, the plan of all becomes that of these. NULL,
 * or why it cannot */
const char *cb_policy_keep_own(struct policy *p, struct layer_plan *plan);
uint64_t cb_policy_plan_hash(const struct policy *p);               /* of the whole plan */
const struct repeat_plan *cb_policy_repeat(const struct policy *p); /* NULL: none */
int cb_policy_areas(const struct policy *p, struct area *out);
int cb_policy_check(const struct policy *p);
/* 1: the state depends on more than where the last prompt ended */
int cb_policy_remembers(const struct policy *p);
void cb_policy_clear(struct policy *p);          /* back to the initial state */
int cb_policy_is_listed(const struct policy *p); /* 0: opened with cb_policy_open_as() */
void cb_policy_close(struct policy *p);

#endif
