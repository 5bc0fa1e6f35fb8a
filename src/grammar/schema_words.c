/* SPDX-License-Identifier: MIT */
/* schema_words.c - keywords and types of a JSON schema, and messages that say where it is. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/words.h"
#include "decimal.h"
#include "schema.h"

/* ---- messages ---- */

static size_t index_of(const struct sval *v)
{
    size_t i = 0;

    for (const struct sval *m = v->up->first; m && m != v; m = m->next)
        i++;
    return i;
}

static void write_where(const struct sval *at, struct buf *b)
{
    if (!at || !at->up) {
        cb_buf_text(b, "#");
        return;
    }
    write_where(at->up, b);
    if (at->key)
        cb_buf_print(b, "/%.40s", at->key);
    else
        cb_buf_print(b, "/%zu", index_of(at));
}

int cb_schema_fail(const struct schema *s, int status, const struct sval *at, const char *fmt, ...)
{
    struct buf b = { 0 };
    char why[200];
    va_list ap;
    int rc;

    (void)s;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    write_where(at && at->same ? at->same : at, &b);
    rc = cb_fail(status, "schema: %.300s: %s", b.s ? b.s : "#", why);
    cb_buf_free(&b);
    return rc;
}

enum { MOST_NOTES = 2000 };

void cb_schema_note(const struct schema *s, const struct sval *at, const char *fmt, ...)
{
    char why[200];
    va_list ap;

    if (s->r->notes.n > MOST_NOTES)
        return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    write_where(at && at->same ? at->same : at, &s->r->notes);
    cb_buf_print(&s->r->notes, ": %s\n", why);
}

/* ---- keywords ---- */

static const struct {
    int kind;
    const char *names; /* each between two blanks */
} keywords[] = {
    { KW_NOTE,
      " title description default examples example $schema $id id $anchor $comment $defs "
      "definitions $vocabulary $dynamicAnchor $recursiveAnchor deprecated readOnly writeOnly "
      "contentMediaType contentEncoding "
      "contentSchema discriminator xml externalDocs markdownDescription enumDescriptions "
      "markdownEnumDescriptions enumNames defaultSnippets errorMessage deprecationMessage "
      "doNotSuggest suggestSortText tsType tsEnumNames propertyOrder order group label placeholder "
      "unit units hint widget strict optional minContains maxContains " },
    { KW_TYPE, " type " },
    { KW_VALUES, " enum const " },
    { KW_ANYOF, " anyOf " },
    { KW_ONEOF, " oneOf " },
    { KW_ALLOF, " allOf " },
    { KW_REF, " $ref $dynamicRef $recursiveRef " },
    { KW_NOT, " not " },
    { KW_IF, " if then else " },
    { KW_DEPEND, " dependentRequired dependentSchemas dependencies " },
    { KW_NULLABLE, " nullable " },
    { KW_OBJECT, " properties required additionalProperties propertyNames patternProperties "
                 "minProperties maxProperties unevaluatedProperties " },
    { KW_ARRAY, " items prefixItems additionalItems minItems maxItems uniqueItems contains "
                "unevaluatedItems " },
    { KW_STRING, " minLength maxLength pattern " },
    { KW_FORMAT, " format " },
    { KW_NUMBER, " minimum maximum exclusiveMinimum exclusiveMaximum multipleOf " },
    { KW_REFUSED, " extends disallow divisibleBy " },
};

int cb_schema_keyword(const char *name)
{
    char word[40];
    const int n = snprintf(word, sizeof word, " %s ", name);

    if (cb_begins(name, "x-"))
        return KW_NOTE;
    for (size_t i = 0; n < (int)sizeof word && i < sizeof keywords / sizeof *keywords; i++)
        if (!strchr(name, ' ') && strstr(keywords[i].names, word))
            return keywords[i].kind;
    return KW_UNKNOWN;
}

struct sval *cb_schema_get(const struct schema *s, const struct sval *v, const char *name)
{
    struct sval *m = cb_sdoc_get(&s->doc, v, name, strlen(name));

    return m && m->kind == SVAL_NULL ? NULL : m;
}

/* ---- types ---- */

static const struct {
    const char *name;
    int type;
} types[] = {
    { "object", T_OBJECT },
    { "array", T_ARRAY },
    { "string", T_STRING },
    { "number", T_NUMBER },
    { "boolean", T_BOOLEAN },
    { "null", T_NULL },
    { "integer", T_INTEGER },
    /* not of the standard, but written, and plain */
    { "int", T_INTEGER },
    { "long", T_INTEGER },
    { "bigint", T_INTEGER },
    { "float", T_NUMBER },
    { "double", T_NUMBER },
    { "str", T_STRING },
    { "str", T_STRING },
    { "bool", T_BOOLEAN },
    { "list", T_ARRAY },
    { "dict", T_OBJECT },
    { "map", T_OBJECT },
    { "none", T_NULL },
    { "any", T_ALL },
};
enum { N_TYPE = sizeof types / sizeof *types };

static int type_named(const struct schema *s, const struct sval *name, const struct sval *at,
                      int *type)
{
    for (int i = 0; name->kind == SVAL_STRING && i < N_TYPE; i++)
        if (!strcasecmp(types[i].name, name->s)) { /* Gemini's are in capitals */
            *type |= types[i].type;
            return CB_OK;
        }
    return cb_schema_fail(s, CB_EARG, at, "'type' %.40s is not known",
                          name->kind == SVAL_STRING ? name->s : "that is no text");
}

/* The types that v's "type" names; T_ALL without one */
int cb_schema_types(struct schema *s, struct sval *v, int *out)
{
    const struct sval *type = cb_schema_get(s, v, "type");

    *out = type ? 0 : T_ALL;
    if (type && type->kind != SVAL_ARRAY)
        return type_named(s, type, v, out);
    for (const struct sval *m = type ? type->first : NULL; m; m = m->next)
        TRY(type_named(s, m, v, out));
    return CB_OK;
}

int cb_schema_type_of(const struct sval *value)
{
    struct decimal d;

    switch (value->kind) {
    case SVAL_NULL:
        return T_NULL;
    case SVAL_FALSE:
    case SVAL_TRUE:
        return T_BOOLEAN;
    case SVAL_STRING:
        return T_STRING;
    case SVAL_ARRAY:
        return T_ARRAY;
    case SVAL_OBJECT:
        return T_OBJECT;
    default:
        return cb_decimal_read(value->s, &d) && !cb_decimal_is_whole(&d) ? T_FRACTION : T_INTEGER;
    }
}
