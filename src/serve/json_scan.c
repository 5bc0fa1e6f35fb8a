/* SPDX-License-Identifier: MIT */
/* json_scan.c - follows one JSON value as a model writes it, and mends it on the way. */
#include "json_scan.h"

#include <string.h>

enum {
    VALUE,     /* a value must come */
    FIRST,     /* a value, or the end of the list */
    FIRST_KEY, /* a key, or the end of the object */
    KEY,       /* a key after a comma */
    COLON,
    AFTER, /* a comma, or the end of what is open */
    STRING,
    QUOTED, /* a quote in a string: its end, if what follows can stand after one */
    ESCAPE,
    BARE_KEY, /* a key without quotes */
    WORD,
    NUMBER,
    ENDED,
    WRONG
};

/* Where a number stands */
enum { SIGN, ZERO, WHOLE, FIRST_POINT, POINT, PARTS, E, E_SIGN, POWER };

void cb_json_scan_open(struct json_scan *j)
{
    *j = (struct json_scan){ .at = VALUE };
}

void cb_json_scan_inside(struct json_scan *j, int depth)
{
    *j = (struct json_scan){ .at = AFTER, .depth = depth };
    memset(j->open, '{', (size_t)depth);
}

static void put(struct buf *out, const char *s, size_t n)
{
    if (out && n)
        cb_buf_add(out, s, n);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void put_gap(struct json_scan *j, struct buf *out)
{
    put(out, j->gap, (size_t)j->n_gap);
    j->n_gap = 0;
}

static void value_ended(struct json_scan *j)
{
    j->at = j->depth ? AFTER : ENDED;
}

/* ---- strings ---- */

static void put_raw(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
    const char *short_form = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : NULL;

    put(out, short_form ? short_form : text, short_form ? 2 : 6);
}

static void end_string(struct json_scan *j, struct buf *out)
{
    put(out, "\"", 1);
    if (j->is_key)
        j->at = COLON;
    else
        value_ended(j);
}

/* A byte of a text in three quotes, of which three end it */
static int in_three_quotes(struct json_scan *j, char c, struct buf *out)
{
    if (c == j->quote && ++j->n_quote < 3)
        return 1;
    if (j->n_quote == 3) {
        end_string(j, out);
        return 1;
    }
    for (; j->n_quote; j->n_quote--)
        put(out, j->quote == '"' ? "\\\"" : &j->quote, j->quote == '"' ? 2 : 1);
    return 0;
}

/* A byte after a quote in a string: a letter says that the quote is the text's own. 0: the byte
 * belongs to what follows. */
static int in_quoted(struct json_scan *j, char c, struct buf *out)
{
    if (j->empty && !j->n_gap && c == j->quote) { /* the third quote */
        j->three = 1;
        j->n_quote = 0;
        j->at = STRING;
        return 1;
    }
    if (is_blank(c) && j->n_gap < (int)sizeof j->gap) {
        j->gap[j->n_gap++] = c;
        return 1;
    }
    if (c && !strchr(",}]:/<`;)+|\"'{", c) && !memchr(j->gap, '\n', (size_t)j->n_gap)) {
        put(out, j->quote == '"' ? "\\\"" : &j->quote, j->quote == '"' ? 2 : 1);
        put_gap(j, out);
        j->at = STRING;
        return 0;
    }
    end_string(j, out);
    if (c == '"' || c == '\'') /* a comma is missing */
        put(out, ",", 1);
    put_gap(j, out);
    if (c == '"' || c == '\'')
        j->at = j->open[j->depth - 1] == '{' ? KEY : FIRST;
    return 0;
}

static void in_string(struct json_scan *j, char c, struct buf *out)
{
    if (j->three && in_three_quotes(j, c, out))
        return;
    if (c == j->quote && !j->three) {
        if (j->is_key || !j->depth)
            end_string(j, out);
        else
            j->at = QUOTED;
        return;
    }
    j->empty = 0;
    if (c == '\\') {
        j->at = ESCAPE;
        j->n_word = 0;
    } else if ((unsigned char)c < 0x20) {
        put_raw(out, (unsigned char)c);
    } else {
        put(out, "\\", c == '"'); /* in single quotes */
        put(out, &c, 1);
    }
}

static int is_hex(char c)
{
    return c && strchr("0123456789abcdefABCDEF", c) != NULL;
}

/* A byte of an escape. 0: the byte belongs to what follows. */
static int in_escape(struct json_scan *j, char c, struct buf *out)
{
    if (j->n_word) { /* \u and digits */
        if (is_hex(c)) {
            j->word[j->n_word++] = c;
            if (j->n_word < 5)
                return 1;
            put(out, "\\", 1);
        } else {
            put(out, "\\\\", 2); /* a backslash that was meant as such */
        }
        put(out, j->word, (size_t)j->n_word);
        j->at = STRING;
        return j->n_word == 5;
    }
    if (c == 'u') {
        j->word[j->n_word++] = c;
        return 1;
    }
    j->at = STRING;
    if (c == '\'') {
        put(out, &c, 1);
    } else if (c == '\n') {
        put_raw(out, '\n');
    } else if (c && strchr("\"\\/bfnrt", c)) {
        put(out, "\\", 1);
        put(out, &c, 1);
    } else {
        put(out, "\\\\", 2);
        return 0;
    }
    return 1;
}

/* ---- numbers and words ---- */

static int number_next(int at, char c)
{
    const int digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';

    switch (at) {
    case SIGN:
        return c == '0' ? ZERO : digit ? WHOLE : c == '.' ? FIRST_POINT : -1;
    case ZERO:
        return c == '.' ? POINT : e ? E : -1;
    case WHOLE:
        return digit ? WHOLE : c == '.' ? POINT : e ? E : -1;
    case FIRST_POINT:
    case POINT:
        return digit ? PARTS : -1;
    case PARTS:
        return digit ? PARTS : e ? E : -1;
    case E:
        return c == '+' || c == '-' ? E_SIGN : digit ? POWER : -1;
    default:
        return digit ? POWER : -1; /* E_SIGN, POWER */
    }
}

/* The number ends here, with what it lacks: 5. is 5.0. 0: it cannot */
static int end_number(struct json_scan *j, struct buf *out)
{
    const int at = j->number;

    if (at != ZERO && at != WHOLE && at != POINT && at != PARTS && at != POWER)
        return 0;
    put(out, "0", at == POINT);
    value_ended(j);
    return 1;
}

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The literal is complete. 0: it is none. */
static int put_word(struct json_scan *j, struct buf *out)
{
    static const char *const known[][2] = {
        { "true", "true" }, { "True", "true" }, { "false", "false" },    { "False", "false" },
        { "null", "null" }, { "None", "null" }, { "undefined", "null" }, { "NaN", "null" },
        { "nan", "null" },  { "inf", "null" },  { "Infinity", "null" },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i][0]) == (size_t)j->n_word &&
            !memcmp(known[i][0], j->word, (size_t)j->n_word)) {
            put(out, known[i][1], strlen(known[i][1]));
            value_ended(j);
            return 1;
        }
    put(out, j->word, (size_t)j->n_word);
    j->at = WRONG;
    return 0;
}

/* A byte of a number. 0: it stands after it. A sign waits for what follows: -Infinity is null. */
static int in_number(struct json_scan *j, char c, struct buf *out)
{
    const int next = number_next(j->number, c);

    if (j->number == SIGN && is_word(c)) {
        j->at = WORD;
        j->n_word = 0;
        return 0;
    }
    if (j->number == SIGN)
        put(out, "-", j->word[0] == '-');
    if (next < 0) {
        if (!end_number(j, out))
            j->at = WRONG;
        return 0;
    }
    put(out, "0", next == FIRST_POINT);
    put(out, &c, 1);
    j->number = next;
    return 1;
}

/* A byte of a number or literal. 0: it stands after it. */
static int in_word(struct json_scan *j, char c, struct buf *out)
{
    if (j->at == NUMBER)
        return in_number(j, c, out);
    if (is_word(c) && j->n_word < (int)sizeof j->word) {
        j->word[j->n_word++] = c;
        return 1;
    }
    (void)put_word(j, out);
    return 0;
}

/* A byte of a key without quotes. 0: it stands after it. */
static int in_bare_key(struct json_scan *j, char c, struct buf *out)
{
    if (is_word(c) || (c >= '0' && c <= '9') || (c && strchr("_$-", c))) {
        put(out, &c, 1);
        return 1;
    }
    put(out, "\"", 1);
    j->at = COLON;
    return 0;
}

/* ---- comments, which JSON has not ---- */

/* After a slash between values: 1: c belongs to a comment, which is dropped. */
static int in_comment(struct json_scan *j, char c)
{
    if (j->comment == '/') {
        if (c != '/' && c != '*')
            return 0;
        j->comment = c == '/' ? '\n' : '*';
        j->star = 0;
    } else if (j->comment == '\n') {
        if (c == '\n') {
            j->comment = 0;
            return 0;
        }
    } else {
        j->comment = c == '/' && j->star ? 0 : '*';
        j->star = c == '*';
    }
    return 1;
}

/* ---- structure ---- */

static void open_string(struct json_scan *j, char c, struct buf *out)
{
    put_gap(j, out);
    put(out, "\"", 1);
    j->quote = c == '\'' || c == '`' ? c : '"';
    j->empty = 1;
    j->three = 0;
    j->is_key = j->at == KEY || j->at == FIRST_KEY;
    j->at = STRING;
}

/* The first byte of a value. 0: it cannot be one. */
static int begin_value(struct json_scan *j, char c, struct buf *out)
{
    if (c == '"' || c == '\'' || c == '`') {
        open_string(j, c, out);
        return 1;
    }
    if (c == '{' || c == '[') {
        if (j->depth == JSON_SCAN_DEPTH)
            return 0;
        j->open[j->depth++] = c;
        j->at = c == '{' ? FIRST_KEY : FIRST;
    } else if (c && strchr("+-.0123456789", c)) {
        put_gap(j, out);
        j->number = SIGN;
        j->at = NUMBER;
        j->word[0] = c;
        return c == '+' || c == '-' || in_number(j, c, out);
    } else if (is_word(c)) {
        j->at = WORD;
        j->n_word = 1;
        j->word[0] = c;
        put_gap(j, out);
        return 1;
    } else {
        return 0;
    }
    put_gap(j, out);
    put(out, &c, 1);
    return 1;
}

/* c closes what is open; a comma before it is dropped. 0: it does not. */
static int close_one(struct json_scan *j, char c, struct buf *out)
{
    const char open = j->depth ? j->open[j->depth - 1] : 0;

    if (!((c == '}' && open == '{') || (c == ']' && open == '[')))
        return 0;
    if (j->n_gap)
        put(out, j->gap + 1, (size_t)j->n_gap - 1);
    j->n_gap = 0;
    put(out, &c, 1);
    j->depth--;
    value_ended(j);
    return 1;
}

/* A byte between values. 0: it cannot stand there. */
static int between(struct json_scan *j, char c, struct buf *out)
{
    if (!j->comment && c == '/') {
        j->comment = c;
        return 1;
    }
    if (j->comment && in_comment(j, c))
        return 1;
    if (j->comment) /* a slash alone */
        return 0;
    if (is_blank(c)) {
        if (j->n_gap && j->n_gap < (int)sizeof j->gap)
            j->gap[j->n_gap++] = c;
        else if (!j->n_gap)
            put(out, &c, 1);
        return 1;
    }
    switch (j->at) {
    case COLON:
        if (c != ':')
            return 0;
        put(out, &c, 1);
        j->at = VALUE;
        return 1;
    case AFTER:
        if (close_one(j, c, out))
            return 1;
        if (c == '"' || c == '\'' || (c == '{' && j->open[j->depth - 1] == '[')) {
            put(out, ", ", 2); /* a comma is missing */
            j->at = j->open[j->depth - 1] == '{' ? KEY : FIRST;
            return between(j, c, out);
        }
        if (c != ',')
            return 0;
        j->gap[j->n_gap++] = c;
        j->at = j->open[j->depth - 1] == '{' ? KEY : FIRST;
        return 1;
    case KEY:
    case FIRST_KEY:
        if (c == '{' && j->at == FIRST_KEY && j->depth == 1)
            return 1; /* {{"a": 1}}, as templates of prompts have it; } is one too many then */
        if (c != '"' && c != '\'' && !is_word(c) && c != '_' && c != '$')
            return close_one(j, c, out);
        open_string(j, c, out);
        if (j->quote != c) {
            put(out, &c, 1);
            j->at = BARE_KEY;
        }
        return 1;
    case FIRST:
        return c == ']' ? close_one(j, c, out) : begin_value(j, c, out);
    default:
        return begin_value(j, c, out);
    }
}

size_t cb_json_scan(struct json_scan *j, const char *s, size_t n, struct buf *out,
                    enum json_scan_status *status)
{
    size_t i = 0;

    while (i < n && j->at < ENDED) {
        if (j->at == STRING) {
            in_string(j, s[i++], out);
        } else if (j->at == QUOTED) {
            i += (size_t)in_quoted(j, s[i], out);
        } else if (j->at == ESCAPE) {
            i += (size_t)in_escape(j, s[i], out);
        } else if (j->at == WORD || j->at == NUMBER) {
            i += (size_t)in_word(j, s[i], out);
        } else if (j->at == BARE_KEY) {
            i += (size_t)in_bare_key(j, s[i], out);
        } else if (between(j, s[i], out)) {
            i++;
        } else {
            *status = JSON_BAD; /* it may be closed here */
            return i;
        }
    }
    *status = j->at == ENDED ? JSON_DONE : j->at == WRONG ? JSON_BAD : JSON_MORE;
    return i;
}

int cb_json_scan_close(struct json_scan *j, struct buf *out)
{
    if (j->at == QUOTED) {
        end_string(j, out);
        put_gap(j, out);
    }
    if (j->at == NUMBER)
        (void)end_number(j, out);
    if (j->at == WORD)
        (void)put_word(j, out);
    if (j->at != AFTER && j->at != KEY && j->at != FIRST && j->at != FIRST_KEY && j->at != ENDED)
        return 0;
    j->n_gap = 0; /* a comma after which nothing came */
    while (j->depth)
        put(out, j->open[--j->depth] == '{' ? "}" : "]", 1);
    j->at = ENDED;
    return 1;
}

int cb_json_mend(const char *s, size_t n, struct buf *out)
{
    enum json_scan_status status;
    struct json_scan j;
    size_t i;

    while (n && is_blank(*s)) {
        s++;
        n--;
    }
    while (n && is_blank(s[n - 1]))
        n--;
    cb_json_scan_open(&j);
    i = cb_json_scan(&j, s, n, out, &status);
    return i == n && status != JSON_BAD && cb_json_scan_close(&j, out);
}
