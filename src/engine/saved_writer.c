/* SPDX-License-Identifier: MIT */
/* saved_writer.c - a session to a file: its description and the areas of session_state.h. */
#include "saved_writer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bank/checkpoint.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "in_step.h"
#include "saved_about.h"
#include "saved_head.h"
#include "session_state.h"
#include "whole_bank.h"

/* Of an area, only what the file that is continued lacks */
static int add_rest(const struct cb_session *s, const struct area *a, const struct saved_how *how,
                    struct bank_writer *w)
{
    const size_t skip = how->parent ? cb_session_area_of(s, a, how->n_shared) : 0;
    struct area rest = *a;
    const void *at;

    TRY(cb_whole_bank_area(how->whole, a, &at));
    rest.from += skip;
    rest.at = (char *)(uintptr_t)at + skip;
    rest.bytes -= skip;
    return cb_bank_writer_add(w, &rest);
}

/* A checkpoint may still be in the file that the session was loaded from. */
static int add_checkpoint(const struct cb_session *s, const struct area *a, struct bank_writer *w)
{
    const struct checkpoint *c = s->bank.states.point[a->head].x;
    struct area full = *a;
    void *read = NULL;
    int err = CB_OK;

    full.at = cb_checkpoint_memory(c);
    if (!full.at) {
        full.at = read = cb_calloc(a->bytes, 1);
        err = read ? cb_checkpoint_read(c, read) : CB_ENOMEM;
    }
    if (!err)
        err = cb_bank_writer_add(w, &full);
    free(read);
    return err;
}

static int add_head(const struct saved_head *head, struct bank_writer *w)
{
    for (int i = 0; i < head->n; i++)
        TRY(cb_bank_writer_add(w, &head->area[i]));
    return CB_OK;
}

static int add_all(const struct cb_session *s, const struct saved_how *how, struct bank_writer *w)
{
    const int n_counts = cb_session_n_counts(s);
    int32_t *counts = cb_calloc((size_t)n_counts, sizeof *counts);
    struct area *a = NULL;
    int n = 0, err = counts ? cb_session_areas(s, &a, &n) : CB_ENOMEM;

    if (!err) {
        cb_session_counts(s, counts);
        err = cb_bank_writer_add(
            w, &(struct area){ AREA_COUNTS, 0, 0, 0, counts, (size_t)n_counts * sizeof *counts });
    }
    for (int i = 0; !err && i < n; i++)
        err =
            a[i].kind == AREA_CHECKPOINT ? add_checkpoint(s, &a[i], w) : add_rest(s, &a[i], how, w);
    free(counts);
    free(a);
    return err;
}

static int name_parent(json_t *about, const struct saved_how *how)
{
    char id[SAVED_HEX];
    json_t *j;

    if (!how->parent)
        return CB_OK;
    cb_saved_hex(how->parent->file.id, id);
    j = json_pack("{s:s, s:s, s:i}", "file", cb_saved_name(how->parent->file.path), "id", id,
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

static int write_all(const struct cb_session *s, const char *path, const struct saved_how *how,
                     const struct saved_head *head, const char *text)
{
    struct bank_writer *w;
    int err = cb_bank_writer_open(path, how->unsynced, &w);

    if (!err)
        err = add_all(s, how, w);
    if (!err)
        err = add_head(head, w);
    if (cb_session_check_files(s)) /* also the cause of a write that failed */
        err = CB_EIO;
    if (!err)
        return cb_bank_writer_finish(w, head->n ? 3 : how->parent ? 2 : 1, text, strlen(text));
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
    /* a new file has new checksums; without a damaged checkpoint, the session stays the same */
    TRY(cb_states_drop_damaged((struct states *)(uintptr_t)&s->bank.states));
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
