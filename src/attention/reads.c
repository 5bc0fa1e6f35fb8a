/* SPDX-License-Identifier: MIT */
/* reads.c - from the parts of a decoded token back to the tokens that it has read. */
#include "reads.h"

#include "parts.h"

int cb_reads_by_head(const struct attention *a)
{
    for (int i = 0; i < cb_parts_n(a); i++)
        if (cb_parts_at(a, i)->by_head || cb_parts_at(a, i)->skip <= 1)
            return 1;
    return 0;
}

/* The slot of a run's first entry. A run that does not lie in the store is a copy of first slots.
 */
static int first_slot(const struct store *st, int kv, const struct kv_run *run)
{
    const uintptr_t from = (uintptr_t)cb_store_value(st, kv, 0), at = (uintptr_t)run->v;

    if (run->kivi)
        return run->first;
    return at >= from && at < from + st->head_v ? (int)((at - from) / st->row_v) : 0;
}

/* Does the run list the rows of its slots, and not slots? */
static int lists_rows(const struct store *st, int kv, const struct kv_run *run)
{
    const int32_t *rows = st->mixed[kv] ? st->row + cb_store_at(st, kv, 0) : NULL;

    return rows && (uintptr_t)run->idx >= (uintptr_t)rows &&
           (uintptr_t)run->idx < (uintptr_t)(rows + st->cap);
}

static void mark_run(const struct store *st, int kv, const struct part *p, const struct kv_run *run,
                     uint8_t *mark)
{
    const int rows = lists_rows(st, kv, run), lists = run->idx && !rows;
    const int hidden = p->window && p->window < run->n ? run->n - p->window : 0;
    int first = lists && !run->kivi ? 0 : first_slot(st, kv, run);

    if (rows)
        first = (int)(run->idx - (st->row + cb_store_at(st, kv, 0)));
    /* rows in the order of memory are all slots; what a window hides is in front in either order */
    for (int j = hidden; j < run->n; j++)
        mark[cb_store_pos(st, kv, first + (lists ? run->idx[j] : j))] = 1;
}

void cb_reads_mark(const struct attention *a, int l, int h, uint8_t *mark)
{
    const int kv = h / cb_attention_group(a);

    for (int i = 0; i < cb_parts_n(a); i++) {
        const struct part *p = cb_parts_at(a, i);
        if (!cb_parts_left_out(a, i, h))
            mark_run(&a->bank->store[l], kv, p, &cb_parts_runs(a, i)[p->by_head ? h : kv], mark);
    }
}
