/* SPDX-License-Identifier: MIT */
/* prefix_store.c - documents that clients have put up front. */
#include "prefix_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "exchange.h"

struct entry {
    char id[CB_DOCUMENT_ID];
    json_t *messages, *name; /* name: a text, or null */
    int n_tokens;
    size_t bytes; /* of the messages */
    time_t created;
};

struct prefix_store {
    pthread_mutex_t lock;
    size_t most, bytes; /* of all messages */
    int n;
    struct entry at[CB_PREFIX_STORE_MOST];
};

int cb_prefix_store_new(size_t most_bytes, struct prefix_store **out)
{
    *out = cb_calloc(1, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    (*out)->most = most_bytes;
    pthread_mutex_init(&(*out)->lock, NULL);
    return CB_OK;
}

static void drop(const struct entry *e)
{
    json_decref(e->messages);
    json_decref(e->name);
}

void cb_prefix_store_free(struct prefix_store *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n; i++)
        drop(&b->at[i]);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static int prefix_at(const struct prefix_store *b, const char *id)
{
    for (int i = 0; i < b->n; i++)
        if (!strcmp(b->at[i].id, id))
            return i;
    return -1;
}

/* Bytes of memory of a value; 0: memory ran out */
static size_t bytes_of(const json_t *j)
{
    char *text = cb_json_dumps(j, JSON_COMPACT);
    const size_t bytes = text ? cb_json_cost(text, strlen(text)) : 0;

    free(text);
    return bytes;
}

int cb_prefix_store_add(struct prefix_store *b, const json_t *messages, const char *name,
                        int n_tokens, char *id)
{
    struct entry e = { .messages = cb_json_deep_copy(messages),
                       .name = name ? cb_json_str(name) : json_null(),
                       .n_tokens = n_tokens,
                       .bytes = bytes_of(messages),
                       .created = time(NULL) };
    struct id_source ids;
    int many, added, rc = cb_ids_open(&ids);

    if (!e.messages || !e.name || !e.bytes)
        rc = cb_fail(CB_ENOMEM, "out of memory");
    if (rc) {
        drop(&e);
        return rc;
    }
    cb_next_id(&ids, "bank_", e.id, sizeof e.id);
    memcpy(id, e.id, sizeof e.id);
    pthread_mutex_lock(&b->lock);
    many = b->n == CB_PREFIX_STORE_MOST;
    added = !many && e.bytes <= b->most - b->bytes;
    if (added) {
        b->at[b->n++] = e;
        b->bytes += e.bytes;
    }
    pthread_mutex_unlock(&b->lock);
    if (added)
        return CB_OK;
    drop(&e);
    if (many)
        return cb_fail(CB_EARG, "banks: there are %d already; delete one", CB_PREFIX_STORE_MOST);
    return cb_fail(CB_EARG, "banks: their messages would take more than %zu bytes; delete one",
                   b->most);
}

json_t *cb_prefix_store_messages(struct prefix_store *b, const char *id)
{
    json_t *copy = NULL;
    int i;

    pthread_mutex_lock(&b->lock);
    i = prefix_at(b, id);
    if (i >= 0)
        copy = cb_json_deep_copy(b->at[i].messages);
    pthread_mutex_unlock(&b->lock);
    return copy;
}

size_t cb_prefix_store_cost(struct prefix_store *b, const char *id)
{
    enum { READ = 8 }; /* copies of its values, and tokens */
    size_t bytes = 0;
    int i;

    pthread_mutex_lock(&b->lock);
    i = prefix_at(b, id);
    if (i >= 0)
        bytes = READ * b->at[i].bytes;
    pthread_mutex_unlock(&b->lock);
    return bytes;
}

json_t *cb_prefix_store_list(struct prefix_store *b)
{
    json_t *list = json_array();

    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < b->n; i++)
        cb_json_add(&list, json_pack("{s:s, s:s, s:O, s:I, s:i}", "id", b->at[i].id, "object",
                                     "bank", "name", b->at[i].name, "created",
                                     (json_int_t)b->at[i].created, "tokens", b->at[i].n_tokens));
    pthread_mutex_unlock(&b->lock);
    return list;
}

int cb_prefix_store_remove(struct prefix_store *b, const char *id)
{
    struct entry old = { 0 };
    int i;

    pthread_mutex_lock(&b->lock);
    i = prefix_at(b, id);
    if (i >= 0) {
        old = b->at[i];
        b->at[i] = b->at[--b->n];
        b->bytes -= old.bytes;
    }
    pthread_mutex_unlock(&b->lock);
    drop(&old);
    return i >= 0;
}
