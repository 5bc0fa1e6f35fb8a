/* SPDX-License-Identifier: MIT */
/* token_history.c - remembers which tokens the last conversations were made of. */
#include "token_history.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct entry {
    char *text; /* NULL = none */
    size_t n_text;
    int32_t *ids;
    int n_ids;
};

struct completion_text {
    char *id, *text;
};

struct token_history {
    pthread_mutex_t lock;
    int n;
    struct entry *at;             /* [n] a ring */
    struct completion_text *call; /* [n] a ring */
    int next, next_call;
    size_t most, bytes, call_bytes;
};

int cb_token_history_new(int n, size_t most_bytes, struct token_history **out)
{
    struct token_history *t = cb_calloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return CB_ENOMEM;
    t->n = n;
    t->most = most_bytes;
    pthread_mutex_init(&t->lock, NULL);
    t->at = cb_calloc((size_t)n, sizeof *t->at);
    t->call = cb_calloc((size_t)n, sizeof *t->call);
    if (!t->at || !t->call) {
        cb_token_history_free(t);
        return CB_ENOMEM;
    }
    *out = t;
    return CB_OK;
}

static void free_entry(struct entry *e)
{
    free(e->text);
    free(e->ids);
}

static size_t bytes_of(const struct entry *e)
{
    return e->text ? e->n_text + (size_t)e->n_ids * sizeof *e->ids : 0;
}

static size_t bytes_of_call(const struct completion_text *c)
{
    return c->id && c->text ? strlen(c->id) + strlen(c->text) : 0;
}

/* Forgets the oldest until there is room for this many bytes more. */
static void make_room(struct token_history *t, size_t bytes)
{
    for (int i = 1; i <= t->n && bytes > t->most - t->bytes; i++) {
        struct entry *e = &t->at[(t->next + i) % t->n];
        t->bytes -= bytes_of(e);
        free_entry(e);
        *e = (struct entry){ .text = NULL };
    }
}

static void make_room_for_call(struct token_history *t, size_t bytes)
{
    for (int i = 1; i <= t->n && bytes > t->most - t->call_bytes; i++) {
        struct completion_text *c = &t->call[(t->next_call + i) % t->n];
        t->call_bytes -= bytes_of_call(c);
        free(c->id);
        free(c->text);
        *c = (struct completion_text){ NULL, NULL };
    }
}

void cb_token_history_free(struct token_history *t)
{
    if (!t)
        return;
    for (int i = 0; t->at && i < t->n; i++)
        free_entry(&t->at[i]);
    for (int i = 0; t->call && i < t->n; i++) {
        free(t->call[i].id);
        free(t->call[i].text);
    }
    free(t->at);
    free(t->call);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int begins_with(const char *s, size_t n, const struct entry *e)
{
    return e->text && e->n_text <= n && !memcmp(s, e->text, e->n_text);
}

/* The place for a new entry: a conversation's earlier turn, else the oldest */
static struct entry *place(struct token_history *t, const struct entry *e)
{
    for (int i = 0; i < t->n; i++)
        if (begins_with(e->text, e->n_text, &t->at[i]))
            return &t->at[i];
    t->next = (t->next + 1) % t->n;
    return &t->at[t->next];
}

void cb_token_history_note(struct token_history *t, const char *text, size_t n_text,
                           const int32_t *ids, int n_ids)
{
    struct entry e = { .n_text = n_text, .n_ids = n_ids }, *at;

    if (n_text + (size_t)n_ids * sizeof *ids > t->most / 4)
        return;
    e.text = malloc(n_text + 1);
    e.ids = cb_calloc((size_t)n_ids, sizeof *e.ids);
    if (!e.text || !e.ids || !n_text) {
        free_entry(&e);
        return;
    }
    memcpy(e.text, text, n_text);
    memcpy(e.ids, ids, (size_t)n_ids * sizeof *ids);
    pthread_mutex_lock(&t->lock);
    at = place(t, &e);
    t->bytes -= bytes_of(at);
    free_entry(at);
    *at = (struct entry){ .text = NULL };
    make_room(t, bytes_of(&e));
    t->bytes += bytes_of(&e);
    *at = e;
    pthread_mutex_unlock(&t->lock);
}

size_t cb_token_history_find(struct token_history *t, const char *text, size_t n_text,
                             int32_t **ids, int *n_ids)
{
    const struct entry *best = NULL;
    size_t n = 0;

    *ids = NULL;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n; i++)
        if (begins_with(text, n_text, &t->at[i]) && (!best || t->at[i].n_text > best->n_text))
            best = &t->at[i];
    if (best && (*ids = cb_calloc((size_t)best->n_ids, sizeof **ids))) {
        memcpy(*ids, best->ids, (size_t)best->n_ids * sizeof **ids);
        *n_ids = best->n_ids;
        n = best->n_text;
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

void cb_token_history_note_call(struct token_history *t, const char *id, const char *text)
{
    struct completion_text new = { strdup(id), strdup(text) }, old = new;
    const size_t bytes = bytes_of_call(&new);

    if (bytes && bytes <= t->most / 4) {
        pthread_mutex_lock(&t->lock);
        t->next_call = (t->next_call + 1) % t->n;
        old = t->call[t->next_call];
        t->call[t->next_call] = (struct completion_text){ NULL, NULL };
        t->call_bytes -= bytes_of_call(&old);
        make_room_for_call(t, bytes);
        t->call[t->next_call] = new;
        t->call_bytes += bytes;
        pthread_mutex_unlock(&t->lock);
    }
    free(old.id);
    free(old.text);
}

int cb_token_history_call(struct token_history *t, const char *id, char **text)
{
    int known = 0;

    *text = NULL;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n && !known; i++) {
        known = t->call[i].id && !strcmp(t->call[i].id, id);
        if (known)
            *text = strdup(t->call[i].text);
    }
    pthread_mutex_unlock(&t->lock);
    return known && !*text ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}
