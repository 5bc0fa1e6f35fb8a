/* SPDX-License-Identifier: MIT */
/* saved_bank.c - a saved session is opened, compared with what it is to fill, and loaded. */
#include "saved_bank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adopted_rows.h"
#include "bank/mapped_files.h"
#include "bank/pages.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "device/index_strips.h"
#include "device/prepacked.h"
#include "in_step.h"
#include "saved_about.h"
#include "saved_head.h"
#include "session_state.h"

/* ---- opening ---- */

enum { MOST_FILES = 256 }; /* that continue each other */

int cb_saved_read_about(const struct bank_file *f, json_t **out)
{
    TRY(cb_json_parse(f->about, f->n_about, f->path, out));
    if (json_is_object(*out))
        return CB_OK;
    json_decref(*out);
    *out = NULL;
    return cb_fail(CB_EFORMAT, "%s: damaged: its description", f->path);
}

/* Opens the file alone. */
static int open_one(const char *path, struct saved_bank **out)
{
    struct saved_bank *b = *out = cb_calloc(1, sizeof *b);
    int err;

    if (!b)
        return CB_ENOMEM;
    err = cb_bank_file_open(path, &b->file);
    if (!err)
        err = cb_saved_read_about(&b->file, &b->about);
    if (err) {
        cb_saved_close(b);
        *out = NULL;
    }
    return err;
}

/* The file `name` beside `path`; caller frees. NULL: out of memory */
static char *beside(const char *path, const char *name)
{
    const size_t folder = (size_t)(cb_file_name(path) - path);
    char *out = cb_calloc(folder + strlen(name) + 1, 1);

    if (!out)
        return NULL;
    memcpy(out, path, folder);
    memcpy(out + folder, name, strlen(name) + 1);
    return out;
}

/* What unpacking a description ended with, of which a failure for want of memory is no damage */
static int described(const struct saved_bank *b, int status)
{
    return status == CB_EFORMAT ? cb_fail(CB_EFORMAT, "%s: damaged: its description", b->file.path)
                                : status;
}

/* Opens the file that b continues. Only one that is not there, or is another one, makes b useless:
 * a file that cannot be opened now may be sound. */
static int open_parent(struct saved_bank *b, const json_t *continues)
{
    const char *path = b->file.path, *name, *id;
    char *parent, have[SAVED_HEX];
    int err;

    TRY(described(b, cb_json_unpack(continues, "{s:s, s:s, s:i}", "file", &name, "id", &id,
                                    "tokens", &b->n_shared)));
    if (!*name || strchr(name, '/') || b->n_shared <= 0 || b->n_shared % KV_PREPACK)
        return cb_fail(CB_EFORMAT, "%s: damaged: its description", path);
    if (!(parent = beside(path, name)))
        return CB_ENOMEM;
    errno = 0;
    err = access(parent, F_OK) && errno == ENOENT ? CB_EFORMAT : open_one(parent, &b->parent);
    free(parent);
    if (!err)
        cb_saved_hex(b->parent->file.id, have);
    if (err == CB_EFORMAT || (!err && strcmp(have, id)))
        return cb_fail(CB_EFORMAT, "%s: damaged: it continues %s, which is missing or another file",
                       path, name);
    return err;
}

int cb_saved_open_alone(const char *path, struct saved_bank **out)
{
    return open_one(path, out);
}

int cb_saved_open(const char *path, struct saved_bank **out)
{
    int n = 1, err = open_one(path, out);

    for (struct saved_bank *b = *out; !err && b; b = b->parent) {
        const json_t *continues = json_object_get(b->about, "continues");
        if (continues && n++ == MOST_FILES)
            err = cb_fail(CB_EFORMAT, "%s: damaged: it continues too many files", path);
        else if (continues)
            err = open_parent(b, continues);
    }
    if (err) {
        cb_saved_close(*out);
        *out = NULL;
    }
    return err;
}

int cb_saved_n_files(const struct saved_bank *b)
{
    int n = 0;

    for (; b; b = b->parent)
        n++;
    return n;
}

void cb_saved_close(struct saved_bank *b)
{
    while (b) {
        struct saved_bank *parent = b->parent;
        json_decref(b->about);
        cb_bank_file_close(&b->file);
        free(b);
        b = parent;
    }
}

int cb_saved_tokens(const struct saved_bank *b, int32_t **ids, int *n)
{
    const struct bank_file *f = &b->file;

    *ids = NULL;
    *n = 0;
    for (int i = 0; i < f->n_area; i++) {
        const struct bank_area *a = &f->area[i];
        if (a->kind != AREA_TOKENS || a->bytes / sizeof **ids > INT32_MAX)
            continue;
        if (!(*ids = cb_calloc((size_t)a->bytes / sizeof **ids + 1, sizeof **ids)))
            return CB_ENOMEM;
        *n = (int)(a->bytes / sizeof **ids);
        return cb_bank_file_read(f, i, (size_t)*n * sizeof **ids, *ids);
    }
    return CB_OK;
}

/* ---- filling a session ---- */

/* The file has as many tokens as its counts say: the counts size the list of them. */
static int check_seen(const struct bank_file *f, const int32_t *counts)
{
    uint64_t bytes = 0;

    for (int i = 0; i < f->n_area; i++)
        bytes += f->area[i].kind == AREA_TOKENS ? f->area[i].bytes : 0;
    return cb_session_counts_seen(counts) >= 0 &&
                   bytes == (uint64_t)cb_session_counts_seen(counts) * sizeof(int32_t)
               ? CB_OK
               : cb_fail(CB_EFORMAT, "%s: damaged: its counts do not fit its tokens", f->path);
}

static int fill_counts(const struct bank_file *f, struct cb_session *s)
{
    const size_t n = (size_t)cb_session_n_counts(s);
    int32_t *counts;
    int err;

    if (!f->n_area || f->area[0].kind != AREA_COUNTS || f->area[0].bytes != n * sizeof *counts)
        return cb_fail(CB_EFORMAT, "%s: damaged: its counts do not fit the model", f->path);
    if (!(counts = cb_calloc(n, sizeof *counts)))
        return CB_ENOMEM;
    err = cb_bank_file_read(f, 0, n * sizeof *counts, counts);
    if (!err)
        err = check_seen(f, counts);
    if (!err)
        err = cb_session_set_counts(s, counts);
    free(counts);
    return err;
}

/* The first n bytes of area i of f -> at, in area a of s */
static int read_area(const struct bank_file *f, int i, size_t n, struct cb_session *s,
                     const struct area *a, void *at)
{
    const int hd = f->version > BANK_FILE_WHOLE_CODES ? 0 : cb_session_area_strips(s, a);

    TRY(cb_area_is_rows(a->kind) ? cb_mapped_files_take(&s->mapped, &s->model->guard, f, i, n, at)
                                 : cb_bank_file_read(f, i, n, at));
    if (hd)
        cb_strips_renew(hd, at, n);
    return CB_OK;
}

static int is_of(const struct bank_area *f, const struct area *a)
{
    return f->kind == a->kind && f->layer == a->layer && f->head == a->head && f->from >= a->from;
}

/* The file's area that is a, or the rest of it; n_area: there is none */
static int find_area(const struct bank_file *f, const struct area *a)
{
    int i = 0;

    while (i < f->n_area && !is_of(&f->area[i], a))
        i++;
    return i;
}

/* The first n bytes of area a of s, from b or the files that it continues */
static int fill_first(const struct saved_bank *b, struct cb_session *s, const struct area *a,
                      size_t n)
{
    const struct bank_file *f = &b->file;
    const int i = find_area(f, a);
    uint64_t before;

    before = i < f->n_area ? f->area[i].from - a->from : 0;
    if (i == f->n_area || (before && !b->parent) || (n > before && f->area[i].bytes < n - before))
        return cb_fail(CB_EFORMAT, "%s: damaged: it lacks rows of a file that continues it",
                       f->path);
    if (before)
        TRY(fill_first(b->parent, s, a, n < before ? n : (size_t)before));
    return n > before ? read_area(f, i, n - (size_t)before, s, a, (char *)a->at + before) : CB_OK;
}

/* What the file itself has of an area comes last: mapped pages end after the others. */
static int fill_area(const struct saved_bank *b, int i, struct cb_session *s, const struct area *a)
{
    const struct bank_area *f = &b->file.area[i];
    const size_t skip = cb_session_area_of(s, a, b->n_shared);

    if (i >= b->file.n_area || !is_of(f, a) || f->from - a->from != skip ||
        f->bytes != a->bytes - skip)
        return cb_fail(CB_EFORMAT, "%s: damaged: area %d is not the one expected", b->file.path, i);
    if (f->kind == AREA_CHECKPOINT)
        return CB_OK; /* it stays there */
    if (skip)
        TRY(fill_first(b->parent, s, a, skip));
    return read_area(&b->file, i, (size_t)f->bytes, s, a, (char *)a->at + skip);
}

/* A page that is missing is read alone: the kernel would bring megabytes of neighbours with it,
 * which a file larger than the memory pays for with pages in use. Who reads many says so before
 * (bank/store_prefetch.h, cb_index_keys_ahead). Of such a file, the pages that were verified first
 * are gone already. */
static void note_mapped(struct cb_session *s, const struct area *a)
{
    if (!s->mapped || !cb_area_is_rows(a->kind) || !a->bytes)
        return;
    cb_pages_scattered(a->at, a->bytes);
    s->attention.cold_pages |= cb_pages_on_disk(a->at, a->bytes);
}

/* adopts: s has another policy than the file, and takes what the two share. */
static int fill_areas(const struct saved_bank *b, struct cb_session *s, int adopts)
{
    const int n_have = b->file.n_area - 1 - cb_saved_head_areas(&b->file);
    struct area *a;
    int n, err;

    TRY(cb_session_areas(s, &a, &n));
    err = adopts || n == n_have
              ? CB_OK
              : cb_fail(CB_EFORMAT, "%s: damaged: %d areas instead of %d", b->file.path, n_have, n);
    for (int i = 0; !err && i < n; i++)
        if (!adopts || cb_adopts_area(&a[i]))
            err = fill_area(b, adopts ? find_area(&b->file, &a[i]) : i + 1, s, &a[i]);
    if (!err)
        err = cb_states_leave(&s->bank.states, &b->file);
    if (!err)
        cb_session_wrote(s, a, n);
    for (int i = 0; !err && i < n; i++)
        note_mapped(s, &a[i]);
    free(a);
    return err;
}

/* All but the checkpoints, which are compared when a cut goes back to them: most are never read. */
static int verify(const struct saved_bank *b, struct cb_session *s)
{
    int err = CB_OK;

    TRY(cb_device_lock(s->dev));
    for (; b && !err; b = b->parent)
        err = cb_bank_file_verify(&b->file, AREA_CHECKPOINT, s->dev->par);
    cb_device_unlock(s->dev);
    return err;
}

/* CB_EFORMAT unless the session can hold rows that another file has */
static int check_shared(const struct saved_bank *b, const struct cb_session *s)
{
    if (!b->parent || (cb_session_extends(s) && b->n_shared <= s->bank.n_seen))
        return CB_OK;
    return cb_fail(CB_EFORMAT, "%s: damaged: it cannot continue another file", b->file.path);
}

/* Can the store read the prepacked blocks of this layout as they are? */
static int reads(const struct store *st, const struct device *d, const char *layout)
{
    return !st->prepacked ||
           (st->prepacker && !strcmp(cb_prepacked_form(layout), cb_prepacked_form(d->isa)));
}

/* Blocks of another instruction set become blocks of this device, or rows. */
static int own_blocks(const char *layout, struct cb_session *s)
{
    const int form = cb_prepacked_panel(layout);
    int err;

    TRY(cb_device_lock(s->dev));
    err = CB_OK;
    for (int l = 0; l < s->bank.n_layer && !err; l++) {
        struct store *st = &s->bank.store[l];
        const int panel = st->hd % 32 ? 0 : form;
        if (reads(st, s->dev, layout))
            continue;
        err = panel && st->type_k != KV_F32 && st->type_v != KV_F32
                  ? cb_store_repack(st, s->dev, panel)
                  : cb_fail(CB_EFORMAT, "its prepacked blocks have no known form");
    }
    cb_device_unlock(s->dev);
    return err;
}

/* What another device has computed differs in its last bits. */
static int computed_here(const struct saved_bank *b, const struct cb_session *s)
{
    json_t *here = cb_saved_device(s);
    const int same = json_equal(here, json_object_get(b->about, "device"));

    json_decref(here);
    return same;
}

/* Ranks must go back to the same checkpoints, so none of them finds one damaged later. */
static int fetch_all(struct states *s)
{
    for (int i = 0; i < s->n; i++)
        TRY(cb_states_fetch(s, s->point[i].at));
    return CB_OK;
}

/* counts: an empty session with the settings of the file, which takes its counts; s is another one,
 * which shares rows with it, or the same */
static int fill(const struct saved_bank *b, struct cb_session *counts, struct cb_session *s)
{
    const int adopts = s != counts;
    const char *layout;
    json_int_t peak, read;
    int err;

    TRY(described(b, cb_json_unpack(b->about, "{s:s, s:I, s:I}", "layout", &layout, "kv_peak_bytes",
                                    &peak, "kv_read_bytes", &read)));
    TRY(verify(b, s));
    err = fill_counts(&b->file, counts);
    if (!err && adopts)
        err = cb_session_adopt_counts(s, counts);
    if (!err)
        err = check_shared(b, counts);
    if (!err)
        err = fill_areas(b, s, adopts);
    if (!err)
        err = cb_session_check_areas(s);
    if (!err)
        err = own_blocks(layout, s);
    if (!err && adopts)
        err = cb_session_adopted(s);
    if (!err && !adopts && computed_here(b, s))
        err = cb_saved_head_fill(&b->file, s);
    if (!err)
        err = cb_session_check_files(s);
    cb_states_fit(&s->bank.states);
    if (!err && s->in_step)
        err = fetch_all(&s->bank.states);
    s->bank.peak_bytes = (uint64_t)peak;
    s->bank.read_bytes = (uint64_t)read;
    return err ? cb_fail_in(err, b->file.path) : CB_OK;
}

int cb_saved_fill(const struct saved_bank *b, struct cb_session *s)
{
    return fill(b, s, s);
}

int cb_saved_fill_first(const struct saved_bank *b, int n, struct cb_session *s)
{
    TRY(cb_saved_fill(b, s));
    TRY(cb_context_split_loaded(&s->attention));
    s->n_prefill_exact = s->bank.n_seen;
    if (n == s->bank.n_seen)
        return CB_OK;
    TRY(cb_states_fetch(&s->bank.states, n)); /* a damaged file is one that does not serve */
    TRY(cb_session_truncate(s, n));
    s->bank.peak_bytes = cb_bank_bytes(&s->bank); /* as if the others had never been fed */
    s->bank.n_most = n;
    return CB_OK;
}

/* ---- loading one file ---- */

/* What a session of the file is opened with, and what it must fit */
struct settings {
    struct cb_session_params params;
    const char *weights, *plan, *layout;
    const char *rotation; /* NULL: the file is older */
    int n_prefill_exact;
};

static int read_settings(const struct saved_bank *b, struct settings *a)
{
    return described(
        b, cb_json_unpack(
               b->about, "{s:{s:s}, s:{s:i, s:i, s:s, s:s, s:s, s:s, s:s, s?s}, s:s, s?i}", "model",
               "weights", &a->weights, "session", "n_ctx", &a->params.n_ctx, "chunk",
               &a->params.chunk, "type_k", &a->params.type_k, "type_v", &a->params.type_v, "policy",
               &a->params.policy, "prefill", &a->params.prefill, "plan", &a->plan, "rotation",
               &a->rotation, "layout", &a->layout, "anew", &a->n_prefill_exact));
}

static int check_model(const char *path, const struct settings *a, struct cb_model *m)
{
    char weights[SAVED_HEX];
    uint64_t hash;

    TRY(cb_model_fingerprint(m, &hash));
    cb_saved_hex(hash, weights);
    if (strcmp(weights, a->weights))
        return cb_fail(CB_EUNSUPPORTED, "%s: saved with another model, or other rotation settings",
                       path);
    if (*a->layout && strcmp(cb_prepacked_form(a->layout), cb_prepacked_form(m->dev->isa)) &&
        !cb_prepacked_panel(a->layout))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: its blocks are prepacked for %s; this device computes with %s", path,
                       a->layout, m->dev->isa);
    return CB_OK;
}

static int check_session(const char *path, const struct settings *a, const struct cb_session *s)
{
    char plan[SAVED_HEX], turns[SAVED_HEX];

    cb_saved_hex(cb_policy_plan_hash(s->policy), plan);
    cb_saved_hex(cb_saved_rotation(s), turns);
    if (strcmp(plan, a->plan))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: policy %s has another plan here: its preset or version has changed",
                       path, a->params.policy);
    if (a->rotation && strcmp(turns, a->rotation))
        return cb_fail(CB_EUNSUPPORTED, "%s: a context of %d tokens rotates with other frequencies",
                       path, s->n_ctx);
    return CB_OK;
}

/* A session of another policy in place of the empty one that has the settings of the file */
static int load_as(const struct saved_bank *b, const struct settings *a, const char *policy,
                   cb_session **out)
{
    struct cb_session_params p = a->params;
    cb_session *s;
    int err;

    p.policy = policy;
    TRY(cb_session_open((*out)->model, &p, &s));
    if (cb_session_shares_rows(*out) && cb_session_shares_rows(s))
        err = fill(b, *out, s);
    else
        err =
            cb_fail(CB_EUNSUPPORTED,
                    "%s: saved with policy %s, whose rows are not those of %s: policies that drop "
                    "nothing (full, sieve, quest, omnikv) open each other's banks",
                    b->file.path, a->params.policy, policy);
    cb_session_close(err ? s : *out);
    *out = err ? *out : s;
    return err;
}

static int load(const struct saved_bank *b, struct cb_model *m, int n_ctx, const char *policy,
                cb_session **out)
{
    struct settings a = { .rotation = NULL };
    int err, same;

    TRY(read_settings(b, &a));
    TRY(check_model(b->file.path, &a, m));
    if (n_ctx)
        a.params.n_ctx = n_ctx;
    TRY(cb_session_open(m, &a.params, out));
    err = check_session(b->file.path, &a, *out);
    same = !policy || !strcmp(policy, a.params.policy);
    if (!err)
        err = same ? cb_saved_fill(b, *out) : load_as(b, &a, policy, out);
    if (!err && same && computed_here(b, *out) && a.n_prefill_exact > 0 &&
        a.n_prefill_exact <= (*out)->bank.n_seen)
        (*out)->n_prefill_exact = a.n_prefill_exact;
    if (!err)
        err = cb_context_split_loaded(&(*out)->attention);
    if (err) {
        cb_session_close(*out);
        *out = NULL;
    }
    return err;
}

static int load_file(cb_model *m, const char *path, int n_ctx, const char *policy, cb_session **out)
{
    struct saved_bank *b;
    int err;

    TRY(cb_saved_open(path, &b));
    err = load(b, m, n_ctx, policy, out);
    cb_saved_close(b);
    return err;
}

/* Every rank reads the same file. */
int cb_session_load_as(cb_model *m, const char *path, int n_ctx, const char *policy,
                       cb_session **out)
{
    cb_session *s = NULL;
    int err;

    *out = NULL;
    if (!m->dev)
        return cb_fail(CB_EARG, "session: the model was opened for its vocabulary alone");
    TRY(cb_in_step_begin_load(m, path, n_ctx, policy));
    err = load_file(m, path, n_ctx, policy, &s);
    err = cb_in_step_end_open(m, s, err);
    if (err)
        cb_session_close(s);
    else
        *out = s;
    return err;
}

int cb_session_load(cb_model *m, const char *path, int n_ctx, cb_session **out)
{
    return cb_session_load_as(m, path, n_ctx, NULL, out);
}

/* ---- without a model ---- */

int cb_bank_describe(const char *path, char **json)
{
    struct bank_file f;

    TRY(cb_bank_file_open(path, &f));
    *json = f.about;
    f.about = NULL;
    cb_bank_file_close(&f);
    return CB_OK;
}

int cb_bank_verify(const char *path)
{
    struct bank_file f;
    int err;

    TRY(cb_bank_file_open(path, &f));
    err = cb_bank_file_verify(&f, 0, NULL);
    cb_bank_file_close(&f);
    return err;
}
