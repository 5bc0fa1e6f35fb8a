/* SPDX-License-Identifier: MIT */
/* rows_ahead.c - prefetches stored rows to a device, one layer ahead: rows of layers that will read
 * all of their present rows and drop none of them before. */
#include <stdlib.h>

#include "attend.h"
#include "bank/store_state.h"
#include "base/err.h"
#include "prefill.h"
#include "reader.h"

static int reads_all(const struct attention *a, int l)
{
    if (cb_attend_forgets(a, l) || cb_attend_chunk(a, l))
        return 0;
    return a->bank->decoding ? cb_reader_has(a, l, READ_STEP)
                             : cb_reader_has(a, l, READ_PROMPT) && !cb_prefill_is(a);
}

void cb_attention_rows_ahead(const struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];
    struct kv_run *run = cb_calloc((size_t)st->n_kv, sizeof *run);
    const int reads = reads_all(a, l);
    int n = 0;

    if (!run)
        return;
    for (int h = 0; h < st->n_kv && reads && !st->kivi && st->hole[h] < 0; h++)
        run[n++] = cb_store_run(st, h, 0, st->n[h]);
    a->dev->ops->memory->ahead(a->dev, run, n == st->n_kv ? n : 0);
    free(run);
}
