/* SPDX-License-Identifier: MIT */
/* rows_ahead.c - stored rows that come to a device a layer ahead of need: those of layers that will
 * read all that they have now, and drop none of it before. */
#include "rows_ahead.h"

#include <stdlib.h>

#include "attend.h"
#include "bank/store_state.h"
#include "base/err.h"
#include "prefill/sparse_prefill.h"
#include "readers/cross_layer.h"
#include "readers/far_blocks.h"
#include "readers/own_slots.h"
#include "readers/pairs.h"
#include "readers/ranks.h"
#include "readers/sketch_choice.h"

static int reads_all(const struct attention *a, int l)
{
    const struct layer_plan *p = &a->plan[l];

    if (cb_attend_forgets(a, l) || cb_attend_chunk(a, l) || p->rolling || cb_cross_layer_is(a, l) ||
        cb_far_is(a, l) || cb_own_slots_is(a, l) || cb_ranks_is(a, l) || cb_pairs_restores(a, l))
        return 0;
    if (a->bank->decoding)
        return p->reads < 0 && !cb_sketch_choice_is(a, l);
    return !cb_sparse_prefill_is(a) && !a->blocks && !p->prompt_window;
}

void cb_attention_rows_ahead(const struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];
    struct kv_run *run = cb_calloc((size_t)st->n_kv, sizeof *run);
    int n = 0;

    if (!run)
        return;
    for (int h = 0; h < st->n_kv && reads_all(a, l) && !st->kivi && st->hole[h] < 0; h++)
        run[n++] = cb_store_run(st, h, 0, st->n[h]);
    a->dev->ops->memory->ahead(a->dev, run, n == st->n_kv ? n : 0);
    free(run);
}
