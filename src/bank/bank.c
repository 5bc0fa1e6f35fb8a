/* SPDX-License-Identifier: MIT */
/* bank.c - opens, empties and measures the stores of all layers, and their states. */
#include "bank.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/suggest.h"
#include "base/words.h"
#include "device/kivi.h"
#include "model/model.h"

static const char *type_name(const void *ctx, int i)
{
    (void)ctx;
    return i < KV_TYPE_COUNT ? cb_kv_type[i].name : NULL;
}

/* Types of other programs, which lose more than kivi4 does (bench/results/key-value-types.md) */
static int is_small_row(const char *name)
{
    static const char *const names[] = { "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return 0;
}

static int unknown_type(const char *what, const char *name)
{
    char list[120];

    cb_name_list(list, sizeof list, type_name, NULL);
    if (is_small_row(name))
        return cb_fail(
            CB_EARG,
            "%s %s: not supported, since kivi4 loses less in as few bytes; there are %s, "
            "kivi4, kivi2, planes",
            what, name, list);
    return cb_fail(CB_EARG, "%s %s: unknown type; there are %s, kivi4, kivi2, planes", what, name,
                   list);
}

/* The head_dim of the first layer for which it is no multiple of `of`, or above `most`; 0: none */
static int misfit(const struct bank *b, long of, int most)
{
    for (int l = 0; l < b->n_layer; l++)
        if (b->layer[l].n_kv && (b->layer[l].hd % of || b->layer[l].hd > most))
            return b->layer[l].hd;
    return 0;
}

/* ":64:128:32" -> at most n numbers; returns how many, or -1 */
static int numbers_of(const char *at, long *x, int n)
{
    char *end;
    int i = 0;

    for (; *at; at = end, i++) {
        if (*at != ':' || i == n || at[1] < '0' || at[1] > '9')
            return -1;
        x[i] = strtol(at + 1, &end, 10);
    }
    return i;
}

/* "kivi4", "kivi2:64", "kivi2:128:64:32": all but the newest rows are quantised, and the first ones
 * if there is a fourth number; these are f16. Returns 1 for such a name. v: 1 = of values, which
 * are grouped by channels. */
static int kivi_form(const struct bank *b, const char *what, const char *name, int v,
                     struct kivi_form *out)
{
    long x[] = { KIVI_MAX_GROUP, KIVI_GROUP, 0 };
    int hd;

    if (!name || !cb_begins(name, "kivi") || (name[4] != '2' && name[4] != '4'))
        return 0;
    if (b->one_row) /* keys are grouped along tokens, and values along channels */
        return cb_fail(
            CB_EUNSUPPORTED,
            "%s %s: the model stores one row as key and value, which kivi would quantise "
            "in two ways",
            what, name);
    if (numbers_of(name + 5, x, 3) < 0)
        return unknown_type(what, name);
    if (x[1] != 32 && x[1] != 64 && x[1] != KIVI_MAX_GROUP)
        return cb_fail(CB_EARG, "%s %s: must have groups of 32, 64 or 128", what, name);
    if (x[0] < x[1] || x[0] > 65536 || x[0] % x[1])
        return cb_fail(CB_EARG, "%s %s: must keep a multiple of %ld tokens, at least %ld", what,
                       name, x[1], x[1]);
    if (x[2] > 65536 || x[2] % KIVI_GROUP)
        return cb_fail(CB_EARG, "%s %s: must keep a multiple of %d first tokens", what, name,
                       KIVI_GROUP);
    if ((hd = misfit(b, v ? x[1] : KIVI_GROUP, CB_KIVI_MAX_HD)))
        return cb_fail(
            CB_EARG, "%s %s: needs a head_dim that is a multiple of %ld up to %d; the model has %d",
            what, name, v ? x[1] : KIVI_GROUP, CB_KIVI_MAX_HD, hd);
    *out = (struct kivi_form){ name[4] - '0', (int)x[0], (int)x[1], (int)x[2] };
    return 1;
}

/* "planes": all keys but those that are in no sketched block, which are f16. The policy's sketches
 * are the first plane, so what opens them opens the planes. Returns 1 for this name. */
static int planes_form(const struct bank *b, const char *what, const char *name, int v,
                       struct kivi_form *out)
{
    int hd;

    if (!name || strcmp(name, "planes"))
        return 0;
    if (v)
        return cb_fail(CB_EUNSUPPORTED, "%s %s: only keys are searched", what, name);
    if (b->one_row)
        return cb_fail(CB_EUNSUPPORTED, "%s %s: the model stores one row as key and value", what,
                       name);
    if ((hd = misfit(b, 16, CB_KIVI_MAX_HD)))
        return cb_fail(CB_EARG,
                       "%s %s: needs a head_dim that is a multiple of 16 up to %d; the model has "
                       "%d",
                       what, name, CB_KIVI_MAX_HD, hd);
    *out = (struct kivi_form){ .bits = KIVI_PLANES, .residual = KV_PREPACK };
    return 1;
}

static int kv_type(const struct bank *b, const char *what, const char *name, int v,
                   enum kv_type *out, struct kivi_form *kivi)
{
    int q = kivi_form(b, what, name, v, kivi), t, hd;

    q = q ? q : planes_form(b, what, name, v, kivi);
    t = name && !q ? cb_kv_type_find(name) : KV_F16;
    TRY(q);
    if (t < 0)
        return unknown_type(what, name);
    if ((hd = misfit(b, cb_kv_type[t].block, KV_MAX_HD)))
        return cb_fail(CB_EARG,
                       "%s %s: needs a head_dim that is a multiple of %d; the model has %d", what,
                       name, cb_kv_type[t].block, hd);
    *out = (enum kv_type)t;
    return CB_OK;
}

/* One row cannot have two types. */
static int check_one_row(struct bank *b, const char *type_v)
{
    if (!b->one_row)
        return CB_OK;
    if (!type_v)
        b->type_v = b->type_k;
    if (b->type_k != b->type_v)
        return cb_fail(CB_EUNSUPPORTED, "types of keys and values: must be the same, since the "
                                        "model stores one row as key and value");
    return CB_OK;
}

static int set_types(struct bank *b, const char *type_k, const char *type_v)
{
    TRY(kv_type(b, "type of keys", type_k, 0, &b->type_k, &b->kivi_k));
    TRY(kv_type(b, "type of values", type_v, 1, &b->type_v, &b->kivi_v));
    if (cb_bank_has_kivi(b) &&
        (b->type_k != KV_F16 || (b->type_v != KV_F16 && !cb_bank_in_planes(b))))
        return cb_fail(CB_EARG, "types of keys and values: kivi goes with kivi or f16");
    return check_one_row(b, type_v);
}

int cb_bank_check_types(const char *type_k, const char *type_v)
{
    struct bank any = { .n_layer = 0 }; /* no head_dim that a type does not fit */

    return set_types(&any, type_k, type_v);
}

int cb_bank_open(struct bank *b, const char *type_k, const char *type_v, int n_col)
{
    TRY(set_types(b, type_k, type_v));
    b->store = cb_calloc((size_t)b->n_layer, sizeof *b->store);
    b->beside = cb_calloc((size_t)b->n_layer, sizeof *b->beside);
    if (!b->store || !b->beside)
        return CB_ENOMEM;
    for (int l = 0; l < b->n_layer; l++) {
        TRY(cb_store_open(&b->store[l], b->layer[l].n_kv, b->layer[l].hd, b->n_ctx, b->type_k,
                          b->type_v, n_col));
        if (!b->layer[l].n_kv)
            continue;
        b->store[l].rows_only = b->rows_only;
        if (b->one_row)
            cb_store_share_rows(&b->store[l]);
        b->store[l].small_pages = b->small_pages;
        if (cb_bank_has_kivi(b) && !cb_bank_in_planes(b))
            TRY(cb_kivi_open(&b->store[l], b->kivi_k, b->kivi_v));
        TRY(cb_store_mirror(&b->store[l], b->dev));
    }
    return CB_OK;
}

void cb_bank_close(struct bank *b)
{
    for (int l = 0; b->store && l < b->n_layer; l++)
        cb_store_close(&b->store[l]);
    free(b->store);
    free(b->beside);
    cb_states_close(&b->states);
}

int cb_bank_checkpoint(const struct bank *b, int n)
{
    const struct states *s = &b->states;

    if (!cb_states_is(s) || cb_states_in_draft(s, b->n_seen, n))
        return n;
    return s->draft && s->whole && n > b->n_seen - s->draft ? b->n_seen - s->draft
                                                            : cb_states_last(s, n);
}

/* The states of a reader that takes back a draft are there already. */
static void cut_states(struct bank *b, int n)
{
    if (n && n == b->n_seen)
        cb_states_back(&b->states, n);
    else if (n && cb_states_in_draft(&b->states, b->n_seen, n))
        cb_states_drop(&b->states);
    else
        cb_states_cut(&b->states, n);
}

void cb_bank_cut(struct bank *b, int n_seen)
{
    for (int l = 0; l < b->n_layer; l++)
        cb_store_cut(&b->store[l], n_seen);
    if (cb_states_is(&b->states))
        cut_states(b, n_seen);
    b->n_seen = n_seen;
    b->n_feed = 0;
    if (b->prompt_end > n_seen)
        b->prompt_end = n_seen;
}

uint64_t cb_bank_bytes(const struct bank *b)
{
    uint64_t sum = 0;

    for (int l = 0; l < b->n_layer; l++)
        sum += cb_store_bytes(&b->store[l]) + b->beside[l];
    return sum;
}

uint64_t cb_bank_beside(const struct bank *b)
{
    uint64_t sum = 0;

    for (int l = 0; l < b->n_layer; l++)
        sum += cb_store_beside(&b->store[l]);
    return sum;
}

int cb_bank_max_len(const struct bank *b)
{
    int most = 0;

    for (int l = 0; l < b->n_layer; l++) {
        const int n = cb_store_max_len(&b->store[l]);
        most = n > most ? n : most;
    }
    return most;
}

void cb_bank_note_beside(struct bank *b, int l, uint64_t bytes)
{
    b->beside[l] = bytes;
}

void cb_bank_note_peak(struct bank *b, int l)
{
    const uint64_t now = cb_bank_bytes(b);
    const int n = cb_store_max_len(&b->store[l]);

    if (n > b->n_most)
        b->n_most = n;
    if (now > b->peak_bytes)
        b->peak_bytes = now;
}

int cb_bank_has_kivi(const struct bank *b)
{
    return b->kivi_k.bits || b->kivi_v.bits;
}

int cb_bank_in_planes(const struct bank *b)
{
    return b->kivi_k.bits == KIVI_PLANES;
}
