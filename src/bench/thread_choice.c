/* SPDX-License-Identifier: MIT */
/* thread_choice.c - chooses numbers of threads by their speeds, which are measured in turn, or read
 * from a file that an earlier run left. */
#include "thread_choice.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "base/new_file.h"
#include "base/siphash.h"

enum { ROUNDS = 3, FILE_MOST = 1 << 16, VERSION = 1 };

static const double round_s = 0.015, /* of each kind */
    quota_s = 0.15,  /* longer than a quota's period, which is 0.1 s nearly everywhere */
    gain = 1.03,     /* more threads must be this much faster */
    most_taken = 25, /* times a second; a quiet machine takes processors a few times */
    unsteady = 0.8;  /* second best round / best one, below which others were computing */

/* ---- choosing ---- */

static double speed_of(const struct thread_choice *c, int i, int is_prompt)
{
    return is_prompt ? c->speed[i].prompt : c->speed[i].token;
}

/* The fewest threads that are nearly as fast as any */
static int fastest(const struct thread_choice *c, int is_prompt)
{
    double best = 0;
    int i = 0;

    for (int k = 0; k < c->n; k++)
        best = speed_of(c, k, is_prompt) > best ? speed_of(c, k, is_prompt) : best;
    while (i + 1 < c->n && speed_of(c, i, is_prompt) * gain < best)
        i++;
    return c->count[i];
}

static void choose(struct thread_choice *c)
{
    c->token = fastest(c, 0);
    c->prompt = fastest(c, 1);
}

/* ---- measuring ---- */

struct best_two {
    double first, second;
};

static void note(struct best_two *b, double x)
{
    if (x > b->first) {
        b->second = b->first;
        b->first = x;
    } else if (x > b->second) {
        b->second = x;
    }
}

/* Times that others took a processor from one of the process's threads */
static long taken(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) ? 0 : u.ru_nivcsw;
}

static int is_steady(const struct best_two *b)
{
    return b->second >= unsteady * b->first;
}

/* Rounds go through the numbers in turn, so that a busy moment meets all of them. A quota is used
 * up by whoever computes first: there each number gets one long round. */
static int measure(const struct thread_counts *c, thread_timer timer, void *arg,
                   struct thread_choice *out)
{
    const int rounds = c->quota > 0 ? 1 : ROUNDS;
    struct best_two token[CB_THREAD_COUNTS] = { { 0 } }, prompt[CB_THREAD_COUNTS] = { { 0 } };
    const double start = cb_now_s();
    const long before = taken();
    int steady = 1;

    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < c->n; i++) {
            struct thread_speed s;
            TRY(timer(arg, c->count[i], c->quota > 0 ? quota_s : round_s, &s));
            note(&token[i], s.token);
            note(&prompt[i], s.prompt);
        }
    if (rounds > 1 && (double)(taken() - before) > most_taken * (cb_now_s() - start) + 4)
        steady = 0;
    out->n = c->n;
    memcpy(out->count, c->count, sizeof c->count);
    for (int i = 0; i < c->n; i++) {
        out->speed[i] = (struct thread_speed){ token[i].first, prompt[i].first };
        steady &= rounds == 1 || (is_steady(&token[i]) && is_steady(&prompt[i]));
        if (!(token[i].first > 0 && prompt[i].first > 0))
            return cb_fail(CB_EIO, "threads: a speed of zero");
    }
    return steady ? CB_OK : cb_fail(CB_EIO, "threads: the machine is busy");
}

/* ---- keeping ---- */

static const char *path_of(const char *folder, const char *key, char *path, size_t size)
{
    const struct hash_key fixed = { { 0, 0 } };

    return folder && snprintf(path, size, "%s/%016" PRIx64 ".json", folder,
                              cb_siphash(&fixed, key, strlen(key))) < (int)size
               ? path
               : NULL;
}

static json_t *to_json(const struct thread_choice *c, const char *key)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n; i++)
        cb_json_add(&list, json_pack("{s:i, s:f, s:f}", "threads", c->count[i], "token",
                                     c->speed[i].token, "prompt", c->speed[i].prompt));
    return json_pack("{s:i, s:s, s:o}", "version", VERSION, "machine", key, "speeds", list);
}

/* 1: saved */
static int save(const char *path, const char *key, const struct thread_choice *c)
{
    json_t *j = path ? to_json(c, key) : NULL;
    char *text = j ? cb_json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    const int ok = text && !cb_new_file_save(path, text, strlen(text));

    free(text);
    json_decref(j);
    return ok;
}

/* 1: j has a speed of each of these numbers, on the machine of that description */
static int from_json(const json_t *j, const struct thread_counts *c, const char *key,
                     struct thread_choice *out)
{
    const json_t *list = json_object_get(j, "speeds");
    const char *machine = json_string_value(json_object_get(j, "machine"));

    if (json_integer_value(json_object_get(j, "version")) != VERSION || !machine ||
        strcmp(machine, key) != 0 || json_array_size(list) != (size_t)c->n)
        return 0;
    for (int i = 0; i < c->n; i++) {
        const json_t *x = json_array_get(list, (size_t)i);
        out->count[i] = c->count[i];
        out->speed[i].token = json_number_value(json_object_get(x, "token"));
        out->speed[i].prompt = json_number_value(json_object_get(x, "prompt"));
        if (json_integer_value(json_object_get(x, "threads")) != c->count[i] ||
            !(out->speed[i].token > 0) || !(out->speed[i].prompt > 0))
            return 0;
    }
    out->n = c->n;
    return 1;
}

static int load(const char *path, const struct thread_counts *c, const char *key,
                struct thread_choice *out)
{
    struct buf text = { 0 };
    json_t *j = NULL;
    int ok = path && !cb_file_read_plain(path, FILE_MOST, &text) &&
             !cb_json_parse(text.s, text.n, path, &j) && from_json(j, c, key, out);

    json_decref(j);
    cb_buf_free(&text);
    return ok;
}

void cb_thread_choose(const struct thread_counts *c, const char *key, const char *folder,
                      thread_timer timer, void *arg, struct thread_choice *out)
{
    const double start = cb_now_s();
    char buf[PATH_MAX];
    const char *path = path_of(folder, key, buf, sizeof buf);

    *out = (struct thread_choice){ .token = c->usual, .prompt = c->usual };
    if (c->n < 2)
        return;
    if (load(path, c, key, out)) {
        out->origin = THREADS_KEPT;
        choose(out);
        return;
    }
    out->origin = measure(c, timer, arg, out) ? THREADS_UNSURE : THREADS_MEASURED;
    out->seconds = cb_now_s() - start;
    if (out->origin == THREADS_UNSURE) {
        out->n = 0;
        return;
    }
    choose(out);
    out->unkept = !save(path, key, out);
}
