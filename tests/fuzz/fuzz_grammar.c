/* SPDX-License-Identifier: MIT */
/* fuzz_grammar.c - reads an input as a grammar, and writes a text that follows it. */
#include "fuzz_grammar.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar/matcher.h"

enum { MOST_INPUT = 1 << 14, MOST_TEXT = 300 };

static uint64_t state;

static uint32_t draw(uint32_t n) /* 0 to n - 1; xorshift */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static void fail(const char *what, const char *grammar, const char *text, int n)
{
    fprintf(stderr, "%s after '%.*s' of: %s\n", what, n, text, grammar);
    abort();
}

/* A byte that may follow; prefers those that end values. -1: none may */
static int next_byte(struct matcher *m, int32_t *to)
{
    static const char ends[] = "\"]},:";
    const int32_t at = cb_matcher_state(m);
    const uint32_t from = draw(2) ? 0x20 + draw(96) : draw(256);

    for (size_t i = 0; i < sizeof ends - 1 && !draw(3); i++)
        if ((*to = cb_matcher_next(m, at, (uint8_t)ends[i])) != MATCHER_DEAD)
            return ends[i];
    for (uint32_t b = 0; b < 256; b++)
        if ((*to = cb_matcher_next(m, at, (uint8_t)(from + b))) != MATCHER_DEAD)
            return (uint8_t)(from + b);
    return -1;
}

/* 1: the text may end here */
static int follow(struct matcher *m, const char *grammar, char *text, int *n)
{
    /* a byte may cost as many ways as the matcher allows between two tokens */
    const clock_t until = clock() + CLOCKS_PER_SEC / 4;
    int moved, rc = 0;

    for (*n = 0; *n < MOST_TEXT && !rc && clock() < until; ++*n) {
        const int ends = cb_matcher_may_end(m, cb_matcher_state(m));
        int32_t to = MATCHER_DEAD;
        int byte;
        if (ends && !draw(4))
            return 1;
        byte = next_byte(m, &to);
        if (byte < 0 && !ends)
            fail("dead end", grammar, text, *n);
        if (byte < 0 || to < 0)
            return ends && to >= 0;
        text[*n] = (char)byte;
        rc = cb_matcher_go(m, to, &moved);
    }
    return !rc && cb_matcher_may_end(m, cb_matcher_state(m));
}

static void write_text(const cb_grammar *g, int is_json, const char *grammar)
{
    char text[MOST_TEXT];
    struct matcher *m;
    json_t *j;
    int n;

    if (cb_matcher_new(&g->program, &m))
        return;
    if (follow(m, grammar, text, &n) && is_json) {
        j = json_loadb(text, (size_t)n, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
        if (!j && !strpbrk(text, "eE"))
            fail("no JSON", grammar, text, n);
        json_decref(j);
    }
    cb_matcher_free(m);
}

int cb_fuzz_grammar(enum grammar_kind kind, const uint8_t *data, size_t size)
{
    struct grammar_limits limits = { .steps = 1 << 16 };
    char *text;
    cb_grammar *g;

    if (size > MOST_INPUT)
        return 0;
    text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    state = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < size; i++)
        state = (state ^ data[i]) * 0x100000001B3u;
    state |= 1;
    limits.memory_bytes = (size_t)1 << (10 + draw(15)); /* it may end anywhere */
    if (!cb_grammar_new(kind, text, &limits, &g)) {
        for (int i = 0; i < 2; i++)
            write_text(g, kind == GRAMMAR_JSON_SCHEMA, text);
        cb_grammar_free(g);
    }
    free(text);
    return 0;
}
