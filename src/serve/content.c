/* SPDX-License-Identifier: MIT */
/* content.c - the content of a message as text. */
#include "content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "notes.h"

enum { DEPTH = 8 }; /* of parts within parts */

void cb_content_free(struct content *c)
{
    cb_buf_free(&c->text);
    cb_buf_free(&c->thought);
}

json_t *cb_content_json(const struct buf *b)
{
    json_t *j = b->failed ? NULL : json_stringn(b->n ? b->s : "", b->n);

    if (!j)
        cb_fail(CB_ENOMEM, "out of memory");
    return j;
}

static void put(struct buf *to, const char *s, size_t n)
{
    if (to->n && n)
        cb_buf_text(to, "\n");
    cb_buf_add(to, s, n);
}

static void put_json(struct buf *to, const json_t *text)
{
    put(to, json_string_value(text), json_string_length(text));
}

/* What is no text: said in its place */
static int put_word(const char *word, const char *where, const char *type, json_t **ignored,
                    struct content *out)
{
    char text[96];

    snprintf(text, sizeof text, "[%.40s: not shown, only text is read]", word);
    put(&out->text, text, strlen(text));
    return cb_note(ignored, "%s: %.40s", where, type);
}

static int add(const json_t *content, const char *where, json_t **ignored, struct content *out,
               int depth);

/* A document (Anthropic): its text, if it has one */
static int add_document(const json_t *part, const char *where, json_t **ignored,
                        struct content *out, int depth)
{
    const json_t *source = json_object_get(part, "source");
    const char *type = json_string_value(json_object_get(source, "type"));

    if (json_is_string(json_object_get(part, "title")))
        put_json(&out->text, json_object_get(part, "title"));
    if (type && !strcmp(type, "text") && json_is_string(json_object_get(source, "data"))) {
        put_json(&out->text, json_object_get(source, "data"));
        return CB_OK;
    }
    if (json_object_get(source, "content"))
        return add(json_object_get(source, "content"), where, ignored, out, depth);
    return put_word("document", where, "document", ignored, out);
}

/* The word for a part that is no text */
static const char *word_of(const char *type)
{
    static const char *const words[] = { "image", "audio", "video", "file", "document" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(type, words[i]))
            return words[i];
    return type;
}

static int is_thought(const char *type)
{
    return !strcmp(type, "thinking") || !strcmp(type, "reasoning") ||
           !strcmp(type, "reasoning_text") || !strcmp(type, "summary_text");
}

/* A value that is no text and no part, such as what a tool returned: as JSON */
static int put_value(const json_t *v, struct content *out)
{
    char *s = cb_json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    if (!s)
        return cb_fail(CB_ENOMEM, "out of memory");
    put(&out->text, s, strlen(s));
    free(s);
    return CB_OK;
}

/* The text of a part, under the keys that clients have for it; {"value": text} is one too. */
static const json_t *text_of(const json_t *part, const char *type)
{
    static const char *const texts[] = { "text", "refusal", "thinking", "reasoning", "content" };
    const int n = type && strstr(type, "text") ? 5 : 4;

    for (int i = 0; i < n; i++) {
        const json_t *text = json_object_get(part, texts[i]);
        if (json_is_object(text))
            text = json_object_get(text, "value");
        if (json_is_string(text) || json_is_number(text))
            return text;
    }
    return NULL;
}

static int add_part(const json_t *part, const char *where, json_t **ignored, struct content *out,
                    int depth)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = text_of(part, type);

    if (json_is_string(part)) {
        put_json(&out->text, part);
        return CB_OK;
    }
    if (json_is_array(part))
        return add(part, where, ignored, out, depth + 1);
    if (!json_is_object(part) || (!type && !text && json_object_size(part)))
        return put_value(part, out);
    type = type ? type : "text";
    if (!strcmp(type, "redacted_thinking"))
        return cb_note(ignored, "%s: %s", where, type);
    if (!strcmp(type, "document"))
        return add_document(part, where, ignored, out, depth + 1);
    if (!strcmp(type, "search_result")) {
        put_json(&out->text, json_object_get(part, "title"));
        return add(json_object_get(part, "content"), where, ignored, out, depth + 1);
    }
    if (json_is_number(text))
        return put_value(text, out);
    if (!text && (strstr(type, "text") || is_thought(type)))
        return CB_OK; /* an empty one */
    if (!text)
        return put_word(word_of(type), where, type, ignored, out);
    if (is_thought(type))
        put_json(&out->thought, text);
    else
        put_json(&out->text, text);
    return CB_OK;
}

static int add(const json_t *content, const char *where, json_t **ignored, struct content *out,
               int depth)
{
    char place[96];
    const json_t *part;
    size_t i;

    if (depth > DEPTH)
        return cb_fail(CB_EARG, "%s: parts within parts within parts", where);
    if (!content || json_is_null(content))
        return CB_OK;
    if (!json_is_array(content))
        return add_part(content, where, ignored, out, depth);
    json_array_foreach(content, i, part)
    {
        snprintf(place, sizeof place, "%.64s[%zu]", where, i);
        if (!json_is_null(part))
            TRY(add_part(part, place, ignored, out, depth));
    }
    return out->text.failed || out->thought.failed ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}

int cb_content_add_part(const json_t *part, const char *where, json_t **ignored,
                        struct content *out)
{
    if (!json_is_null(part))
        TRY(add_part(part, where, ignored, out, 0));
    return out->text.failed || out->thought.failed ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}

int cb_content_add(const json_t *content, const char *where, json_t **ignored, struct content *out)
{
    TRY(add(content, where, ignored, out, 0));
    return out->text.failed || out->thought.failed ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}
