/* SPDX-License-Identifier: MIT */
/* session.h - one timeline: its bank, policy and attention, and the work space of a feed. */
#ifndef SESSION_H
#define SESSION_H

#include "attention/attend.h"
#include "ctxbank.h"
#include "model/head_prune.h"
#include "moe_work.h"
#include "stream_work.h"

/* Work space of the forward pass, in the device's memory but for cs and the logits. Sizes are known
 * when the session opens, except those of x and cs, which grow with the longest prompt. Where x
 * would take memory from weights, it lies in the host's, and a chunk of it is copied to `part`
 * while it goes through a layer. */
struct work {
    int cap_tok; /* tokens that x and cs hold */
    float *x;    /* [cap_tok][n_stream * n_embd] residual stream */
    int x_host;  /* 1: x is in the host's memory, 0: in the device's */
    float *part; /* [chunk][n_stream * n_embd] of the host's x, or NULL: ops take it where it is */
    float *cs[ROPE_TABLES]; /* [cap_tok][n_rot/2][2] cos, sin; NULL: no layer rotates by it */
    int32_t *pos;  /* [cap_tok] positions, where layers may leave tokens of a prompt out; or NULL */
    float *norm;   /* [chunk][n_embd] */
    float *qkv;    /* [chunk][(n_head + 2 n_kv) * hd] */
    float *att;    /* [chunk][n_head * hd] */
    float *latent; /* [chunk][the largest rank] of latent attention, or of others with a low rank
                      beside attention; or NULL */
    float *index;  /* [chunk][..] of selectors (cb_selector_row), or NULL */
    float *index_host; /* the same in the host's memory, where the device has its own; or NULL */
    float *gate, *up;  /* [chunk][n_ff] */
    float *limited; /* [2][chunk][n_ff] the host's, where it limits these or has the activation, and
                       they are the device's; or NULL */
    float *made;    /* [chunk][..] of layers with entries (struct entry_columns), or NULL */
    float *made_host; /* the same in the host's memory, where the device has its own; or NULL */
    float *back;      /* [chunk][n_rot/2][2] of rotations back, or NULL */
    float *low;       /* [chunk][max_rank] of adapters */
    struct expanded_latents *expanded; /* of long prompts, or NULL */
    float *add;        /* [chunk][n_embd] what a block adds, where it does not add it itself */
    float *join;       /* [chunk][2 n_embd] what a head for later tokens joins, of an assistant
                          [2 n_target]; or NULL */
    float *beside;     /* [chunk][n_embd] of a dense network beside experts, or NULL */
    float *told;       /* [chunk][n_input] rows of m->inputs, the host's; or NULL */
    int32_t *id;       /* [cap_tok] tokens, where layers are told of them; or NULL */
    float *query_gate; /* [2][chunk][n_head * hd] queries and gates as files have them, then the
                          gates alone; NULL: attention has no gates */
    struct moe_work moe;
    struct stream_work streams;
    float *logits;            /* [n_vocab] of the last token */
    int cap_batch;            /* sessions that batch_logits holds */
    float *batch_logits;      /* [cap_batch][n_vocab] */
    struct attention **batch; /* [cap_batch] of the sessions of a batch */
    uint64_t bytes;
};

/* Row i of a feed of a head for later tokens begins with this state [n_embd], at i, normed so. */
struct mtp_states {
    const float *state;
    const struct norm *norm;
};

/* What follows the passes of a session (mtp_drafter.h). Its first member in a struct of its own */
struct follower {
    /* The model's last layer has left state[n][n_embd] of the tokens at pos0, .., whose ids are
     * noted; bank.n_seen is still pos0. state NULL: they are not known. */
    void (*take)(struct follower *f, const float *state, int pos0, int n);
    void (*cut)(struct follower *f, int n); /* the session goes back to its first n tokens */
    void (*close)(struct follower *f);
};

/* The next step of a feed: a chunk of one layer. */
struct step {
    int layer, token;
    int n_tok; /* tokens of the feed that the layer computes */
};

struct cb_session {
    struct cb_model *model;
    struct device *dev;
    struct cb_session_params params; /* as given at open; the session owns the texts */
    int n_ctx; /* slots that the caller may fill; the bank has those of a repeated prompt on top */
    int chunk; /* most tokens that go through a layer at once */
    int act_bits; /* of activations when a token is decoded */
    int top;      /* largest logits that must be exact after a decoded token; 0: all */
    struct head_prune_stats prune_stats;
    struct bank bank;
    struct policy *policy;
    struct attention attention;
    struct rope rope[ROPE_TABLES];
    struct work w;
    int32_t *token; /* [cap_token] ids fed so far, and those of the current feed */
    char *decoded;  /* [cap_token] 1: the token was decoded, 0: it is of a prompt */
    size_t cap_token;
    struct step next;          /* of the current feed */
    struct mtp_states mtp_in;  /* of a head's session */
    struct follower *follower; /* the drafter of the model's own head, or what keeps states for
                                  an assistant (assistant_drafter.c); or NULL */
    struct store *
        *lent; /* [n_layer] of an assistant's session: whose rows a guess reads; or NULL */
    struct prompt_repeat *repeat; /* prompt_repeat.h; NULL: prompts are not repeated */
    int64_t fed, to_feed;         /* of the prompt in progress, its repetition too: tokens of the
                                     feeds before the current one, and of all of them */
    struct cb_prefill how;        /* of a prompt that is fed in steps */
    struct cb_prefill asked;      /* the caller's own, where `how` is not */
    int n_prefill_exact; /* the first n tokens read, to the bit, as after a single prefill of them
                          */
    /* Files in which rows lie, which may be larger than the memory. NULL = none */
    struct mapped_files *mapped;
    struct snapshot *snapshot; /* of these rows, which copies of this session share; or NULL */
    int n_shared; /* first tokens whose rows are still as they are in it; INT32_MAX: all rows are */
    struct in_step *in_step; /* in_step.h: the model's; NULL: this process is alone */
    int step_id;             /* of the session, the same on every rank */
    int partial_prompt;      /* 1: more of the prompt follows, so that its output is not read */
    int stop;                /* 1: the caller wants the prompt in progress stopped */
    int prompt_from;         /* tokens fed when the prompt in progress began */
    const struct cb_model *same_tokens; /* whose tokens were found to be this model's, or NULL */
    int busy; /* 1 while a call computes: any call made then comes from a callback */
    struct device_traffic traffic[2]; /* before and after the last decoded token; equal: none yet */
    uint64_t device_bytes; /* work space that the device reserved; all sessions share it */
};

/* Numbers of the residual stream of a token */
static inline size_t cb_stream_row(const struct cb_session *s)
{
    return (size_t)s->model->hp.n_stream * (size_t)s->model->hp.n_embd;
}

/* 1: the model's own head for later tokens can make drafts for the session */
static inline int cb_session_has_head(const struct cb_session *s)
{
    return s->model->mtp && !cb_attention_undraftable(&s->attention) &&
           !cb_attention_narrows(&s->attention);
}

static inline void cb_session_passed(struct cb_session *s, const float *state, int pos0, int n)
{
    if (s->follower)
        s->follower->take(s->follower, state, pos0, n);
}

static inline void cb_session_went_back(struct cb_session *s, int n)
{
    if (s->follower)
        s->follower->cut(s->follower, n);
}

/* ---- session_open.c ---- */

/* Opens with a method that is not in the table; ignores params->policy. */
int cb_session_open_as(cb_model *model, const struct cb_session_params *params,
                       const struct method *m, void *arg, cb_session **out);

/* ---- session.c ---- */

/* CB_EARG while a call computes: only a callback can ask then. */
int cb_session_check_callback(const struct cb_session *s);
int cb_session_check_idle(
    const struct cb_session *s); /* the same, and while a prompt is in steps */
/* CB_EIO: rows lie in a saved bank that has changed meanwhile. */
int cb_session_check_files(const struct cb_session *s);
/* 1: it makes no difference whether tokens are fed as one prompt or as several, and what is there
 * does not depend on what comes: the rows of a common beginning serve every prompt that has it. */
int cb_session_extends(const struct cb_session *s);
/* 1: a long prompt may expand latents (expanded_latents.h), so the bits of its tokens depend on how
 * many were fed together */
int cb_session_expands(const struct cb_session *s);
/* 1: tokens may be fed in pieces too, but layers drop what is outside their window: a place to
 * which the timeline is to come back must be copied when it is there */
int cb_session_only_forks(const struct cb_session *s);
/* 1: a cut goes back to a checkpoint and computes the tokens after it once more, unless a copy was
 * made at the place */
static inline int cb_session_computes_again(const struct cb_session *s)
{
    return cb_attention_has(&s->attention, READ_STATE);
}
/* Call before tokens after the first n come or go: their rows are no longer those of the
 * snapshot. */
void cb_session_keep_shared(struct cb_session *s, int n);
/* 1: after a cut to n tokens, where the session extends, their rows read as before, to the bit */
int cb_session_cuts_exactly(const struct cb_session *s, int n);
/* 1: cut to its first n tokens, the timeline reads, to the bit, as one prompt of them */
int cb_session_prefill_is_exact(const struct cb_session *s, int n);
size_t cb_session_tok_floats(const struct cb_session *s); /* work space a token of a feed */
/* Tokens of the longest feed that repeats a prompt of n tokens, fed next */
int cb_session_repeats(const struct cb_session *s, int n);
int cb_session_work_open(struct cb_session *s);
void cb_session_work_close(struct device *d, struct work *w);
int cb_session_work_fit(struct cb_session *s, int n); /* room for a feed of n tokens */
/* Bytes of the device's memory that this takes beyond what the session has */
int64_t cb_session_work_grows(const struct cb_session *s, int n);
int cb_session_work_fit_batch(struct cb_session *s, int n); /* for a batch of n sessions */
int cb_session_work_fit_draft(struct cb_session *s, int n); /* for n tokens of this session */
void cb_session_forget(struct cb_session *s); /* drops all tokens; call with the device locked */
int cb_session_fit_tokens(struct cb_session *s, int n); /* room for n tokens in `token` */
/* Notes the ids of the tokens that the next feed brings. */
int cb_session_note_tokens(struct cb_session *s, const int32_t *tokens, int n);

/* Guesses up to `most` tokens after the noted one at bank.n_seen -> draft of the follower, which
 * must be there; their number, or a negative status (feed.c) */
int cb_session_mtp_guess(struct cb_session *s, int most);

/* On a rank that follows: the timeline goes back to the n tokens before the prompt (feed.c). */
void cb_session_prefill_take_back(struct cb_session *s, int n);

/* ---- forward.c ---- */

/* Feeds tokens[n], which must fit. The last token's logits go to w.logits. */
int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how);
/* The same in steps: each step puts one chunk through one layer. Returns 1 while steps are left, 0
 * at the end, or a negative status. */
void cb_forward_begin(struct cb_session *s, const int32_t *tokens, int n);
int cb_forward_step(struct cb_session *s, const struct cb_prefill *how);
/* Decodes one token of each of n sessions of one model with the same act_bits; the tokens must fit.
 * n is at most the number of rows that one session takes at once. */
int cb_forward_batch(struct cb_session *const *s, const int32_t *tokens, int n);
/* Decodes tokens[n] of one session, each as if alone -> w.batch_logits. n is at most the number of
 * rows that it takes at once. */
int cb_forward_one_by_one(struct cb_session *s, const int32_t *tokens, int n);

#endif
