/* SPDX-License-Identifier: MIT */
/* saved_head.c - rows of the head for later tokens, and the states that wait for it, to a file and
 * back. Rows are mapped, all else is copied. */
#include "saved_head.h"

#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "bank/mapped_files.h"
#include "bank/pages.h"
#include "base/err.h"
#include "base/ints.h"
#include "mtp_drafter.h"
#include "session_state.h"

/* The first counts, before those of the head's session */
enum { H_AT, H_BASE, H_WAITING, N_HEAD };

static size_t n_counts(const struct mtp_drafter *x)
{
    return N_HEAD + (size_t)cb_session_n_counts(x->s);
}

static size_t state_bytes(const struct mtp_drafter *x)
{
    return (size_t)x->n * (size_t)x->of->model->hp.n_embd * sizeof *x->state;
}

/* The file has the rows of the head's session and what stands beside them. Its tokens are those of
 * the model's session, and nobody reads its logits. */
static int is_kept(const struct area *a)
{
    return a->kind < AREA_STORE_KINDS || cb_area_is_readers(a->kind);
}

static int list_areas(const struct mtp_drafter *x, struct saved_head *out)
{
    struct area *a = NULL;
    int n = 0;

    TRY(cb_session_areas(x->s, &a, &n));
    out->area = cb_calloc((size_t)n + 2, sizeof *out->area);
    out->is_rows = cb_calloc((size_t)n + 2, 1);
    if (out->area && out->is_rows) {
        const size_t bytes = n_counts(x) * sizeof *out->counts;
        out->area[out->n++] = (struct area){ AREA_HEAD_COUNTS, 0, 0, 0, out->counts, bytes };
        if (x->n)
            out->area[out->n++] =
                (struct area){ AREA_HEAD_STATE, 0, 0, 0, x->state, state_bytes(x) };
    }
    for (int i = 0, row = 0; out->area && out->is_rows && i < n; i++)
        if (is_kept(&a[i])) {
            out->is_rows[out->n] = (char)cb_area_is_rows(a[i].kind);
            out->area[out->n++] = (struct area){ AREA_HEAD_ROWS, 0, row++, 0, a[i].at, a[i].bytes };
        }
    free(a);
    return out->area && out->is_rows ? CB_OK : CB_ENOMEM;
}

int cb_saved_head_list(const struct cb_session *s, struct saved_head *out)
{
    const struct mtp_drafter *x = cb_mtp_drafter_of(s);

    *out = (struct saved_head){ .n = 0 };
    if (!x || x->at + x->n != s->bank.n_seen || x->base == s->bank.n_seen)
        return CB_OK;
    if (!(out->counts = cb_calloc(n_counts(x), sizeof *out->counts)))
        return CB_ENOMEM;
    out->counts[H_AT] = x->at;
    out->counts[H_BASE] = x->base;
    out->counts[H_WAITING] = x->n;
    cb_session_counts(x->s, out->counts + N_HEAD);
    return list_areas(x, out);
}

void cb_saved_head_free(struct saved_head *x)
{
    free(x->counts);
    free(x->area);
    free(x->is_rows);
    *x = (struct saved_head){ .n = 0 };
}

int cb_saved_head_check(const struct cb_session *s)
{
    const struct mtp_drafter *x = cb_mtp_drafter_of(s);

    return x ? cb_session_check_files(x->s) : CB_OK;
}

int cb_saved_head_areas(const struct bank_file *f)
{
    int n = 0;

    while (n < f->n_area && f->area[f->n_area - 1 - n].kind >= AREA_HEAD_COUNTS)
        n++;
    return n;
}

static int damaged(const struct bank_file *f)
{
    return cb_fail(CB_EFORMAT, "%s: damaged: what it has of the head for later tokens", f->path);
}

/* counts[n_counts(x)], which are not to be trusted */
static int set_counts(const struct bank_file *f, struct mtp_drafter *x, const int32_t *counts)
{
    const int at = counts[H_AT], base = counts[H_BASE], waiting = counts[H_WAITING];
    const int seen = x->of->bank.n_seen;

    if (waiting < 0 || waiting > MTP_STATES || at < 0 || at > seen || at + waiting != seen ||
        base < 0 || base > at || cb_session_counts_seen(counts + N_HEAD) != at - base)
        return damaged(f);
    TRY(cb_session_set_counts(x->s, counts + N_HEAD));
    for (int i = 0; i < at - base; i++)
        x->s->token[i] = x->of->token[min_int(base + 1 + i, seen - 1)];
    x->at = at;
    x->base = base;
    x->n = waiting;
    return CB_OK;
}

/* Area i of f -> *to. Pages that are missing are read alone, as those of the other layers are. */
static int fill_area(const struct bank_file *f, int i, struct mtp_drafter *x, const struct area *to,
                     int is_rows)
{
    struct mapped_files **mapped = &x->s->mapped;

    if (!is_rows)
        return cb_bank_file_read(f, i, to->bytes, to->at);
    TRY(cb_mapped_files_take(mapped, &x->of->model->guard, f, i, to->bytes, to->at));
    if (*mapped && to->bytes)
        cb_pages_scattered(to->at, to->bytes);
    return CB_OK;
}

/* The n areas from number `first` on, of which the first one has the counts */
static int fill_rest(const struct bank_file *f, int first, int n, struct mtp_drafter *x)
{
    struct saved_head want;
    int err = cb_saved_head_list(x->of, &want);

    if (!err && want.n != n)
        err = damaged(f);
    for (int i = 1; !err && i < n; i++) {
        const struct bank_area *a = &f->area[first + i];
        const struct area *to = &want.area[i];
        err = a->kind == to->kind && a->head == to->head && a->bytes == to->bytes
                  ? fill_area(f, first + i, x, to, want.is_rows[i])
                  : damaged(f);
    }
    cb_saved_head_free(&want);
    return err ? err : cb_session_check_areas(x->s);
}

/* 1: the file has keys in strips as versions before have them. A head is then as one that the file
 * does not have: it begins with the next token. */
static int is_older(const struct bank_file *f, const struct cb_session *s)
{
    return f->version <= BANK_FILE_WHOLE_CODES && cb_attention_has_strips(&s->attention);
}

int cb_saved_head_fill(const struct bank_file *f, struct cb_session *s)
{
    const int n = cb_saved_head_areas(f), first = f->n_area - n;
    struct mtp_drafter *x;
    int32_t *counts;
    size_t bytes;
    int err;

    if (!n || !cb_session_has_head(s) || is_older(f, s))
        return CB_OK;
    TRY(cb_mtp_drafter_open(s));
    x = cb_mtp_drafter_of(s);
    bytes = n_counts(x) * sizeof *counts;
    if (f->area[first].kind != AREA_HEAD_COUNTS || f->area[first].bytes != bytes)
        return damaged(f);
    if (!(counts = cb_calloc(1, bytes)))
        return CB_ENOMEM;
    err = cb_bank_file_read(f, first, bytes, counts);
    if (!err)
        err = set_counts(f, x, counts);
    free(counts);
    return err ? err : fill_rest(f, first, n, x);
}
