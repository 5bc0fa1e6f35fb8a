/* SPDX-License-Identifier: MIT */
/* exchange.h - one request and its answer, without what HTTP adds; what the server knows. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <pthread.h>
#include <time.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/siphash.h"
#include "marks.h"
#include "scheduler.h"
#include "serve.h"
#include "template_fit.h"
#include "token_history.h"

/* What the requests of a loaded model share, unchanged once it is there */
struct server {
    struct serve_model m;
    struct cb_model_info info;
    struct scheduler *scheduler;
    struct token_history *transcripts;
    struct prefix_store *documents;    /* of all models */
    const struct serve_models *models; /* that it is one of */
    struct marks marks;                /* of the model's vocabulary */
    struct template_fit fit;           /* of its chat template */
    int n_ctx;                         /* of a session */
    time_t begun;
    pthread_mutex_t embedding; /* held by the one request that computes embeddings */
};

/* loaded_model.c: entry i of the shelf, with its adapters at scale[]. close(): its scheduler has
 * stopped, and nobody has it */
struct model_shelf_params;
int cb_server_open(const struct model_shelf_params *p, int i, const float *scale,
                   struct server **out);
void cb_server_close(struct server *v);

/* An answer that comes in pieces */
struct stream {
    /* Appends what there is to *out, waiting if there is nothing. 1: more will come; 0: the end. */
    int (*next)(struct stream *s, struct buf *out);
    void (*close)(struct stream *s);
};

/* What the library's status cannot say: the request takes too much memory, alone or with others;
 * the model is damaged, and no request is to blame */
enum { SERVE_ETOOLARGE = -101, SERVE_EBUSY = -102, SERVE_EMODEL = -103 };

struct exchange {
    struct model_shelf *shelf; /* NULL while the server begins */
    struct server *s;          /* the model that the route found, given back with the exchange */
    const char *method, *path;
    const char *model; /* of the address: ?model=NAME, or NULL */
    struct buf body;
    json_t *json;         /* the body, of a request that has one */
    size_t request_bytes; /* memory of all requests under way */
    int tenant;
    int (*gone)(void *arg); /* 1: the client has closed the connection */
    void *gone_arg;
    /* Memory beside the body, until the request ends or gives it back: CB_OK, or SERVE_ETOOLARGE or
     * SERVE_EBUSY with its text. NULL: it is not counted */
    int (*hold)(void *arg, size_t bytes);
    void (*give_back)(void *arg, size_t bytes);
    void *hold_arg;
    size_t reading; /* held for what is built while the request is read */
    /* the answer */
    int status;
    const char *type; /* of the body */
    int retry_after;  /* seconds, or 0 */
    char allow[48];   /* the methods of the path, of a request with another one; or "" */
    char nonce[40];   /* of a page: the word that its scripts and styles bear; or "" */
    struct buf out;
    struct stream *stream; /* instead of out */
};

/* 1: memory ran out in this thread since its request began, or since the last call of _forget(). An
 * answer, or a piece of a stream, may then lack a part that nobody was told of. */
int cb_exchange_lacks(void);
void cb_exchange_forget(void);
/* Puts j, which it owns, into the answer. */
void cb_exchange_json(struct exchange *x, int status, json_t *j);
/* An error in the form that the path's clients expect. field: the wrong field, or NULL. */
void cb_exchange_error(struct exchange *x, int status, const char *message, const char *field);
/* The same with a code by which clients know it; NULL: the usual one of the status */
void cb_exchange_coded(struct exchange *x, int status, const char *message, const char *field,
                       const char *code);
/* The prompt does not fit into the context. */
void cb_exchange_overflow(struct exchange *x, int n_prompt, int n_ctx);
/* The same of a negative status of the library and its text: "FIELD: WHY" if the request is wrong.
 */
void cb_exchange_report(struct exchange *x, int status, const char *why);
/* The same of this thread's last failure */
void cb_exchange_fail(struct exchange *x, int status);
/* How errors are told: as OpenAI does, as /v1/messages, as {"error": TEXT} below /api */
enum error_form { ERRORS_OPENAI, ERRORS_ANTHROPIC, ERRORS_PLAIN };
/* The error's JSON object */
json_t *cb_error_json(enum error_form form, int status, const char *message, const char *field);
int cb_is_anthropic(const struct exchange *x);
int cb_is_ollama(const struct exchange *x); /* a path below /api */
/* The same status, of work with the model's weights: a file of another form is then no client's
 * fault. */
int cb_model_status(int status);

int cb_exchange_hold(struct exchange *x, size_t bytes);
void cb_exchange_give_back(struct exchange *x, size_t bytes);
/* The buffers that the request was read into have shrunk to `bytes`. */
void cb_exchange_was_read(struct exchange *x, size_t bytes);

/* An event of a stream; owns j. name: NULL = none. */
void cb_event(struct buf *out, const char *name, json_t *j);

/* Names that nobody can guess, as many as an answer needs: drawn at its start, where an error can
 * still be told */
struct id_source {
    struct hash_key key;
    uint64_t n;
};
int cb_ids_open(struct id_source *ids) __attribute__((warn_unused_result));
void cb_next_id(struct id_source *ids, const char *prefix, char *out, size_t cap);

#endif
