/* SPDX-License-Identifier: MIT */
/* api_models.c - which models there are: /v1/models; their adapters: /lora-adapters. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "fields.h"
#include "model_shelf.h"

/* ---- /v1/models ---- */

static json_t *meta(const struct shelf_view *v)
{
    const struct cb_model_info *f = &v->info;

    if (v->state != SHELF_LOADED)
        return json_pack("{s:I}", "size", (json_int_t)v->entry->bytes);
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:i, s:i, s:i}", "name", cb_json_str(v->name),
                     "arch", v->arch, "quant", v->quant, "n_params", (json_int_t)f->n_params,
                     "size", (json_int_t)f->file_bytes, "n_ctx_train", f->n_ctx_train, "n_ctx",
                     v->n_ctx, "n_vocab", f->n_vocab);
}

json_t *cb_api_model_json(struct exchange *x, int i)
{
    static const char *const state[] = { "unloaded", "loading", "loaded", "unloading" };
    json_t *aliases = json_array();
    struct shelf_view v;

    cb_shelf_look(x->shelf, i, &v);
    for (int k = 0; k < v.entry->n_alias; k++)
        cb_json_add(&aliases, cb_json_str(v.entry->alias[k]));
    return json_pack("{s:o, s:s, s:I, s:s, s:o, s:{s:s}, s:o}", "id", cb_json_str(v.entry->name),
                     "object", "model", "created", (json_int_t)v.begun, "owned_by", "ctxbank",
                     "aliases", aliases, "status", "value", state[v.state], "meta", meta(&v));
}

void cb_api_models(struct exchange *x)
{
    json_t *list = json_array();

    for (int i = 0; i < cb_shelf_n(x->shelf); i++)
        cb_json_add(&list, cb_api_model_json(x, i));
    cb_exchange_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

void cb_api_no_model(struct exchange *x, const char *name)
{
    struct buf why = { 0 };

    cb_buf_print(&why, "The model '%.200s' does not exist; this server has", name);
    for (int i = 0; i < cb_shelf_n(x->shelf); i++)
        cb_buf_print(&why, "%s %s", i ? "," : "", cb_shelf_name(x->shelf, i));
    cb_buf_text(&why, ".");
    cb_exchange_coded(x, 404, why.s ? why.s : "The model does not exist", "model",
                      "model_not_found");
    cb_buf_free(&why);
}

void cb_api_model(struct exchange *x)
{
    const char *name = x->path + strlen("/v1/models/");
    const size_t n = strlen(name);
    char *id = cb_calloc(n + 1, 1);
    int i = -1;

    if (id)
        i = cb_shelf_find(x->shelf, memcpy(id, name, n));
    if (id && i < 0 && n && id[n - 1] == '/') { /* a slash too many is nothing */
        id[n - 1] = '\0';
        i = cb_shelf_find(x->shelf, id);
    }
    if (i >= 0)
        cb_exchange_json(x, 200, cb_api_model_json(x, i));
    else
        cb_api_no_model(x, id ? id : "");
    free(id);
}

/* ---- /lora-adapters: those of the only model ---- */

static const struct serve_entry *first(struct exchange *x)
{
    struct shelf_view v;

    cb_shelf_look(x->shelf, 0, &v);
    return v.entry;
}

void cb_api_adapters(struct exchange *x)
{
    const struct serve_entry *e = cb_shelf_n(x->shelf) ? first(x) : NULL;
    float *scale = e ? cb_calloc((size_t)e->n_adapter + 1, sizeof *scale) : NULL;
    json_t *list = json_array();

    if (scale)
        cb_shelf_scales(x->shelf, 0, scale);
    for (int i = 0; scale && i < e->n_adapter; i++)
        cb_json_add(&list, json_pack("{s:i, s:o, s:f}", "id", i, "path",
                                     cb_json_str(e->adapter[i].path), "scale", (double)scale[i]));
    free(scale);
    cb_exchange_json(x, 200, list);
}

/* [{id, scale}] -> scale[n]; those that are not named get 0 */
static int read_scales(const json_t *list, int n, float *scale)
{
    const json_t *v;
    size_t i;

    if (!n)
        return cb_fail(CB_EARG, "id: the server has no adapters; --lora loads them");
    if (!json_is_array(list))
        return cb_fail(CB_EARG, "id: the body must be a list of {id, scale}");
    json_array_foreach(list, i, v)
    {
        int64_t id = -1;
        float x = 1;
        TRY(cb_field_int(v, "id", 0, n - 1, &id));
        TRY(cb_field_float(v, "scale", -1e6, 1e6, &x));
        if (id < 0)
            return cb_fail(CB_EARG, "id: missing");
        scale[id] = x;
    }
    return CB_OK;
}

/* The model is opened again: kept contexts are those of other weights. */
static int set_scales(struct exchange *x, float *scale, int n)
{
    TRY(read_scales(x->json, n, scale));
    TRY(cb_shelf_rescale(x->shelf, 0, scale, x->gone, x->gone_arg));
    return cb_model_status(cb_shelf_take(x->shelf, 0, x->gone, x->gone_arg, &x->s));
}

void cb_api_set_adapters(struct exchange *x)
{
    const int n = cb_shelf_several(x->shelf) ? 0 : first(x)->n_adapter;
    float *scale = cb_calloc((size_t)n + 1, sizeof *scale);
    const int rc = scale ? set_scales(x, scale, n) : CB_ENOMEM;

    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200, json_pack("{s:b}", "success", 1));
    free(scale);
}
