/* SPDX-License-Identifier: MIT */
/* model_shelf.h - the models that requests may name: opened when they are wanted, closed when
 * others need their memory or nobody has used them for a while. Any thread may call. */
#ifndef MODEL_SHELF_H
#define MODEL_SHELF_H

#include "prefix_store.h"
#include "serve.h"

struct server;
struct model_shelf;

struct model_shelf_params {
    struct serve_models models;
    int n_tenant;
    size_t most_requests;           /* bytes, as in serve_params */
    struct prefix_store *documents; /* outlives the shelf */
};

int cb_shelf_open(const struct model_shelf_params *p, struct model_shelf **out);
/* Opens no more models; answers that are under way have grace_s seconds to end. */
void cb_shelf_stop(struct model_shelf *s, double grace_s);
void cb_shelf_close(struct model_shelf *s); /* after a stop, when all models were given back */

/* Which entry the name means, or a name's absence: -1 = none */
int cb_shelf_find(const struct model_shelf *s, const char *name);
/* Entry i for a request, until it is given back; *out is opened if it is not. Waits for memory that
 * other requests use, unless gone() says that the client has gone: CB_ECANCEL. CB_EFULL: the model
 * is larger than the limit; else the statuses of opening it. */
int cb_shelf_take(struct model_shelf *s, int i, int (*gone)(void *arg), void *gone_arg,
                  struct server **out);
void cb_shelf_give(struct model_shelf *s, struct server *server);
/* Closes models that nobody has used for the time that the params say; call it now and then. */
void cb_shelf_tidy(struct model_shelf *s);
/* From now on, entry i is opened with these scales of its adapters, scale[n_adapter]. Answers that
 * are under way end first, unless gone(). */
int cb_shelf_rescale(struct model_shelf *s, int i, const float *scale, int (*gone)(void *arg),
                     void *gone_arg);

/* ---- what is there ---- */

enum shelf_state { SHELF_UNLOADED, SHELF_LOADING, SHELF_LOADED, SHELF_LEAVING };

struct shelf_view {
    const struct serve_entry *entry;
    enum shelf_state state;
    struct cb_model_info info; /* of a model that is loaded; texts of the model are left out */
    char quant[16], arch[48], name[128];
    int n_ctx; /* 0: not known */
    time_t begun;
};

int cb_shelf_n(const struct model_shelf *s);
int cb_shelf_several(const struct model_shelf *s); /* as serve_models has it */
const char *cb_shelf_name(const struct model_shelf *s, int i);
void cb_shelf_look(struct model_shelf *s, int i, struct shelf_view *out);
void cb_shelf_scales(struct model_shelf *s, int i, float *scale); /* [n_adapter] */
/* Counts since the start, also of models that are closed; gauges of those that are loaded */
void cb_shelf_stats(struct model_shelf *s, struct scheduler_stats *out);
struct prefix_store *cb_shelf_documents(const struct model_shelf *s);

#endif
