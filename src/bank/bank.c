/* SPDX-License-Identifier: MIT */
/* bank.c - opens, empties and measures the stores of all layers. */
#include "bank.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/kivi.h"

/* "kivi4" or "kivi2:64": all but the newest rows are quantised, and those are f16. Returns 1 for
 * such a name. */
static int kivi_form(const struct bank *b, const char *what, const char *name,
                     struct kivi_form *out)
{
    char *end;
    long r;

    if (!name || strncmp(name, "kivi", 4) || (name[4] != '2' && name[4] != '4'))
        return 0;
    out->bits = name[4] - '0';
    r = name[5] == ':' ? strtol(name + 6, &end, 10) : 128;
    if (name[5] && (name[5] != ':' || end == name + 6 || *end))
        return cb_fail(CB_EARG, "%s %s: unknown type", what, name);
    if (r < KIVI_GROUP || r > 65536 || r % KIVI_GROUP)
        return cb_fail(CB_EARG, "%s %s: must keep a multiple of %d tokens, at least %d", what, name,
                       KIVI_GROUP, KIVI_GROUP);
    if (b->hd % KIVI_GROUP || b->hd > CB_KIVI_MAX_HD)
        return cb_fail(
            CB_EARG, "%s %s: needs a head_dim that is a multiple of %d up to %d; the model has %d",
            what, name, KIVI_GROUP, CB_KIVI_MAX_HD, b->hd);
    out->residual = (int)r;
    return 1;
}

static int kv_type(const struct bank *b, const char *what, const char *name, enum kv_type *out,
                   struct kivi_form *kivi)
{
    const int q = kivi_form(b, what, name, kivi);
    const int t = name && !q ? cb_kv_type_find(name) : KV_F16;

    TRY(q);
    if (t < 0)
        return cb_fail(CB_EARG, "%s %s: unknown type", what, name);
    if (b->hd % cb_kv_type[t].block)
        return cb_fail(CB_EARG,
                       "%s %s: needs a head_dim that is a multiple of %d; the model has %d", what,
                       name, cb_kv_type[t].block, b->hd);
    *out = (enum kv_type)t;
    return CB_OK;
}

int cb_bank_open(struct bank *b, const char *type_k, const char *type_v, int n_col)
{
    TRY(kv_type(b, "type of keys", type_k, &b->type_k, &b->kivi_k));
    TRY(kv_type(b, "type of values", type_v, &b->type_v, &b->kivi_v));
    if (cb_bank_has_kivi(b) && (b->type_k != KV_F16 || b->type_v != KV_F16))
        return cb_fail(CB_EARG, "types of keys and values: kivi goes with kivi or f16");
    b->store = cb_calloc((size_t)b->n_layer, sizeof *b->store);
    if (!b->store)
        return CB_ENOMEM;
    for (int l = 0; l < b->n_layer; l++) {
        TRY(cb_store_open(&b->store[l], b->n_kv, b->hd, b->n_ctx, b->type_k, b->type_v, n_col));
        b->store[l].rows_only = b->rows_only;
        b->store[l].small_pages = b->small_pages;
        if (cb_bank_has_kivi(b))
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
}

void cb_bank_cut(struct bank *b, int n_seen)
{
    for (int l = 0; l < b->n_layer; l++)
        cb_store_cut(&b->store[l], n_seen);
    b->n_seen = n_seen;
    b->n_feed = 0;
    if (b->prompt_end > n_seen)
        b->prompt_end = n_seen;
}

uint64_t cb_bank_bytes(const struct bank *b)
{
    uint64_t sum = 0;

    for (int l = 0; l < b->n_layer; l++)
        sum += cb_store_bytes(&b->store[l]);
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
