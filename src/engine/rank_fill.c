/* SPDX-License-Identifier: MIT */
/* rank_fill.c - a saved bank fills the sessions of all ranks, or none. */
#include "rank_fill.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "in_step.h"
#include "orders.h"

/* What a rank says of it */
struct filled {
    int64_t status;
    uint64_t id; /* of the file */
};

/* CB_OK where all ranks have filled theirs, from the same file; else a failure, with this rank's
 * message where it failed too */
static int all_filled(struct in_step *x, int err, uint64_t id, const char *path)
{
    const int n = cb_ranks_n(x->team);
    struct filled mine = { err, id }, *all = cb_calloc((size_t)n, sizeof *all);
    int failed = all ? cb_ranks_share(x->team, &mine, sizeof mine, all) : CB_ENOMEM;

    for (int r = 0; !failed && !err && r < n; r++)
        if (all[r].status || all[r].id != id)
            failed = cb_fail(CB_EIO, "%s: rank %d (%s) cannot read the same file", path, r,
                             cb_ranks_host(x->team, r));
    free(all);
    return err ? err : failed;
}

int cb_rank_fill(struct cb_session *s, const struct saved_bank *b, int n)
{
    const char *path = b->file.path;
    const int32_t number = n;
    struct buf order = { 0 };
    int err;

    if (!s->in_step)
        return cb_saved_fill_first(b, n, s);
    cb_buf_add(&order, (const char *)&number, sizeof number);
    cb_buf_add(&order, path, strlen(path) + 1);
    err = order.failed ? CB_ENOMEM : cb_in_step_begin(s, VERB_FILL, order.s, order.n);
    cb_buf_free(&order);
    TRY(err);
    err = all_filled(s->in_step, cb_saved_fill_first(b, n, s), b->file.id, path);
    (void)cb_in_step_end(s->in_step, CB_OK); /* all ranks know of a failure */
    return err;
}

int cb_rank_fill_told(struct cb_session *s, const char *path, int n)
{
    struct saved_bank *b;
    int err = cb_saved_open(path, &b);

    if (!err)
        err = cb_saved_fill_first(b, n, s);
    (void)all_filled(s->in_step, err, b ? b->file.id : 0, path);
    cb_saved_close(b);
    return CB_OK;
}
