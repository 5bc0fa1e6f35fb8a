/* SPDX-License-Identifier: MIT */
/* schema_set.c - sets of schemas that must fit at once: $ref and allOf add their members. */
#include <stdlib.h>
#include <string.h>

#include "readers.h"
#include "schema.h"

/* Room for what is known of value `id` */
static int know(struct schema *s, int32_t id)
{
    const size_t had = s->cap_known;

    TRY(cb_budget_grow(s->budget, (void **)&s->known, &s->cap_known, (size_t)id + 1,
                       sizeof *s->known));
    if (s->cap_known > had)
        memset(s->known + had, 0, (s->cap_known - had) * sizeof *s->known);
    return CB_OK;
}

int cb_schema_kinds(struct schema *s, struct sval *v, int *kinds)
{
    v = v->same ? v->same : v;
    TRY(know(s, v->id));
    *kinds = s->known[v->id].kinds;
    if (*kinds)
        return CB_OK;
    *kinds = KW_NOTE;
    TRY(cb_budget_steps(s->budget, v->n));
    for (const struct sval *m = v->first; m; m = m->next) {
        const int kind = cb_schema_keyword(m->key);
        if (m->kind == SVAL_NULL && strcmp(m->key, "const") != 0)
            continue;
        if (kind == KW_REFUSED)
            return cb_schema_fail(s, CB_EUNSUPPORTED, v, "'%.60s' is not supported", m->key);
        if (kind == KW_UNKNOWN)
            cb_schema_note(s, v, "'%.60s' is not a known keyword; it was not applied", m->key);
        *kinds |= kind == KW_UNKNOWN ? KW_NOTE : kind;
    }
    if (*kinds & KW_NULLABLE) {
        const struct sval *nullable = cb_schema_get(s, v, "nullable");
        *kinds &= nullable->kind == SVAL_TRUE ? ~0 : ~KW_NULLABLE;
    }
    s->known[v->id].kinds = *kinds;
    return CB_OK;
}

/* ---- sets ---- */

struct sval *cb_schema_set_at(const struct schema *s, const struct schema_set *c, size_t i)
{
    return s->doc.val[c->m[i].id];
}

void cb_schema_set_begin(struct schema *s, struct schema_set *c)
{
    *c = (struct schema_set){ .serial = ++s->serial };
}

void cb_schema_set_free(struct schema *s, struct schema_set *c)
{
    cb_budget_bytes(s->budget, c->cap * sizeof *c->m, 0);
    free(c->m);
    *c = (struct schema_set){ 0 };
}

static int ascending(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->done < y->done ? -1 : x->done > y->done;
}

void cb_schema_set_close(struct schema *s, struct schema_set *c)
{
    size_t n = 0;

    (void)s;
    if (c->n > 1)
        qsort(c->m, c->n, sizeof *c->m, ascending);
    for (size_t i = 0; i < c->n; i++)
        if (!n || ascending(&c->m[n - 1], &c->m[i]))
            c->m[n++] = c->m[i];
    c->n = n;
}

int cb_schema_set_put(struct schema *s, struct schema_set *c, struct member m)
{
    int kinds;

    TRY(cb_schema_kinds(s, s->doc.val[m.id], &kinds));
    if (!(kinds & ~m.done & ~(KW_NOTE | KW_REF | KW_ALLOF)))
        return CB_OK;
    m.done &= kinds;
    TRY(cb_budget_grow(s->budget, (void **)&c->m, &c->cap, c->n + 1, sizeof *c->m));
    c->m[c->n++] = m;
    return CB_OK;
}

static int add(struct schema *s, struct schema_set *c, struct sval *v, int depth);

/* What v says beside the keywords in `done` */
static int add_parts(struct schema *s, struct schema_set *c, struct sval *v, int done, int depth)
{
    struct sval *all, *to;
    int kinds;

    TRY(cb_schema_kinds(s, v, &kinds));
    if (kinds & KW_NULLABLE & ~done) /* null fits whatever else it says */
        return cb_schema_set_put(s, c, (struct member){ v->id, done });
    if (kinds & KW_REF) {
        TRY(cb_schema_target(s, v, &to));
        TRY(add(s, c, to, depth + 1));
    }
    all = kinds & KW_ALLOF ? cb_schema_get(s, v, "allOf") : NULL;
    if (all && (all->kind != SVAL_ARRAY || !all->n))
        return cb_schema_fail(s, CB_EARG, v, "'allOf' must be a list of schemas");
    for (struct sval *m = all ? all->first : NULL; m; m = m->next)
        TRY(add(s, c, m, depth + 1));
    return cb_schema_set_put(s, c, (struct member){ v->id, done });
}

static int add(struct schema *s, struct schema_set *c, struct sval *v, int depth)
{
    v = v->same ? v->same : v;
    if (v->kind == SVAL_FALSE)
        c->never = 1;
    if (v->kind == SVAL_FALSE || v->kind == SVAL_TRUE)
        return CB_OK;
    if (v->kind != SVAL_OBJECT)
        return cb_schema_fail(s, CB_EARG, v, "a schema is an object, true or false");
    if (depth > GRAMMAR_MAX_DEPTH)
        return cb_schema_fail(s, CB_EUNSUPPORTED, v, "nested deeper than %d", GRAMMAR_MAX_DEPTH);
    TRY(cb_budget_steps(s->budget, 1));
    TRY(know(s, v->id));
    if (s->known[v->id].mark == 2 * c->serial + 1)
        return CB_OK;
    if (s->known[v->id].mark == 2 * c->serial)
        return cb_schema_fail(s, CB_EARG, v, "'$ref' leads to itself");
    s->known[v->id].mark = 2 * c->serial;
    TRY(add_parts(s, c, v, 0, depth));
    s->known[v->id].mark = 2 * c->serial + 1;
    return CB_OK;
}

int cb_schema_set_add(struct schema *s, struct schema_set *c, struct sval *v)
{
    return add(s, c, v, 0);
}

int cb_schema_set_again(struct schema *s, struct schema_set *c, struct member m, int done)
{
    struct sval *v = s->doc.val[m.id];

    if (done & KW_NULLABLE) /* its $ref and allOf were left out before */
        return add_parts(s, c, v, m.done | done, 0);
    return cb_schema_set_put(s, c, (struct member){ m.id, m.done | done });
}

/* ---- $ref ---- */

/* One step of a JSON pointer, s[len] with ~0 ~1 and %XX, from j; NULL: there is none such */
static struct sval *step(const struct schema *s, struct sval *j, const char *text, size_t len,
                         struct buf *key)
{
    cb_buf_clear(key);
    for (size_t i = 0; i < len; i++) {
        uint32_t c = (uint8_t)text[i];
        char byte;
        if (c == '~' && i + 1 < len && (text[i + 1] == '0' || text[i + 1] == '1'))
            c = text[++i] == '0' ? '~' : '/';
        else if (c == '%' && cb_read_hex(text + i + 1, len - i - 1, 2, &c))
            i += 2;
        byte = (char)c;
        cb_buf_add(key, &byte, 1);
    }
    cb_buf_add(key, "", 0);
    if (key->failed)
        return NULL;
    if (j->kind == SVAL_ARRAY) {
        char *end;
        unsigned long i = strtoul(key->s, &end, 10);
        struct sval *m = j->first;
        if (*end || end == key->s || i >= j->n)
            return NULL;
        for (; i > 0; i--)
            m = m->next;
        return m;
    }
    return cb_sdoc_get(&s->doc, j, key->s, key->n);
}

/* The place that pointer p, from its first / on, has within `from` */
static struct sval *pointed(const struct schema *s, struct sval *from, const char *p)
{
    struct buf key = { 0 };

    while (from && *p == '/') {
        const size_t len = strcspn(++p, "/");
        from = step(s, from, p, len, &key);
        p += len;
    }
    cb_buf_free(&key);
    return from;
}

/* 1: v's keyword `name` is the text t[n] */
static int says(const struct schema *s, const struct sval *v, const char *name, const char *t,
                size_t n)
{
    const struct sval *id = cb_sdoc_get(&s->doc, v, name, strlen(name));

    return id && id->kind == SVAL_STRING && id->n == n && !memcmp(id->s, t, n);
}

/* The schema that is named t[n] by $id or id, or by $anchor; NULL: none */
static struct sval *named(struct schema *s, const char *t, size_t n, int anchor)
{
    if (!n || cb_budget_steps(s->budget, s->doc.n_val / 8))
        return NULL;
    for (size_t i = 0; i < s->doc.n_val; i++) {
        struct sval *v = s->doc.val[i];
        if (v->kind != SVAL_OBJECT || v->same)
            continue;
        if (anchor ? says(s, v, "$anchor", t, n) || says(s, v, "$dynamicAnchor", t, n)
                   : says(s, v, "$id", t, n) || says(s, v, "id", t, n))
            return v;
    }
    return NULL;
}

/* The schemas around v, from that of its own $id outwards, and at last the whole document, may be
 * what # means; a schema that was put into another one keeps its own # so. */
static struct sval *pointed_from(const struct schema *s, struct sval *v, const char *p)
{
    struct sval *found, *top = v, *u;

    for (u = v; u; u = u->up) {
        top = u;
        if (u->kind == SVAL_OBJECT && cb_sdoc_get(&s->doc, u, "$id", 3) &&
            (found = pointed(s, u, p)) != NULL)
            return found;
    }
    found = pointed(s, top, p);
    for (u = v; !found && u; u = u->up)
        found = pointed(s, u, p);
    return found;
}

int cb_schema_target(struct schema *s, struct sval *v, struct sval **out)
{
    static const char *const names[] = { "$ref", "$dynamicRef", "$recursiveRef" };
    const struct sval *ref = NULL;
    const char *p, *hash;

    for (int i = 0; i < 3 && !ref; i++) /* in one document, a dynamic one is like any other */
        ref = cb_schema_get(s, v, names[i]);
    if (ref->kind != SVAL_STRING)
        return cb_schema_fail(s, CB_EARG, v, "'$ref' must be a text");
    p = ref->s;
    hash = strchr(p, '#');
    if (*p != '#') {
        struct sval *whole = named(s, p, strlen(p), 0);
        struct sval *base = whole ? whole : hash ? named(s, p, (size_t)(hash - p), 0) : NULL;
        if (!base)
            return cb_schema_fail(s, CB_EUNSUPPORTED, v,
                                  "'$ref' to %.60s: only places of this schema, as #/$defs/name",
                                  p);
        *out = whole ? whole : pointed(s, base, hash + 1);
    } else if (p[1] && p[1] != '/') {
        *out = named(s, p + 1, strlen(p + 1), 1);
        if (!*out)
            *out = named(s, p, strlen(p), 0); /* "$id": "#name", as older drafts had it */
    } else {
        *out = pointed_from(s, v, p + 1);
    }
    return *out ? CB_OK : cb_schema_fail(s, CB_EARG, v, "'$ref': there is no %.60s", p);
}
