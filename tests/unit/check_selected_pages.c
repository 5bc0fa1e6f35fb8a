/* SPDX-License-Identifier: MIT */
/* check_selected_pages.c - a saved bank none of whose pages is in memory, as where the bank is
 * larger than that: a token of a model with a trained selector brings the pages of the rows that it
 * chooses from the file, and leaves the others there. What it computes does not change. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bank/store_areas.h"
#include "engine/session.h"
#include "engine/session_state.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/suite.h"

enum { N_TOKEN = CB_SLOWED > 1 ? 3000 : 6000, N_CTX = N_TOKEN + 64, N_STEP = 4 };

/* Selectors of tokens and of blocks, and what a query reads with these changes */
static const struct {
    const char *recipe, *arch;
    int top_k, block; /* block 0: the selector names tokens */
} model[] = {
    { "family-deepseek32.json", "deepseek32", 8, 0 },
    { "family-glm-dsa.json", "glm-dsa", 8, 0 },
    { "family-minimax-m3.json", "minimax-m3", 3, 16 },
};
enum { N_MODEL = sizeof model / sizeof *model };

static struct recipe recipe;
static cb_model *m;
static char path[4096], bank[4096];

static void set_key(int i, const char *name, int value)
{
    char key[80];
    json_t *row;
    size_t j;

    snprintf(key, sizeof key, "%s.attention.indexer.%s", model[i].arch, name);
    json_array_foreach(json_object_get(recipe.root, "kv"), j, row)
    {
        if (!strcmp(json_string_value(json_array_get(row, 0)), key))
            json_array_set_new(row, 2, json_integer(value));
    }
}

static void open_model(int i)
{
    const struct cb_model_params p = { .n_threads = 2, .device = "cpu" };
    const char *folder = cb_folder_make("pages");
    struct gguf_make make;

    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(bank, sizeof bank, "%s/bank", folder);
    cb_recipe_open(&recipe, model[i].recipe);
    set_key(i, "top_k", model[i].top_k);
    if (model[i].block)
        set_key(i, "block_size", model[i].block);
    cb_recipe_make(&recipe, &make);
    cb_make_save(&make, path);
    ck_assert_ok(cb_model_open(path, &p, &m));
}

static void close_model(void)
{
    cb_model_close(m);
    cb_recipe_close(&recipe);
    cb_folder_remove();
}

/* ---- pages ---- */

static size_t page;

/* The whole pages of an area; later tokens write to the last one. */
static size_t pages_of(const struct area *a, uint8_t **from)
{
    const size_t skip = (page - (uintptr_t)a->at % page) % page;

    *from = (uint8_t *)a->at + skip;
    return a->bytes > skip + page ? (a->bytes - skip) / page : 0;
}

static size_t in_memory(const struct area *a)
{
    uint8_t *from, *is;
    const size_t n = pages_of(a, &from);
    size_t sum = 0;

    is = calloc(n + 1, 1);
    ck_assert(is && (!n || !mincore(from, n * page, is)));
    for (size_t i = 0; i < n; i++)
        sum += is[i] & 1;
    free(is);
    return sum;
}

/* The bank's pages leave the memory, as they do where there is too little of it. */
static void forget(const struct area *a, int n)
{
    const int fd = open(bank, O_RDONLY);

    ck_assert_int_ge(fd, 0);
#ifdef MADV_PAGEOUT
    for (int i = 0; i < n; i++) {
        uint8_t *from;
        const size_t pages = pages_of(&a[i], &from);
        if (pages)
            madvise(from, pages * page, MADV_PAGEOUT);
    }
#else
    (void)a, (void)n;
#endif
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Of layers with a selector */
struct count {
    size_t rows, all_rows; /* pages of rows in memory, and pages of rows */
    size_t largest;        /* in memory of one area of rows */
    size_t keys, all_keys; /* of the selector's keys */
};

static struct count count(const struct area *a, int n)
{
    struct count c = { 0 };

    for (int i = 0; i < n; i++) {
        const int keys = a[i].kind == AREA_INDEX_KEYS;
        const size_t in = in_memory(&a[i]);
        uint8_t *from;
        if (!cb_area_is_rows(a[i].kind) || !m->layer[a[i].layer].selector) /* the layer reads all */
            continue;
        *(keys ? &c.keys : &c.rows) += in;
        *(keys ? &c.all_keys : &c.all_rows) += pages_of(&a[i], &from);
        c.largest = !keys && in > c.largest ? in : c.largest;
    }
    return c;
}

/* ---- tests ---- */

static cb_session *filled(void)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .type_k = "f32", .type_v = "f32" };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    cb_recipe_prompt(&recipe, s, 0, N_TOKEN);
    ck_assert_ok(cb_session_save(s, bank));
    return s;
}

static long read_from_disk(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) ? 0 : u.ru_inblock * 512;
}

START_TEST(chosen_rows_come_from_the_file)
{
    cb_session *s, *l;
    struct count before, last, after;
    struct area *a;
    int n;

    page = (size_t)sysconf(_SC_PAGESIZE);
    open_model(_i);
    s = filled();
    ck_assert_ok(cb_session_load(m, bank, 0, &l));
    ck_assert_ptr_nonnull(l->mapped);
    ck_assert_ok(cb_session_areas(l, &a, &n));
    forget(a, n);
    last = before = count(a, n);
    if (before.rows > before.all_rows / 20) {
        cb_skip("mapped pages stay in memory here");
    } else {
        for (int i = 0; i < N_STEP; i++) {
            const long had = read_from_disk();
            size_t most, bytes;
            cb_recipe_steps(&recipe, s, N_TOKEN + i, 1);
            cb_recipe_steps(&recipe, l, N_TOKEN + i, 1);
            ck_assert_msg(!memcmp(cb_session_logits(s), cb_session_logits(l),
                                  (size_t)recipe.n_vocab * sizeof(float)),
                          "token %d", i);
            after = count(a, n);
            /* adjacent rows may lie in two pages, and a request joins ranges two pages apart */
            most = (size_t)model[_i].top_k * 4 + 2;
            ck_assert_msg(after.largest <= before.largest + (size_t)(i + 1) * most,
                          "token %d: %zu pages of an area", i, after.largest);
            ck_assert_uint_gt(after.rows, before.rows);
            bytes = (size_t)(read_from_disk() - had);
            printf("%s, token %d: %zu of %zu pages of rows, %zu of %zu of keys, %zu bytes read\n",
                   model[_i].arch, i, after.rows, after.all_rows, after.keys, after.all_keys,
                   bytes);
            if (i) /* the first one reads all keys, and layers without a selector */
                ck_assert_uint_le(bytes, (after.rows - last.rows + 64) * page);
            last = after;
        }
        ck_assert_uint_lt(after.rows, after.all_rows / 2);
        ck_assert_uint_ge(after.keys, after.all_keys * 9 / 10);
    }
    free(a);
    cb_session_close(s);
    cb_session_close(l);
    close_model();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("selected_pages");
    TCase *t = tcase_create("selected_pages");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, chosen_rows_come_from_the_file, 0, N_MODEL);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
