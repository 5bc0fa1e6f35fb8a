/* SPDX-License-Identifier: MIT */
/* loaded_model.c - a model that is loaded, with what its requests share. */
#include <stdlib.h>

#include "base/err.h"
#include "exchange.h"
#include "model_shelf.h"

static int n_ctx_of(const struct serve_model *m, const struct cb_model_info *info)
{
    const int n = m->scheduler.slots.session.n_ctx;
    return n ? n : info->n_ctx_train;
}

static int open_parts(struct server *v, const struct model_shelf_params *p)
{
    v->m.scheduler.slots.model = v->m.model;
    v->m.scheduler.n_tenant = p->n_tenant;
    cb_model_get_info(v->m.model, &v->info);
    v->n_ctx = n_ctx_of(&v->m, &v->info);
    TRY(cb_marks_find(v->m.model, &v->marks));
    TRY(cb_template_fit(v->m.model, &v->m.chat, &v->fit));
    TRY(cb_token_history_new(4 * v->m.scheduler.slots.n + 16, p->most_requests / 16,
                             &v->transcripts));
    return cb_scheduler_open(&v->m.scheduler, &v->scheduler);
}

int cb_server_open(const struct model_shelf_params *p, int i, const float *scale,
                   struct server **out)
{
    struct server *v = cb_calloc(1, sizeof *v);
    int rc;

    *out = NULL;
    if (!v)
        return CB_ENOMEM;
    *v = (struct server){ .documents = p->documents, .models = &p->models, .begun = time(NULL) };
    pthread_mutex_init(&v->embedding, NULL);
    rc = p->models.open(p->models.arg, i, scale, &v->m);
    if (!rc) {
        v->m.name = p->models.at[i].name;
        rc = open_parts(v, p);
    }
    if (rc)
        cb_server_close(v);
    else
        *out = v;
    return rc;
}

void cb_server_close(struct server *v)
{
    cb_scheduler_close(v->scheduler);
    cb_token_history_free(v->transcripts);
    free(v->marks.ids);
    if (v->m.held)
        v->models->close(v->models->arg, &v->m);
    pthread_mutex_destroy(&v->embedding);
    free(v);
}
