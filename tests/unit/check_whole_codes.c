/* SPDX-License-Identifier: MIT */
/* check_whole_codes.c - saved banks of models with trained selectors as format 3 has them, whose
 * keys were not split into upper and lower bits: they open, go on to the bit, and are continued by
 * files of the present format. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/bank_file.h"
#include "device/index_strips.h"
#include "engine/saved_about.h"
#include "engine/saved_writer.h"
#include "engine/session.h"
#include "engine/session_state.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/suite.h"

enum { N_TOKEN = 384, N_MORE = 200, N_STEP = 4, N_CTX = N_TOKEN + N_MORE + 64 };

static const char *const recipes[] = { "family-deepseek32.json", "family-glm-dsa.json",
                                       "family-deepseek4.json", "family-qwen4exp.json" };
enum { N_RECIPE = sizeof recipes / sizeof *recipes };

static struct recipe recipe;
static cb_model *m;
static char path[4096], bank[4096], old[4096], next[4096];

static void open_model(const char *name)
{
    const struct cb_model_params p = { .n_threads = 2, .device = "cpu" };
    const char *folder = cb_folder_make("codes");
    struct gguf_make make;

    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(bank, sizeof bank, "%s/bank", folder);
    snprintf(old, sizeof old, "%s/old", folder);
    snprintf(next, sizeof next, "%s/next", folder);
    cb_recipe_open(&recipe, name);
    cb_recipe_make(&recipe, &make);
    cb_make_save(&make, path);
    ck_assert_ok(cb_model_open(path, &p, &m));
}

/* Blocks of keys of hd numbers with their codes in strips, and the steps after all of them */
static void age(int hd, uint8_t *blocks, size_t bytes)
{
    const int pad = cb_strip_pad(hd);
    uint8_t *code = malloc(STRIP_BLOCK * (size_t)pad);

    for (size_t at = 0; at < bytes; at += cb_strip_bytes(hd)) {
        uint8_t *block = blocks + at;
        for (int j = 0; j < STRIP_BLOCK; j++)
            for (int c = 0; c < pad; c++)
                code[((j / 16 * pad / 4 + c / 4) * 16 + j % 16) * 4 + c % 4] =
                    (uint8_t)cb_strip_code(hd, block, j, c);
        memmove(block + STRIP_BLOCK * pad, cb_strip_steps(hd, block), STRIP_BLOCK * sizeof(float));
        memcpy(block, code, STRIP_BLOCK * (size_t)pad);
    }
    free(code);
}

/* The file of s at `bank` -> one of format 3 at `old`; the areas with such keys */
static int write_old(const struct cb_session *s)
{
    struct bank_writer *w;
    struct bank_file f;
    struct area *a;
    int n, sum = 0;

    ck_assert_ok(cb_bank_file_open(bank, &f));
    ck_assert_int_eq(f.version, BANK_FILE_VERSION);
    ck_assert_ok(cb_session_areas(s, &a, &n));
    ck_assert_ok(cb_bank_writer_open(old, 1, &w));
    for (int i = 0; i < f.n_area; i++) {
        const struct bank_area *x = &f.area[i];
        uint8_t *bytes = calloc((size_t)x->bytes + 1, 1);
        const int hd = i && i <= n ? cb_session_area_strips(s, &a[i - 1]) : 0;
        ck_assert_ok(cb_bank_file_read(&f, i, (size_t)x->bytes, bytes));
        if (hd)
            age(hd, bytes, (size_t)x->bytes);
        sum += hd > 0;
        ck_assert_ok(
            cb_bank_writer_add(w, &(struct area){ (enum area_kind)x->kind, x->layer, x->head,
                                                  x->from, bytes, (size_t)x->bytes }));
        free(bytes);
    }
    ck_assert_ok(cb_bank_writer_finish(w, BANK_FILE_WHOLE_CODES, f.about, f.n_about));
    cb_bank_file_close(&f);
    free(a);
    return sum;
}

static void go_on(cb_session *s, cb_session *t, int at)
{
    cb_recipe_prompt(&recipe, s, at, N_MORE / 2);
    cb_recipe_prompt(&recipe, t, at, N_MORE / 2);
    cb_recipe_steps(&recipe, s, at + N_MORE / 2, N_STEP);
    cb_recipe_steps(&recipe, t, at + N_MORE / 2, N_STEP);
    ck_assert_mem_eq(cb_session_logits(s), cb_session_logits(t),
                     (size_t)recipe.n_vocab * sizeof(float));
}

/* t, which came from the old file, -> a file that continues that one */
static void write_next(cb_session *t, int n_shared)
{
    struct saved_how how = { .n_shared = n_shared, .unsynced = 1 };
    struct saved_bank *parent;

    ck_assert_ok(cb_saved_open_alone(old, &parent));
    how.parent = parent;
    ck_assert_ok(cb_saved_about(t, &how.about));
    ck_assert_ok(cb_saved_write(t, next, &how));
    json_decref(how.about);
    cb_saved_close(parent);
}

START_TEST(format_3)
{
    const struct cb_session_params p = { .n_ctx = N_CTX };
    cb_session *s, *t, *u;

    open_model(recipes[_i]);
    ck_assert_ok(cb_session_open(m, &p, &s));
    cb_recipe_prompt(&recipe, s, 0, N_TOKEN);
    ck_assert_ok(cb_session_save(s, bank));
    ck_assert_int_gt(write_old(s), 0);
    ck_assert_ok(cb_session_load(m, old, 0, &t));
    go_on(s, t, N_TOKEN);
    if (cb_session_extends(t)) {
        write_next(t, N_TOKEN / KV_PREPACK * KV_PREPACK);
        ck_assert_ok(cb_session_load(m, next, 0, &u));
        go_on(t, u, N_TOKEN + N_MORE / 2 + N_STEP);
        cb_session_close(u);
    }
    cb_session_close(s);
    cb_session_close(t);
    cb_model_close(m);
    cb_recipe_close(&recipe);
    cb_folder_remove();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("whole_codes");
    TCase *t = tcase_create("whole_codes");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, format_3, 0, N_RECIPE);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
