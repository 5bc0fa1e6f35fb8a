/* SPDX-License-Identifier: MIT */
/* fuzz_bank.c - saved banks. An input is a bank's header and what stands behind the first 64 KiB;
 * checksums are put right, so that what is changed gets as far as the code that uses it. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bank/bank_file.h"
#include "ctxbank.h"
#include "engine/saved_bank.h"
#include "engine/session.h"
#include "fuzz_file.h"
#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_CTX = 64, HEADER = 88 };

static const struct cb_session_params forms[] = {
    { .n_ctx = N_CTX, .chunk = 16, .policy = "full" },
    { .n_ctx = N_CTX, .chunk = 16, .policy = "h2o:budget=24", .type_k = "q8_0", .type_v = "q8_0" },
    { .n_ctx = N_CTX, .chunk = 16, .policy = "d2o:budget=24" },
};
enum { N_FORM = sizeof forms / sizeof *forms };

static uint64_t number(const uint8_t *b, size_t at)
{
    uint64_t x;

    memcpy(&x, b + at, sizeof x);
    return x;
}

static void set(uint8_t *b, size_t at, uint64_t x)
{
    memcpy(b + at, &x, sizeof x);
}

static int inside(uint64_t at, uint64_t n, size_t bytes)
{
    return n <= bytes && at <= bytes - n;
}

/* Puts the checksums right, as far as the numbers that say where they are do. */
static void seal(uint8_t *b, size_t n)
{
    const uint64_t table = number(b, 24), n_area = number(b, 32), about = number(b, 48);

    memcpy(b, "ctxbank", 8);
    set(b, 16, n);
    if (n_area < n / sizeof(struct bank_area) &&
        inside(table, n_area * sizeof(struct bank_area), n)) {
        for (uint64_t i = 0; i < n_area; i++) {
            struct bank_area a;
            memcpy(&a, b + table + i * sizeof a, sizeof a);
            if (inside(a.at, a.bytes, n))
                a.hash = XXH3_64bits(b + a.at, (size_t)a.bytes);
            memcpy(b + table + i * sizeof a, &a, sizeof a);
        }
        set(b, 40, XXH3_64bits(b + table, (size_t)n_area * sizeof(struct bank_area)));
    }
    if (inside(about, number(b, 56), n))
        set(b, 64, XXH3_64bits(b + about, (size_t)number(b, 56)));
    set(b, 72, XXH3_64bits(b, 72));
}

/* Fills a session of each form: most files fit one, and are used then. */
static void fill(const char *path)
{
    struct saved_bank *b;
    int32_t *ids;
    int n;

    if (cb_saved_open(path, &b))
        return;
    if (!cb_saved_tokens(b, &ids, &n))
        free(ids);
    for (int i = 0; i < N_FORM; i++) {
        const int32_t more[] = { 5, 6, 7 };
        cb_session *s;
        if (cb_session_open(cb_fuzz_model(), &forms[i], &s))
            abort();
        if (!cb_saved_fill(b, s)) {
            (void)cb_session_decode(s, 9);
            (void)cb_session_prefill(s, more, 3, NULL);
        }
        cb_session_close(s);
    }
    cb_saved_close(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const size_t rest = n < HEADER ? 0 : n - HEADER;
    const size_t bytes =
        (BANK_FILE_ALIGN + rest + BANK_FILE_ALIGN - 1) / BANK_FILE_ALIGN * BANK_FILE_ALIGN;
    uint8_t *b;

    if (n < HEADER || n > 1 << 20 || !(b = calloc(bytes, 1)))
        return 0;
    memcpy(b, data, HEADER);
    memcpy(b + BANK_FILE_ALIGN, data + HEADER, rest);
    seal(b, bytes);
    fill(cb_fuzz_file(b, bytes));
    free(b);
    return 0;
}
