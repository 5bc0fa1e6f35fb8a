/* SPDX-License-Identifier: MIT */
/* saved_writer.c - a session to a file: its description and the areas of session_state.h. */
#include "saved_writer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "bank/checkpoint.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "in_step.h"
#include "saved_about.h"
#include "saved_head.h"
#include "session_state.h"
#include "whole_bank.h"

/* A file that is written */
struct writing {
    const struct cb_session *s;
    const struct saved_how *how;
    struct bank_writer *w;
    int32_t *counts;            /* of s, without the checkpoints that were lost */
    int n_checkpoint, any_lost; /* written; 1: some were left out */
    void *read;                 /* room for one; NULL: all were in memory so far */
};

static int add_counts(struct writing *x)
{
    const size_t n = (size_t)cb_session_n_counts(x->s);

    if (!(x->counts = cb_calloc(n, sizeof *x->counts)))
        return CB_ENOMEM;
    cb_session_counts(x->s, x->counts);
    return cb_bank_writer_add(
        x->w, &(struct area){ AREA_COUNTS, 0, 0, 0, x->counts, n * sizeof *x->counts });
}

/* Adds the part of an area that the continued file lacks */
static int add_rest(const struct writing *x, const struct area *a)
{
    const struct saved_how *how = x->how;
    const size_t skip = how->parent ? cb_session_area_of(x->s, a, how->n_shared) : 0;
    struct area rest = *a;
    const void *at;

    TRY(cb_whole_bank_area(how->whole, a, &at));
    rest.from += skip;
    rest.at = (char *)(uintptr_t)at + skip;
    rest.bytes -= skip;
    return cb_bank_writer_add(x->w, &rest);
}

/* A checkpoint whose own file has it damaged: without it, a cut computes more tokens. */
static void leave_out(struct writing *x)
{
    const struct states *states = &x->s->bank.states;
    int32_t *counts = x->counts + cb_session_n_counts(x->s) - cb_states_n_counts(states);

    cb_states_uncount(counts, x->n_checkpoint);
    x->any_lost = 1;
}

/* A checkpoint may still be in the file that the session was loaded from. */
static int add_checkpoint(struct writing *x, const struct area *a)
{
    const struct checkpoint *c = x->s->bank.states.point[a->head].x;
    struct area full = *a;

    full.at = cb_checkpoint_memory(c);
    if (!full.at) {
        if (!x->read && !(x->read = cb_alloc_aligned(a->bytes, 1)))
            return CB_ENOMEM;
        if (cb_checkpoint_read(c, x->read)) {
            leave_out(x);
            return CB_OK;
        }
        full.at = x->read;
    }
    full.head = x->n_checkpoint++;
    return cb_bank_writer_add(x->w, &full);
}

static int add_areas(struct writing *x, const struct saved_head *head)
{
    struct area *a = NULL;
    int n = 0, err = cb_session_areas(x->s, &a, &n);

    for (int i = 0; !err && i < n; i++)
        err = a[i].kind == AREA_CHECKPOINT ? add_checkpoint(x, &a[i]) : add_rest(x, &a[i]);
    for (int i = 0; !err && i < head->n; i++)
        err = cb_bank_writer_add(x->w, &head->area[i]);
    free(a);
    return err;
}

static int add_all(const struct cb_session *s, const struct saved_how *how,
                   const struct saved_head *head, struct bank_writer *w)
{
    struct writing x = { .s = s, .how = how, .w = w };
    int err = add_counts(&x);

    if (!err)
        err = add_areas(&x, head);
    if (!err && x.any_lost)
        err = cb_bank_writer_replace(w, 0, x.counts);
    free(x.counts);
    free(x.read);
    return err;
}

static int name_parent(json_t *about, const struct saved_how *how)
{
    char id[SAVED_HEX];
    json_t *j;

    if (!how->parent)
        return CB_OK;
    cb_saved_hex(how->parent->file.id, id);
    j = json_pack("{s:s, s:s, s:i}", "file", cb_file_name(how->parent->file.path), "id", id,
                  "tokens", how->n_shared);
    return json_object_set_new(about, "continues", j) ? cb_json_fail("bank") : CB_OK;
}

enum { BEGIN_TOKENS = 32, BEGIN_BYTES = 80 };

/* The first words, by which people know a file again */
static int name_begin(json_t *about, const struct cb_session *s)
{
    const int n = s->bank.n_seen < BEGIN_TOKENS ? (int)s->bank.n_seen : BEGIN_TOKENS;
    cb_detokenizer *d;
    struct buf words = { 0 };
    json_t *j;

    TRY(cb_detokenizer_new(s->model, 0, &d));
    for (int i = 0; i < n && words.n < BEGIN_BYTES; i++) {
        const char *text;
        size_t len;
        if (cb_detokenizer_push(d, s->token[i], &text, &len))
            break;
        for (size_t k = 0; k < len; k++) { /* blanks, line ends and controls as one blank */
            const int blank = (unsigned char)text[k] <= ' ' || text[k] == 0x7f;
            if (!blank || (words.n && words.s[words.n - 1] != ' '))
                cb_buf_add(&words, blank ? " " : &text[k], 1);
        }
    }
    cb_detokenizer_free(d);
    j = words.failed ? NULL : cb_json_text(words.n ? words.s : "", words.n);
    cb_buf_free(&words);
    return !j || json_object_set_new(about, "begins", j) ? cb_json_fail("bank") : CB_OK;
}

/* The lowest format that says what the file has: versions before read the lower ones. */
static int format_of(const struct cb_session *s, const struct saved_how *how,
                     const struct saved_head *head)
{
    return cb_attention_has_strips(&s->attention) ? BANK_FILE_VERSION
           : head->n                              ? 3
           : how->parent                          ? 2
                                                  : 1;
}

static int write_all(const struct cb_session *s, const char *path, const struct saved_how *how,
                     const struct saved_head *head, const char *text)
{
    struct bank_writer *w;
    int err = cb_bank_writer_open(path, how->unsynced, &w);

    if (!err)
        err = add_all(s, how, head, w);
    /* also the cause of a write that failed */
    if (cb_session_check_files(s) || cb_saved_head_check(s))
        err = CB_EIO;
    if (!err)
        return cb_bank_writer_finish(w, format_of(s, how, head), text, strlen(text));
    cb_bank_writer_abort(w);
    return err;
}

int cb_saved_write(const struct cb_session *s, const char *path, const struct saved_how *how)
{
    struct saved_head head = { .n = 0 };
    char *text;
    int err;

    TRY(name_parent(how->about, how));
    TRY(name_begin(how->about, s));
    text = cb_json_dumps(how->about, JSON_INDENT(2));
    (void)json_object_del(how->about, "begins"); /* others are compared with the description */
    if (!text)
        return cb_json_fail("bank");
    /* a head's rows would be those of this rank */
    err = how->whole ? CB_OK : cb_saved_head_list(s, &head);
    if (!err)
        err = write_all(s, path, how, &head, text);
    cb_saved_head_free(&head);
    free(text);
    return err;
}

static int save(const struct cb_session *s, const char *path, struct saved_how *how)
{
    int err;

    TRY(cb_device_lock(s->dev));
    err = cb_saved_about(s, &how->about);
    if (!err)
        err = cb_saved_write(s, path, how);
    cb_device_unlock(s->dev);
    json_decref(how->about);
    return err;
}

int cb_session_save(const cb_session *s, const char *path)
{
    struct saved_how how = { .about = NULL };
    int err;

    if (!cb_in_step_has_bank(s))
        TRY(cb_in_step_alone(s, "save"));
    TRY(cb_session_check_idle(s));
    if (!cb_policy_is_listed(s->policy))
        return cb_fail(CB_EUNSUPPORTED, "%s: policy %s is not one of the library's", path,
                       s->policy->m->name);
    err = cb_whole_bank_open(s, &how.whole);
    if (!err)
        err = save(cb_whole_bank_session(how.whole, s), path, &how);
    cb_whole_bank_close(how.whole);
    return err;
}
