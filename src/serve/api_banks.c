/* SPDX-License-Identifier: MIT */
/* api_banks.c - /v1/banks: a document is read before anybody asks about it. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "base/ints.h"
#include "chat_prompt.h"
#include "fields.h"
#include "model_shelf.h"
#include "prefix_store.h"

/* ---- a new one ---- */

static json_t *whole(struct completion *t)
{
    char id[CB_DOCUMENT_ID];
    const char *name = json_string_value(json_object_get(t->request, "name"));

    const int rc = cb_prefix_store_add(t->s->documents, t->state, name, t->order.n, id);

    if (rc) {
        cb_completion_refuse(t, rc);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:s?, s:I, s:i, s:o, s:o}", "id", id, "object", "bank", "name",
                     name, "created", (json_int_t)time(NULL), "tokens", t->order.n, "timings",
                     cb_completion_timings(t), "memory", cb_completion_memory(t));
}

static const struct dialect dialect = { .whole = whole, .call_prefix = "" };

/* The conversation that begins with the messages and continues with a user who says `word` */
static int prompt_with(const struct completion *t, json_t *messages, const char *word,
                       struct chat_prompt *p)
{
    json_t *r = json_pack("{s:o, s:O?, s:O?}", "messages", json_copy(messages), "tools",
                          json_object_get(t->request, "tools"), "chat_template_kwargs",
                          json_object_get(t->request, "chat_template_kwargs"));
    int rc;

    json_array_append_new(json_object_get(r, "messages"),
                          json_pack("{s:s, s:s}", "role", "user", "content", word));
    rc = r ? cb_chat_prompt(t->s, r, p) : cb_fail(CB_ENOMEM, "out of memory");
    json_decref(r);
    return rc;
}

/* The tokens with which every conversation about the document begins: those that two have in
 * common, whatever the template is. */
static int read_prompt(struct completion *t, json_t *messages)
{
    struct chat_prompt a = { 0 }, b = { 0 };
    int n = 0, rc = prompt_with(t, messages, "A", &a);

    if (!rc)
        rc = prompt_with(t, messages, "B", &b);
    while (!rc && n < min_int(a.n, b.n) && a.ids[n] == b.ids[n])
        n++;
    if (!rc) {
        t->ids = a.ids;
        t->order.n = n;
        a.ids = NULL;
    }
    cb_chat_prompt_free(&a);
    cb_chat_prompt_free(&b);
    return rc;
}

static void drop_messages(void *messages)
{
    json_decref(messages);
}

static int read_request(struct completion *t, const json_t *r)
{
    const json_t *messages;
    const char *text = NULL, *name = NULL;

    TRY(cb_field_text(r, "text", &text));
    TRY(cb_field_text(r, "name", &name));
    TRY(cb_field_array(r, "messages", &messages));
    if (!text == !messages)
        return cb_fail(CB_EARG, "text: give a text, or messages");
    if (messages && !json_array_size(messages))
        return cb_fail(CB_EARG, "messages: must have at least one message");
    t->n = 1;
    t->streams = 0;
    t->order.max_tokens = 0;
    t->order.keep = 1;
    t->state = text ? json_pack("[{s:s, s:s}]", "role", "system", "content", text)
                    : json_copy((json_t *)(uintptr_t)messages);
    t->free_state = drop_messages;
    return t->state ? read_prompt(t, t->state) : cb_fail(CB_ENOMEM, "out of memory");
}

void cb_api_new_bank(struct exchange *x)
{
    cb_api_answer(x, &dialect, NULL, read_request);
}

/* ---- those that are there ---- */

void cb_api_banks(struct exchange *x)
{
    cb_exchange_json(x, 200,
                     json_pack("{s:s, s:o}", "object", "list", "data",
                               cb_prefix_store_list(cb_shelf_documents(x->shelf))));
}

void cb_api_delete_bank(struct exchange *x)
{
    const char *id = x->path + strlen("/v1/banks/");

    if (cb_prefix_store_remove(cb_shelf_documents(x->shelf), id))
        cb_exchange_json(x, 200,
                         json_pack("{s:s, s:s, s:b}", "id", id, "object", "bank", "deleted", 1));
    else
        cb_exchange_error(x, 404, "there is no such bank", NULL);
}
