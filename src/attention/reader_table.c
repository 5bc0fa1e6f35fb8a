/* SPDX-License-Identifier: MIT */
/* reader_table.c - the table of readers, and which of them a session's layers have. */
#include "reader_table.h"

#include <stdlib.h>

#include "base/err.h"
#include "state_memory.h"

extern const struct reader cb_reader_block_means;
extern const struct reader cb_reader_chooser;
extern const struct reader cb_reader_chosen;
extern const struct reader cb_reader_clamped_positions;
extern const struct reader cb_reader_compact_positions;
extern const struct reader cb_reader_cross_layer;
extern const struct reader cb_reader_ends;
extern const struct reader cb_reader_entries;
extern const struct reader cb_reader_far_blocks;
extern const struct reader cb_reader_key_pages;
extern const struct reader cb_reader_mixer;
extern const struct reader cb_reader_own_slots;
extern const struct reader cb_reader_pairs;
extern const struct reader cb_reader_partial_keys;
extern const struct reader cb_reader_rolling;
extern const struct reader cb_reader_selected_blocks;
extern const struct reader cb_reader_selected_tokens;
extern const struct reader cb_reader_sketched_keys;
extern const struct reader cb_reader_whole;
extern const struct reader cb_reader_window_chooser;

static const struct reader *const table[] = {
    &cb_reader_whole, /* of layers that no other one claims */
    &cb_reader_block_means,
    &cb_reader_chooser,
    &cb_reader_chosen,
    &cb_reader_clamped_positions,
    &cb_reader_compact_positions,
    &cb_reader_cross_layer,
    &cb_reader_ends,
    &cb_reader_entries,
    &cb_reader_far_blocks,
    &cb_reader_key_pages,
    &cb_reader_mixer,
    &cb_reader_own_slots,
    &cb_reader_pairs,
    &cb_reader_partial_keys,
    &cb_reader_rolling,
    &cb_reader_selected_blocks,
    &cb_reader_selected_tokens,
    &cb_reader_sketched_keys,
    &cb_reader_window_chooser,
};

enum { N_READERS = sizeof table / sizeof *table };

const struct reader *cb_reader_at(int i)
{
    return i < N_READERS ? table[i] : NULL;
}

/* The one reader that claims layer l, of those with this trait READ_STATE or of those without it.
 * NULL: none does, or two do -> two[2] */
static const struct reader *claimer(unsigned state, const struct claim *c,
                                    const struct reader *two[2])
{
    const struct reader *found = NULL;

    two[0] = two[1] = NULL;
    for (int i = 0; i < N_READERS; i++) {
        if ((table[i]->traits & READ_STATE) != state || !table[i]->claims || !table[i]->claims(c))
            continue;
        if (found) {
            two[0] = found;
            two[1] = table[i];
            return NULL;
        }
        found = table[i];
    }
    return found;
}

const struct reader *cb_reader_of(const struct layer_plan *row, int n_layer, int l,
                                  const struct layer *y, const struct reader *two[2])
{
    const struct claim c = { row + l, l, n_layer, y };
    const struct reader *r = claimer(0, &c, two);

    return r || two[0] ? r : table[0];
}

/* The session's reading by r, which may be new */
static struct reading *reading_by(struct attention *a, const struct reader *r)
{
    int i = 0;

    while (i < a->n_reading && a->reading[i].r != r)
        i++;
    a->n_reading = i < a->n_reading ? a->n_reading : i + 1;
    a->reading[i].r = r;
    a->traits |= r->traits;
    return &a->reading[i];
}

static int assign(struct attention *a, int l)
{
    const struct claim c = { a->plan + l, l, a->bank->n_layer, &a->model->layer[l] };
    const struct reader *two[2], *rows = cb_reader_of(a->plan, c.n_layer, l, c.y, two);
    const struct reader *state = rows ? claimer(READ_STATE, &c, two) : NULL;

    if (two[0])
        return cb_policy_refuse(a->policy, "layer %d is to be read in two ways: %s, and %s", l,
                                two[0]->name, two[1]->name);
    a->layer[l] = reading_by(a, rows);
    a->beside[l] = state ? reading_by(a, state) : NULL;
    return CB_OK;
}

int cb_readers_assign(struct attention *a)
{
    const size_t n = (size_t)a->bank->n_layer;

    a->layer = cb_calloc(n, sizeof *a->layer);
    a->beside = cb_calloc(n, sizeof *a->beside);
    a->reading = cb_calloc(N_READERS, sizeof *a->reading);
    if (!a->layer || !a->beside || !a->reading)
        return CB_ENOMEM;
    for (int l = 0; l < a->bank->n_layer; l++)
        TRY(assign(a, l));
    return CB_OK;
}

int cb_readers_open(struct attention *a)
{
    for (int i = 0; i < a->n_reading; i++)
        TRY(cb_state_open(a->reading[i].r->state, a->reading[i].r->open, a, &a->reading[i].x));
    return CB_OK;
}

void cb_readers_close(struct attention *a)
{
    for (int i = 0; i < a->n_reading; i++) {
        if (a->reading[i].x && a->reading[i].r->close)
            a->reading[i].r->close(a, a->reading[i].x);
        cb_state_free(a->reading[i].x);
    }
    free(a->reading);
    free(a->layer);
    free(a->beside);
}
