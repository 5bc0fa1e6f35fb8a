/* SPDX-License-Identifier: MIT */
/* serve.h - a server of the OpenAI and Anthropic HTTP interfaces for one model or several. */
#ifndef SERVE_H
#define SERVE_H

#include "ctxbank.h"
#include "scheduler.h"

struct serve;

struct serve_params {
    const char *host; /* an address; NULL = "127.0.0.1" */
    int port;         /* 0 = any that is free */
    int listen_fd;    /* a socket that listens already; -1 = none */
    const char *const
        *key; /* [n_key] a request must bring one of them; none: no key is asked for */
    int n_key;
    const char *cors;     /* origin whose pages may use the server, "*" = all; NULL = none */
    size_t most_body;     /* bytes of a request; 0 = 64 MiB */
    int connections;      /* at once; 0 = 1024 */
    size_t most_requests; /* bytes of memory for all requests under way: bodies, and what is made of
                             them; 0 = 512 MiB. Documents that are kept may take an eighth more, and
                             so may conversations that are remembered */
    void (*log)(const char *line); /* a line for each request; NULL = none */
};

struct serve_model {
    cb_model *model;
    const char *name;                 /* the id of the model in answers: the entry's */
    struct cb_chat chat;              /* how conversations are written */
    const char *system;               /* of conversations that have no system message, or NULL */
    enum cb_pooling pooling;          /* of embeddings */
    struct cb_sampler_params sampler; /* of requests that say nothing */
    int seed_drawn;                   /* 1: each request draws its own seed */
    struct scheduler_params scheduler;
    uint64_t bytes; /* of weights and work space */
    void *held;     /* the opener's, never NULL */
};

/* A model that requests may name */
struct serve_entry {
    const char *name, *path;
    const char *const *alias; /* [n_alias] further names */
    int n_alias;
    uint64_t bytes;                   /* of its file */
    const struct cb_adapter *adapter; /* [n_adapter], with the scales of the start */
    int n_adapter;
};

struct serve_models {
    const struct serve_entry *at; /* [n] */
    int n;
    int several; /* 1: requests must name one of them. 0: there is one, whatever they say */
    /* Opens entry i with its adapters at scale[n_adapter] -> *out; closes it. One thread at a time,
     * and not always the same one */
    int (*open)(void *arg, int i, const float *scale, struct serve_model *out);
    void (*close)(void *arg, struct serve_model *m);
    void *arg;
    uint64_t most_bytes;   /* of loaded models; 0 = no limit */
    double unload_after_s; /* that a model stays unused; 0 = until its memory is needed */
};

/* Listens, and answers 503 until cb_serve_begin(). Texts of params and of models stay the caller's,
 * and must live until cb_serve_close(). CB_EUNSUPPORTED: built without libmicrohttpd. */
int cb_serve_open(const struct serve_params *p, struct serve **out);
int cb_serve_port(const struct serve *s);
/* With one model: opens it, and fails if that fails. */
int cb_serve_begin(struct serve *s, const struct serve_models *m);
void cb_serve_tidy(struct serve *s); /* closes models that are unused; call it every second */
/* Takes no more requests; answers that are under way have grace_s seconds to end. */
void cb_serve_close(struct serve *s, double grace_s);

#endif
