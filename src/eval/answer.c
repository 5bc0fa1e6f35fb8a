/* SPDX-License-Identifier: MIT */
/* answer.c - answers and their scores as JSON lines. Each answer's line is written in one piece. */
#include "answer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_lenient.h"

enum { NEWEST = 64 };

uint64_t cb_hash(uint64_t h, const char *s)
{
    h = h ? h : 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u; /* a separator: "ab" + "c" differs from "a" + "bc" */
}

const char *cb_question_name(enum question q)
{
    return q == QUESTION_BLIND ? "blind" : "aware";
}

/* ---- the list ---- */

/* A copy of a text that answers share: a run has few models and policies. A file may have many, so
 * only the newest ones are compared. NULL: out of memory. */
static const char *shared(struct answers *x, const char *s)
{
    for (int i = x->n_text; i-- > 0 && i >= x->n_text - NEWEST;)
        if (!strcmp(x->text[i], s))
            return x->text[i];
    if (cb_grow_by_one(&x->text, x->n_text, sizeof *x->text) || !(x->text[x->n_text] = strdup(s)))
        return NULL;
    return x->text[x->n_text++];
}

static int share_all(struct answers *x, struct answerer *by)
{
    const char **const field[] = { &by->model, &by->policy, &by->type_k, &by->type_v,
                                   &by->prefill };

    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (!(*field[i] = shared(x, *field[i])))
            return cb_fail(CB_ENOMEM, "out of memory");
    return CB_OK;
}

static void free_answer(struct answer *a)
{
    free(a->id);
    free(a->task);
    free(a->pred);
}

static uint64_t hash_of(const struct answers *x, const struct answerer *by, const char *id,
                        uint64_t item)
{
    return (item ^ cb_siphash(&x->key, id, strlen(id))) +
           cb_siphash(&x->key, by->policy, strlen(by->policy));
}

/* The place of answer i of hash h, or the free place where it belongs */
static int *place(const struct answers *x, uint64_t h, int i)
{
    size_t at = h & x->mask;

    while (x->place[at] && x->place[at] != i + 1)
        at = (at + 1) & x->mask;
    return &x->place[at];
}

/* Room for twice as many answers, all of them in a table that stays half empty */
static int grow(struct answers *x)
{
    const int cap = x->cap ? 2 * x->cap : 256;
    struct answer *at = cb_realloc(x->at, (size_t)cap, sizeof *at);
    int *table = at ? cb_calloc((size_t)cap, 2 * sizeof *table) : NULL;

    x->at = at ? at : x->at;
    if (!table)
        return CB_ENOMEM;
    free(x->place);
    x->place = table;
    x->cap = cap;
    x->mask = 2 * (size_t)cap - 1;
    for (int i = 0; i < x->n; i++)
        *place(x, hash_of(x, &x->at[i].by, x->at[i].id, x->at[i].item), i) = i + 1;
    return CB_OK;
}

static int append(struct answers *x, const struct answer *a)
{
    struct answer c = *a;

    if (x->n == x->cap)
        TRY(grow(x));
    c.id = strdup(a->id);
    c.task = strdup(a->task);
    c.pred = strdup(a->pred);
    if (!c.id || !c.task || !c.pred || share_all(x, &c.by)) {
        free_answer(&c);
        return cb_fail(CB_ENOMEM, "out of memory");
    }
    x->at[x->n] = c;
    *place(x, hash_of(x, &c.by, c.id, c.item), x->n) = x->n + 1;
    x->n++;
    return CB_OK;
}

static int same_answerer(const struct answerer *a, const struct answerer *b)
{
    return a->question == b->question && !strcmp(a->policy, b->policy) &&
           !strcmp(a->model, b->model) && !strcmp(a->type_k, b->type_k) &&
           !strcmp(a->type_v, b->type_v) && !strcmp(a->prefill, b->prefill);
}

const struct answer *cb_answers_find(const struct answers *x, const struct answerer *by,
                                     const char *id, uint64_t item)
{
    if (!x->n)
        return NULL;
    for (size_t i = hash_of(x, by, id, item) & x->mask; x->place[i]; i = (i + 1) & x->mask) {
        const struct answer *a = &x->at[x->place[i] - 1];
        if (a->item == item && !strcmp(a->id, id) && same_answerer(&a->by, by))
            return a;
    }
    return NULL;
}

/* ---- lines ---- */

static char *to_line(const struct answer *a, const char *metric)
{
    char hash[17], *line;
    json_t *j;

    snprintf(hash, sizeof hash, "%016" PRIx64, a->item);
    j = json_pack("{s:s, s:s, s:o, s:s, s:i, s:o, s:f, s:I, s:I, s:I, s:i, s:i, s:s, s:i, s:i, "
                  "s:i, s:s, s:s, s:s, s:s, s:s}",
                  "_id", a->id, "task", a->task, "policy", cb_json_str(a->by.policy), "question",
                  cb_question_name(a->by.question), "prompt_tokens", a->prompt_tokens, "pred",
                  cb_json_str(a->pred), "score", a->score, "kv_bytes", (json_int_t)a->kv_bytes,
                  "kv_full_bytes", (json_int_t)a->kv_full_bytes, "kv_read_bytes_per_token",
                  (json_int_t)a->kv_read_bytes, "kept_min", a->kept_min, "kept_max", a->kept_max,
                  "metric", metric, "length", a->length, "depth", a->depth, "truncated",
                  a->truncated, "model", a->by.model, "type_k", a->by.type_k, "type_v",
                  a->by.type_v, "prefill", a->by.prefill, "item", hash);
    if (j && a->prompt_density > 0)
        cb_json_set(&j, "prompt_density", json_real(a->prompt_density));
    line = j ? cb_json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(8)) : NULL;
    json_decref(j);
    return line;
}

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* A whole number of min..max; *ok becomes 0 if it is none. */
static int64_t number(const json_t *o, const char *key, int64_t min, int64_t max, int *ok)
{
    const json_t *v = json_object_get(o, key);
    const json_int_t x = json_integer_value(v);

    *ok &= json_is_integer(v) && x >= min && x <= max;
    return x;
}

static int count(const json_t *o, const char *key, int *ok)
{
    return (int)number(o, key, 0, INT_MAX, ok);
}

static uint64_t bytes(const json_t *o, const char *key, int *ok)
{
    return (uint64_t)number(o, key, 0, INT64_MAX, ok);
}

/* The hash of an item as to_line() writes it; 1 = read */
static int item_hash(const char *s, uint64_t *out)
{
    char *end;

    if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
        return 0;
    *out = strtoull(s, &end, 16);
    return 1;
}

static int from_json(struct answers *x, const json_t *o)
{
    const char *question = text(o, "question");
    const json_t *score = json_object_get(o, "score");
    int ok = json_is_number(score) && question;
    struct answer a = {
        .by = { text(o, "model"), text(o, "policy"), text(o, "type_k"), text(o, "type_v"),
                text(o, "prefill"),
                question && !strcmp(question, "blind") ? QUESTION_BLIND : QUESTION_AWARE },
        .id = (char *)(uintptr_t)text(o, "_id"),
        .task = (char *)(uintptr_t)text(o, "task"),
        .pred = (char *)(uintptr_t)text(o, "pred"),
        .score = json_number_value(score),
        .length = count(o, "length", &ok),
        .depth = (int)number(o, "depth", -1, 100, &ok),
        .prompt_tokens = count(o, "prompt_tokens", &ok),
        .truncated = count(o, "truncated", &ok),
        .kv_bytes = bytes(o, "kv_bytes", &ok),
        .kv_full_bytes = bytes(o, "kv_full_bytes", &ok),
        .kv_read_bytes = bytes(o, "kv_read_bytes_per_token", &ok),
        .kept_min = count(o, "kept_min", &ok),
        .kept_max = count(o, "kept_max", &ok),
        .prompt_density = json_number_value(json_object_get(o, "prompt_density")),
    };

    if (!ok || !a.by.model || !a.by.policy || !a.by.type_k || !a.by.type_v || !a.by.prefill ||
        !a.id || !a.task || !a.pred || !(a.score >= 0 && a.score <= 1) ||
        !item_hash(text(o, "item"), &a.item))
        return CB_EFORMAT;
    return append(x, &a);
}

static int from_line(struct answers *x, const struct buf *line)
{
    json_error_t e;
    json_t *o;
    int err = cb_json_load(line->s, line->n, 0, &e, &o);

    if (err == CB_ENOMEM)
        return err;
    err = from_json(x, o);
    json_decref(o);
    return err;
}

/* ---- the file ---- */

/* What the file is, as far as it was read */
struct content {
    off_t whole; /* bytes of complete lines */
    int n_other; /* lines that are no answers */
};

/* A last line without an end. A run that was killed leaves the beginning of an answer: it is cut
 * off. Nothing else is: the file may be somebody's own. */
static int last_line(struct answers *x, const struct buf *line, const struct content *c)
{
    static const char begin[] = "{\"_id\":\"", next[] = "\",\"task\":\"";
    const int err = from_line(x, line);

    if (!err) /* complete but for its line end */
        return write(x->fd, "\n", 1) == 1 ? CB_OK
                                          : cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    if (err != CB_EFORMAT)
        return err;
    if (c->n_other || strncmp(line->s, begin, sizeof begin - 1) ||
        (!x->n && !strstr(line->s, next)))
        return cb_fail(CB_EFORMAT,
                       "%s: its last line is incomplete, and is not of this program's "
                       "answers; the file stays as it is",
                       x->path);
    return ftruncate(x->fd, c->whole) ? cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno)) : CB_OK;
}

static int read_lines(struct answers *x, FILE *f, void (*warn)(void *arg, const char *text),
                      void *arg)
{
    struct content c = { 0 };
    struct buf line = { 0 };
    char why[4300];
    int err;

    for (int i = 1; (err = cb_file_line(f, x->path, &line)) > 0; i++) {
        if (line.s[line.n - 1] != '\n') {
            err = last_line(x, &line, &c);
            break;
        }
        c.whole += (off_t)line.n;
        err = from_line(x, &line);
        if (err == CB_EFORMAT) {
            snprintf(why, sizeof why, "%s: line %d is no answer; it stays, and does not count",
                     x->path, i);
            warn(arg, why);
            c.n_other++;
        } else if (err) {
            break;
        }
    }
    cb_buf_free(&line);
    return err;
}

/* A file that is read back must have an end. */
static int check_regular(const struct answers *x)
{
    struct stat st;

    if (fstat(x->fd, &st))
        return cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    return S_ISREG(st.st_mode) ? CB_OK : cb_fail(CB_EARG, "%s: is not a regular file", x->path);
}

static int open_file(struct answers *x, void (*warn)(void *arg, const char *text), void *arg)
{
    FILE *f;
    int err;

    /* O_NONBLOCK: a FIFO would wait for its other end */
    x->fd = open(x->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (x->fd < 0)
        return cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    TRY(check_regular(x));
    if (flock(x->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return cb_fail(CB_EIO, "%s: another run writes it", x->path);
    f = fopen(x->path, "re");
    if (!f)
        return cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    err = read_lines(x, f, warn, arg);
    fclose(f);
    return err;
}

int cb_answers_open(const char *path, void (*warn)(void *arg, const char *text), void *arg,
                    struct answers *out)
{
    *out = (struct answers){ .fd = -1, .path = path, .key = cb_hash_key() };
    return path ? open_file(out, warn, arg) : CB_OK;
}

void cb_answers_close(struct answers *x)
{
    for (int i = 0; i < x->n; i++)
        free_answer(&x->at[i]);
    for (int i = 0; i < x->n_text; i++)
        free(x->text[i]);
    free(x->at);
    free(x->text);
    free(x->place);
    if (x->fd >= 0)
        close(x->fd);
    *x = (struct answers){ .fd = -1 };
}

static int write_line(const struct answers *x, char *line)
{
    const size_t n = strlen(line);
    size_t done = 0;

    line[n] = '\n'; /* in place of the NUL: one write, one line */
    while (done < n + 1) {
        const ssize_t k = write(x->fd, line + done, n + 1 - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return cb_fail(CB_EIO, "%s: %s", x->path, k < 0 ? strerror(errno) : "nothing written");
        done += (size_t)k;
    }
    return CB_OK;
}

int cb_answers_add(struct answers *x, const struct answer *a, const char *metric)
{
    char *line;
    int err;

    TRY(append(x, a));
    if (x->fd < 0)
        return CB_OK;
    line = to_line(a, metric);
    if (!line)
        return cb_json_fail("an answer");
    err = write_line(x, line);
    free(line);
    return err;
}
