/* SPDX-License-Identifier: MIT */
/* answer.c - answers and their scores as JSON lines. Each answer's line is written in one piece. */
#include "answer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"

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

/* The single copy of a text, shared by all answers; NULL: out of memory. */
static const char *shared(struct answers *x, const char *s)
{
    char **list;

    for (int i = 0; i < x->n_text; i++)
        if (!strcmp(x->text[i], s))
            return x->text[i];
    list = cb_realloc(x->text, (size_t)x->n_text + 1, sizeof *list);
    if (!list)
        return NULL;
    x->text = list;
    if (!(list[x->n_text] = strdup(s)))
        return NULL;
    return list[x->n_text++];
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

static int append(struct answers *x, const struct answer *a)
{
    struct answer c = *a;

    if (x->n == x->cap) {
        const int cap = x->cap ? 2 * x->cap : 256;
        struct answer *p = cb_realloc(x->at, (size_t)cap, sizeof *p);
        if (!p)
            return CB_ENOMEM;
        x->at = p;
        x->cap = cap;
    }
    c.id = strdup(a->id);
    c.task = strdup(a->task);
    c.pred = strdup(a->pred);
    if (!c.id || !c.task || !c.pred || share_all(x, &c.by)) {
        free_answer(&c);
        return cb_fail(CB_ENOMEM, "out of memory");
    }
    x->at[x->n++] = c;
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
    for (int i = 0; i < x->n; i++)
        if (x->at[i].item == item && !strcmp(x->at[i].id, id) && same_answerer(&x->at[i].by, by))
            return &x->at[i];
    return NULL;
}

/* ---- lines ---- */

static json_t *clean_text(const char *s)
{
    struct utf8_hold hold = { .n = 0 };
    const size_t n = strlen(s);
    char *clean = cb_calloc(n + 1, 3); /* an invalid byte becomes U+FFFD, three bytes */
    json_t *j = NULL;
    int len;

    if (clean) {
        len = cb_utf8_push(&hold, s, (int)n, clean);
        len += cb_utf8_flush(&hold, clean + len);
        j = json_stringn(clean, (size_t)len);
    }
    free(clean);
    return j;
}

static char *to_line(const struct answer *a, const char *metric)
{
    char hash[17], *line;
    json_t *j;

    snprintf(hash, sizeof hash, "%016" PRIx64, a->item);
    j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:f, s:I, s:I, s:I, s:i, s:i, s:s, s:i, s:i, "
                  "s:i, s:s, s:s, s:s, s:s, s:s}",
                  "_id", a->id, "task", a->task, "policy", a->by.policy, "question",
                  cb_question_name(a->by.question), "prompt_tokens", a->prompt_tokens, "pred",
                  clean_text(a->pred), "score", a->score, "kv_bytes", (json_int_t)a->kv_bytes,
                  "kv_full_bytes", (json_int_t)a->kv_full_bytes, "kv_read_bytes_per_token",
                  (json_int_t)a->kv_read_bytes, "kept_min", a->kept_min, "kept_max", a->kept_max,
                  "metric", metric, "length", a->length, "depth", a->depth, "truncated",
                  a->truncated, "model", a->by.model, "type_k", a->by.type_k, "type_v",
                  a->by.type_v, "prefill", a->by.prefill, "item", hash);
    line = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(8)) : NULL;
    json_decref(j);
    return line;
}

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static int number(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

static uint64_t bytes(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static int from_line(struct answers *x, const char *line)
{
    json_error_t e;
    json_t *o = json_loads(line, 0, &e);
    const char *question = text(o, "question"), *item = text(o, "item");
    const json_t *score = json_object_get(o, "score");
    const struct answer a = {
        .by = { text(o, "model"), text(o, "policy"), text(o, "type_k"), text(o, "type_v"),
                text(o, "prefill"),
                question && !strcmp(question, "blind") ? QUESTION_BLIND : QUESTION_AWARE },
        .id = (char *)(uintptr_t)text(o, "_id"),
        .task = (char *)(uintptr_t)text(o, "task"),
        .pred = (char *)(uintptr_t)text(o, "pred"),
        .item = item ? strtoull(item, NULL, 16) : 0,
        .score = json_number_value(score),
        .length = number(o, "length"),
        .depth = number(o, "depth"),
        .prompt_tokens = number(o, "prompt_tokens"),
        .truncated = number(o, "truncated"),
        .kv_bytes = bytes(o, "kv_bytes"),
        .kv_full_bytes = bytes(o, "kv_full_bytes"),
        .kv_read_bytes = bytes(o, "kv_read_bytes_per_token"),
        .kept_min = number(o, "kept_min"),
        .kept_max = number(o, "kept_max"),
    };
    int err = CB_EFORMAT;

    if (a.by.model && a.by.policy && a.by.type_k && a.by.type_v && a.by.prefill && a.id && a.task &&
        a.pred && item && json_is_number(score))
        err = append(x, &a);
    json_decref(o);
    return err;
}

/* ---- the file ---- */

static int read_lines(struct answers *x, FILE *f, off_t *whole,
                      void (*warn)(void *arg, const char *text), void *arg)
{
    char *line = NULL, why[4300];
    size_t cap = 0;
    ssize_t n;
    int err = CB_OK;

    *whole = 0;
    for (int i = 1; !err && (n = getline(&line, &cap, f)) > 0; i++) {
        if (line[n - 1] != '\n')
            break;
        *whole += n;
        err = from_line(x, line);
        if (err == CB_EFORMAT) {
            snprintf(why, sizeof why, "%s: line %d is no answer; it stays, and does not count",
                     x->path, i);
            warn(arg, why);
            err = CB_OK;
        }
    }
    free(line);
    return err;
}

static int open_file(struct answers *x, void (*warn)(void *arg, const char *text), void *arg)
{
    off_t whole;
    FILE *f;
    int err;

    x->fd = open(x->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (x->fd < 0)
        return cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    if (flock(x->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return cb_fail(CB_EIO, "%s: another run writes it", x->path);
    f = fopen(x->path, "r");
    if (!f)
        return cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    err = read_lines(x, f, &whole, warn, arg);
    fclose(f);
    if (!err && lseek(x->fd, 0, SEEK_END) > whole && ftruncate(x->fd, whole))
        err = cb_fail(CB_EIO, "%s: %s", x->path, strerror(errno));
    return err;
}

int cb_answers_open(const char *path, void (*warn)(void *arg, const char *text), void *arg,
                    struct answers *out)
{
    *out = (struct answers){ .fd = -1, .path = path };
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
        return cb_fail(CB_ENOMEM, "out of memory");
    err = write_line(x, line);
    free(line);
    return err;
}
