/* SPDX-License-Identifier: MIT */
/* banks.c - ctxbank bank save, show, verify, list, rm: contexts in files. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bank/bank_file.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "cli/prompt.h"
#include "cli/ranked.h"

/* ---- save ---- */

static int report_saved(const struct opts *o, const struct engine *e, const char *path, int n,
                        double prompt_s, double save_s)
{
    struct stat st = { 0 };
    struct cb_memory m;

    cb_session_memory(e->session, &m);
    (void)stat(path, &st);
    if (cb_opt_flag(o, ARG_JSON))
        return cb_json_print(json_pack("{s:o, s:I, s:i, s:f, s:f, s:o}", "bank", cb_json_str(path),
                                       "file_bytes", (json_int_t)st.st_size, "prompt_tokens", n,
                                       "prompt_s", prompt_s, "save_s", save_s, "memory",
                                       cb_json_memory(&m)));
    cb_log_note("%s: %d tokens in %.2f s, %.1f MiB written in %.2f s", path, n, prompt_s,
                (double)st.st_size / (1 << 20), save_s);
    return CB_OK;
}

static int prefill_and_save(const struct opts *o, struct engine *e, const int32_t *ids, int n)
{
    const char *path = cb_opt_text(o, ARG_BANK_OUTPUT);
    double start, prompt_s;

    e->n_ctx = cb_opt_int(o, ARG_CTX) ? cb_opt_int(o, ARG_CTX) : e->info.n_ctx_train;
    TRY(cb_engine_session(o, e, cb_engine_policy(o, e), e->n_ctx));
    TRY(cb_check_pieces(e, n));
    if (cb_opt_flag(o, ARG_DRY_RUN))
        return cb_ranked_print_plan(o, e, n, 0);
    start = cb_now_s();
    TRY(cb_prefill_bar(e, o, "prompt", ids, n, NULL));
    prompt_s = cb_now_s() - start;
    start = cb_now_s();
    TRY(cb_session_save(e->session, path));
    return report_saved(o, e, path, n, prompt_s, cb_now_s() - start);
}

static int save(const struct opts *o)
{
    struct engine e;
    int32_t *ids = NULL;
    int n, rc;

    if (!cb_opt_set(o, ARG_PROMPT) && !cb_opt_set(o, ARG_FILE))
        return cb_usage("prompt: none given; use -f FILE (- is standard input) or -p TEXT");
    if (!cb_opt_set(o, ARG_BANK_OUTPUT) && !cb_opt_flag(o, ARG_DRY_RUN))
        return cb_usage("output: none given; use -o FILE");
    rc = cb_engine_open(o, &e);
    if (!rc)
        rc = cb_prompt_ids(o, &e, &ids, &n);
    if (!rc) {
        cb_interrupt_catch();
        rc = prefill_and_save(o, &e, ids, n);
    }
    free(ids);
    cb_engine_close(&e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_bank_save = {
    .name = "bank save",
    .operands = "",
    .brief = "prefill a text and save its context in a file",
    .example = "-m model.gguf -f book.txt -o book.bank",
    .sets = SET_OWN_BANK | SET_PROMPT | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX |
            SET_POLICY | SET_PLAN | SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = save,
};

/* ---- show ---- */

/* Prints the members of an object, and of the objects in it with their names in front. */
static void print_members(const json_t *object, const char *in)
{
    const char *key;
    const json_t *v;

    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    {
        if (json_is_object(v)) {
            print_members(v, key);
            continue;
        }
        cb_out_plain(in);
        cb_out_plain(*in ? "." : "");
        cb_out_plain(key);
        putchar(' ');
        if (json_is_string(v))
            cb_out_plain(json_string_value(v));
        else
            printf("%" JSON_INTEGER_FORMAT, json_integer_value(v));
        putchar('\n');
    }
}

static int show(const struct opts *o)
{
    const char *path = o->operand[0];
    struct stat st = { 0 };
    json_t *about;
    char *text;
    int rc;

    TRY(cb_bank_describe(path, &text));
    rc = cb_json_parse(text, strlen(text), path, &about);
    free(text);
    TRY(rc);
    if (!json_is_object(about)) {
        json_decref(about);
        return cb_fail(CB_EFORMAT, "%s: damaged: its description", path);
    }
    (void)stat(path, &st);
    cb_json_set(&about, "file_bytes", json_integer((json_int_t)st.st_size));
    if (cb_opt_flag(o, ARG_JSON) || !about)
        return cb_json_print(about);
    print_members(about, "");
    json_decref(about);
    return cb_out_flush();
}

const struct cmd cb_cmd_bank_show = {
    .name = "bank show",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .brief = "show what a saved context was made from",
    .example = "book.bank",
    .sets = SET_JSON | SET_GENERAL,
    .run = show,
};

/* ---- verify ---- */

static int verify(const struct opts *o)
{
    for (int i = 0; i < o->n_operand; i++) {
        TRY(cb_bank_verify(o->operand[i]));
        printf("%s: good\n", o->operand[i]);
    }
    return cb_out_flush();
}

const struct cmd cb_cmd_bank_verify = {
    .name = "bank verify",
    .operands = "FILE...",
    .min_operands = 1,
    .max_operands = 1000,
    .brief = "compare all of a saved context with its checksums",
    .sets = SET_GENERAL,
    .run = verify,
};

/* ---- list ---- */

/* What the list says of an open file -> *out, NULL without memory */
static int describe(const struct bank_file *f, const char *name, json_t **out)
{
    struct stat st;
    int rc;

    if (fstat(f->fd, &st))
        return cb_fail(CB_EIO, "%s: %s", f->path, strerror(errno));
    rc = cb_json_parse(f->about, f->n_about, f->path, out);
    if (rc)
        return rc;
    cb_json_set(out, "file", cb_json_str(name));
    cb_json_set(out, "file_bytes", json_integer((json_int_t)st.st_size));
    cb_json_set(out, "uses", json_integer((json_int_t)(f->uses & INT64_MAX)));
    cb_json_set(out, "used", json_integer((json_int_t)st.st_mtime));
    return *out ? CB_OK : cb_fail(CB_ENOMEM, "%s: out of memory", f->path);
}

/* What a line of the list says -> *out; NULL: the file is no saved bank, or is gone. */
static int list_one(const char *folder, const char *name, json_t **out)
{
    struct buf path = { 0 };
    struct bank_file f;
    struct stat st;
    int rc;

    *out = NULL;
    cb_buf_print(&path, "%s/%s", folder, name);
    if (path.failed) {
        cb_buf_free(&path);
        return cb_fail(CB_ENOMEM, "%s: out of memory", folder);
    }
    if (stat(path.s, &st))
        rc = cb_fail(CB_EIO, "%s: %s", path.s, strerror(errno));
    else
        rc = S_ISREG(st.st_mode) ? cb_bank_file_open(path.s, &f) : CB_EFORMAT;
    if (!rc) {
        rc = describe(&f, name, out);
        cb_bank_file_close(&f);
    } else if (rc == CB_EIO && access(path.s, F_OK)) { /* removed meanwhile */
        rc = CB_EFORMAT;
    }
    cb_buf_free(&path);
    return rc == CB_EFORMAT || rc == CB_EUNSUPPORTED ? CB_OK : rc;
}

static int by_name(const void *a, const void *b)
{
    const json_t *const *x = a, *const *y = b;

    return strcmp(json_string_value(json_object_get(*x, "file")),
                  json_string_value(json_object_get(*y, "file")));
}

/* The saved banks of a folder, as readdir() has them, appended to out */
static int list_all(DIR *d, const char *folder, json_t *out)
{
    const struct dirent *f;
    json_t *j;

    for (;;) {
        errno = 0;
        if (!(f = readdir(d)))
            return errno ? cb_fail(CB_EIO, "%s: %s", folder, strerror(errno)) : CB_OK;
        TRY(list_one(folder, f->d_name, &j));
        if (j && json_array_append_new(out, j))
            return cb_fail(CB_ENOMEM, "%s: out of memory", folder);
    }
}

static int sort(json_t *banks)
{
    const size_t n = json_array_size(banks);
    json_t **item = cb_calloc(n + 1, sizeof(json_t *));

    if (!item)
        return CB_ENOMEM;
    for (size_t i = 0; i < n; i++)
        item[i] = json_incref(json_array_get(banks, i));
    qsort(item, n, sizeof(json_t *), by_name);
    for (size_t i = 0; i < n; i++)
        json_array_set_new(banks, i, item[i]);
    free(item);
    return CB_OK;
}

/* The saved banks of a folder -> *out, by name */
static int list_folder(const char *folder, json_t **out)
{
    DIR *d = opendir(folder);
    int rc;

    *out = NULL;
    if (!d)
        return cb_fail(CB_EIO, "%s: %s", folder, strerror(errno));
    *out = json_array();
    rc = *out ? list_all(d, folder, *out) : cb_fail(CB_ENOMEM, "%s: out of memory", folder);
    closedir(d);
    return rc ? rc : sort(*out);
}

static void print_line(const json_t *j)
{
    const json_t *s = json_object_get(j, "session"), *m = json_object_get(j, "model");
    const time_t used = (time_t)json_integer_value(json_object_get(j, "used"));
    const char *begins = json_string_value(json_object_get(j, "begins"));
    char day[32] = "";
    struct tm t;

    if (localtime_r(&used, &t))
        strftime(day, sizeof day, "%Y-%m-%d %H:%M", &t);
    cb_out_plain(json_string_value(json_object_get(j, "file")));
    printf("  %lld tokens  %.1f MiB  used %lld times, last %s  ",
           (long long)json_integer_value(json_object_get(j, "tokens")),
           (double)json_integer_value(json_object_get(j, "file_bytes")) / (1 << 20),
           (long long)json_integer_value(json_object_get(j, "uses")), day);
    for (int i = 0; i < 2; i++) {
        const char *text =
            json_string_value(i ? json_object_get(s, "policy") : json_object_get(m, "name"));
        cb_out_plain(text ? text : "?");
        fputs("  ", stdout);
    }
    cb_out_plain(begins ? begins : "");
    putchar('\n');
}

static int list(const struct opts *o)
{
    json_t *banks, *j;
    size_t i;
    int rc = list_folder(o->operand[0], &banks);

    if (!rc && cb_opt_flag(o, ARG_JSON))
        return cb_json_print(json_pack("{s:o}", "banks", banks));
    if (!rc)
        json_array_foreach(banks, i, j) print_line(j);
    json_decref(banks);
    return rc ? rc : cb_out_flush();
}

const struct cmd cb_cmd_bank_list = {
    .name = "bank list",
    .operands = "FOLDER",
    .min_operands = 1,
    .max_operands = 1,
    .brief = "list the saved contexts of a folder",
    .example = "--bank-dir ~/banks",
    .sets = SET_JSON | SET_GENERAL,
    .run = list,
};

/* ---- rm ---- */

/* All are looked at before one is removed. */
static int rm(const struct opts *o)
{
    char *about;

    for (int i = 0; i < o->n_operand; i++) {
        TRY(cb_bank_describe(o->operand[i], &about));
        free(about);
    }
    for (int i = 0; i < o->n_operand; i++)
        if (unlink(o->operand[i]))
            return cb_fail(CB_EIO, "%s: %s", o->operand[i], strerror(errno));
    return CB_OK;
}

const struct cmd cb_cmd_bank_rm = {
    .name = "bank rm",
    .operands = "FILE...",
    .min_operands = 1,
    .max_operands = 1000,
    .brief = "remove saved contexts, and no other files",
    .sets = SET_GENERAL,
    .run = rm,
};
