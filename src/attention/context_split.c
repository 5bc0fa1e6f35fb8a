/* SPDX-License-Identifier: MIT */
/* context_split.c - one context over several ranks.
 *
 * Slots are dealt out by blocks of positions: block b belongs to rank b % n. Layers with a window
 * hold little, so that every rank has all of their slots. Where a token reads some slots, all ranks
 * choose them together (rank_choice.c), and each reads those that it has.
 *
 * A prompt is dealt out as work: its tokens are cut into pieces of about the same length, n pieces
 * a step, and each rank puts its piece through the layer. The ranks share the rows of keys and
 * values of a step before they attend, so that a layer has all rows of the prompt until it settles.
 * In an empty timeline a query reads what it would read in one process, in one sum, with the same
 * bits. Later ranks' pieces read more, but by one step at most. After earlier tokens, of which no
 * rank has all slots, the step's queries are shared too, and go round (prompt_rounds.c). Then each
 * rank keeps its own slots.
 *
 * Where products need all ranks' rows, every rank puts all tokens through a layer. Of a chunk that
 * reads rows which all ranks have, each attends with its share of the queries, and the ranks share
 * the results.
 *
 * A short prompt and a decoded token are computed on every rank. Each attends to its own slots, and
 * the parts are joined in the order of ranks, on every rank with the same bits. New rows of a
 * prompt after earlier tokens are on all ranks until the layer settles; the rank reads them whose
 * queries they are, or rank 0 where each rank has all queries. */
#include "context_split.h"

#include <stdlib.h>
#include <string.h>

#include "bank/store_prepack.h"
#include "base/err.h"
#include "base/ints.h"
#include "context_pieces.h"
#include "rank_choice.h"
#include "reader.h"
#include "state_memory.h"

enum {
    LEAST_PIECE = 16, /* a prompt, or a chunk, with fewer tokens a rank is not dealt out */
    LINE = 16         /* floats of a cache line */
};

/* ---- open ---- */

/* Floats of a token's queries in layer l, and of its keys and values */
static size_t query_floats(const struct attention *a, int l)
{
    return (size_t)a->model->hp.n_head * (size_t)a->model->layer[l].hd;
}

static size_t row_floats(const struct attention *a, int l)
{
    return 2 * (size_t)a->model->layer[l].n_kv * (size_t)a->model->layer[l].hd;
}

/* Floats of the largest message: rows and queries of a step, or the part of a chunk's queries */
static size_t most_floats(const struct attention *a)
{
    size_t most = 0;

    for (int l = 0; l < a->bank->n_layer; l++) {
        most = max_size(most, row_floats(a, l) + (a->split->works ? query_floats(a, l) : 0));
        most = max_size(most, query_floats(a, l) + (size_t)a->model->hp.n_head);
    }
    most = max_size(most, (size_t)a->model->hp.n_stream * (size_t)a->model->hp.n_embd);
    return (most * (size_t)a->chunk + LINE) / LINE * LINE;
}

/* The least block that holds whole prepacked blocks, and what each reader chooses in one piece */
static int block_of(const struct attention *a)
{
    int block = KV_PREPACK;

    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct reader *r = a->layer[l]->r;
        const int by = a->split->deals[l] && r->deals_by ? r->deals_by(a, l) : 1;
        int least = block;
        while (least % by)
            least += block;
        block = least;
    }
    return block;
}

int cb_context_split_open(struct attention *a, struct ranks *team, const char *deals, int works)
{
    struct context_split *x;

    if (cb_ranks_n(team) == 1)
        return CB_OK;
    x = a->split = cb_state_new(sizeof *x);
    if (!x)
        return CB_ENOMEM;
    x->team = team;
    x->me = cb_ranks_me(team);
    x->n = cb_ranks_n(team);
    x->works = works;
    x->most = most_floats(a);
    x->deals = cb_state_calloc(x, (size_t)a->bank->n_layer, 1);
    x->row = cb_state_calloc(x, (size_t)a->bank->n_ctx, sizeof *x->row);
    x->keep = cb_state_calloc(x, (size_t)a->bank->n_ctx, sizeof *x->keep);
    x->mine = cb_state_alloc(x, x->most, sizeof *x->mine);
    x->all = cb_state_alloc(x, x->most * (size_t)x->n, sizeof *x->all);
    if (works) {
        x->step = cb_state_alloc(x, x->most * (size_t)x->n, sizeof *x->step);
        x->out = cb_state_alloc(x, x->most, sizeof *x->out);
    }
    TRY(cb_state_status(x));
    memcpy(x->deals, deals, (size_t)a->bank->n_layer);
    x->block = block_of(a);
    for (int l = 0; x->me && l < a->bank->n_layer; l++)
        if (deals[l])
            a->bank->store[l].sketch_out = 0; /* rank 0 has the first slots */
    return cb_rank_choice_open(team, &x->choice);
}

void cb_context_split_close(struct attention *a)
{
    if (a->split)
        cb_rank_choice_close(a->split->choice);
    cb_state_free(a->split);
    a->split = NULL;
}

size_t cb_context_split_bytes(const struct attention *a)
{
    const struct context_split *x = a->split;

    return x ? x->most * sizeof(float) * (size_t)(x->n + 1) * (x->works ? 2 : 1) +
                   cb_rank_choice_bytes(x->choice)
             : 0;
}

/* ---- whose slots ---- */

int cb_context_split_deals(const struct attention *a, int l)
{
    return a->split && a->split->deals[l];
}

int cb_context_split_deals_any(const struct attention *a)
{
    int any = 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        any |= cb_context_split_deals(a, l);
    return any;
}

int cb_context_split_ranks(const struct attention *a)
{
    return a->split ? a->split->n : 1;
}

int cb_context_split_block(const struct attention *a)
{
    return a->split->block;
}

struct rank_choice *cb_context_split_choice(const struct attention *a)
{
    return a->split ? a->split->choice : NULL;
}

static int owner(const struct context_split *x, int pos)
{
    return pos / x->block % x->n;
}

/* How many of positions 0..n-1 rank r keeps */
static int own_of(const struct context_split *x, int r, int n)
{
    const int64_t round = (int64_t)x->block * x->n, rest = n % round - (int64_t)x->block * r;

    return (int)(n / round * x->block + (rest < 0 ? 0 : rest < x->block ? rest : x->block));
}

int cb_context_split_own(const struct attention *a, int l, int n)
{
    return cb_context_split_deals(a, l) ? own_of(a->split, a->split->me, n) : n;
}

int cb_context_split_most_own(const struct attention *a, int l, int lo, int n)
{
    int most = cb_context_split_deals(a, l) ? 0 : n - lo;

    for (int r = 0; cb_context_split_deals(a, l) && r < a->split->n; r++)
        most = max_int(most, own_of(a->split, r, n) - own_of(a->split, r, lo));
    return most;
}

int cb_context_split_len(const struct attention *a, const struct chunk *c)
{
    return cb_context_split_deals(a, c->l) ? c->pos0 + c->n : a->bank->store[c->l].n[0];
}

void cb_context_split_traffic(const struct attention *a, int n, int *messages, uint64_t *bytes)
{
    *messages = 0;
    *bytes = 0;
    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct reader *r = a->layer[l]->r;
        int more = 0;
        if (!cb_context_split_deals(a, l))
            continue;
        *bytes +=
            (uint64_t)a->model->hp.n_head * (uint64_t)(a->model->layer[l].hd + 1) * sizeof(float);
        *bytes += r->choice_bytes ? r->choice_bytes(a, l, n, &more) : 0;
        *messages += 1 + more;
    }
}

/* ---- whose work ---- */

int cb_context_split_begin(struct attention *a, int n, const int **row)
{
    struct context_split *x = a->split;
    int m = 0;

    if (!x)
        return n;
    x->from = a->bank->n_seen;
    x->n_feed = n;
    x->n_step = 0;
    if (!x->works || n / x->n < LEAST_PIECE || (x->from && a->eviction))
        return n;
    x->n_step = (int)(((int64_t)n + (int64_t)x->n * a->chunk - 1) / ((int64_t)x->n * a->chunk));
    for (int j = 0; j < x->n_step; j++)
        for (int i = cb_piece(x, j * x->n + x->me); i < cb_piece(x, j * x->n + x->me + 1); i++)
            x->row[m++] = i;
    *row = x->row;
    return m;
}

int cb_context_split_deals_work(const struct attention *a)
{
    return a->split && a->split->works;
}

int cb_context_split_works(const struct attention *a)
{
    return a->split && !a->bank->decoding && a->split->n_step;
}

/* The first piece of the step that chunk c is of */
static int first_piece(const struct context_split *x, const struct chunk *c)
{
    return cb_piece_of(x, (c->pos ? c->pos[0] : c->pos0) - x->from) / x->n * x->n;
}

int cb_context_split_step(const struct attention *a, int i)
{
    const struct context_split *x = a->split;
    int at;

    if (!cb_context_split_works(a))
        return INT32_MAX;
    at = x->row[i];
    return cb_piece(x, cb_piece_of(x, at) + 1) - at;
}

/* ---- append ---- */

/* Keys and values of c, and its queries with queries 1 -> mine[c->n][width] */
static void pack_rows(const struct context_split *x, const struct chunk *c, size_t row,
                      size_t width)
{
    for (int i = 0; i < c->n; i++) {
        const size_t at = (size_t)i * (size_t)c->stride;
        float *to = x->mine + (size_t)i * width;
        memcpy(to, c->k + at, row * sizeof *to);
        memcpy(to + row, c->v + at, row * sizeof *to);
        memcpy(to + 2 * row, c->q + at, (width - 2 * row) * sizeof *to);
    }
}

int cb_context_split_goes_round(const struct attention *a, int l)
{
    return cb_context_split_works(a) && cb_context_split_joins(a, l);
}

/* Floats that a token of a step sends */
static size_t width_of(const struct attention *a, int l)
{
    return row_floats(a, l) + (cb_context_split_goes_round(a, l) ? query_floats(a, l) : 0);
}

/* Stores the rows of all pieces of the step that c is of; its queries stay in step. */
static int append_step(struct attention *a, const struct chunk *c)
{
    const struct context_split *x = a->split;
    const size_t row = row_floats(a, c->l) / 2, width = width_of(a, c->l);
    const int first = first_piece(x, c);
    const size_t most = (size_t)cb_piece_most(x) * width;

    pack_rows(x, c, row, width);
    memset(x->mine + (size_t)c->n * width, 0, (most - (size_t)c->n * width) * sizeof(float));
    TRY(cb_ranks_share(x->team, x->mine, most * sizeof(float), x->step));
    for (int r = 0; r < x->n; r++) {
        const float *k = x->step + (size_t)r * most;
        const int at = cb_piece(x, first + r), n = cb_piece(x, first + r + 1) - at;
        TRY(cb_store_append(&a->bank->store[c->l], a->dev, k, k + row, (int)width, n,
                            x->from + at));
    }
    return 1;
}

void cb_context_split_piece(const struct attention *a, const struct chunk *c, int r,
                            struct chunk *of)
{
    const struct context_split *x = a->split;
    const size_t width = width_of(a, c->l);
    const int p = first_piece(x, c) + r;

    *of = (struct chunk){ .l = c->l,
                          .q = x->step + (size_t)r * (size_t)cb_piece_most(x) * width +
                               row_floats(a, c->l),
                          .stride = (int)width,
                          .n = cb_piece(x, p + 1) - cb_piece(x, p),
                          .pos0 = x->from + cb_piece(x, p),
                          .pos_end = x->from + x->n_feed };
}

float *cb_context_split_out(const struct attention *a, int r, float *own)
{
    return r == a->split->me ? own : a->split->out;
}

int cb_context_split_append(struct attention *a, const struct chunk *c)
{
    const struct context_split *x = a->split;

    if (!x)
        return 0;
    if (cb_context_split_deals(a, c->l)) {
        if (a->bank->decoding && owner(x, c->pos0) != x->me)
            return 1;
        TRY(cb_store_list_positions(&a->bank->store[c->l]));
    }
    return cb_context_split_works(a) ? append_step(a, c) : 0;
}

/* ---- attend ---- */

int cb_context_split_joins(const struct attention *a, int l)
{
    return cb_context_split_deals(a, l) && (a->bank->decoding || a->split->from);
}

/* The prompt's tokens up to the last of chunk c */
static int end_of(const struct context_split *x, const struct chunk *c)
{
    return (c->pos ? c->pos[c->n - 1] : c->pos0 + c->n - 1) - x->from + 1;
}

/* Does this rank read the new rows of a prompt whose parts are joined, for chunk c? Where queries
 * go round, the rank that owns the queries does. */
static int reads_new(const struct attention *a, const struct chunk *c)
{
    const int from = cb_context_split_goes_round(a, c->l)
                         ? cb_piece_of(a->split, c->pos0 - a->split->from) % a->split->n
                         : 0;
    return from == a->split->me;
}

int cb_context_split_unread(const struct attention *a, const struct chunk *c, int *causal)
{
    const struct context_split *x = a->split;

    if (!x || a->bank->decoding)
        return 0;
    if (!cb_context_split_joins(a, c->l) || reads_new(a, c))
        return x->n_step ? cb_piece(x, first_piece(x, c) + x->n) - end_of(x, c) : 0;
    *causal = 0;
    return a->bank->store[c->l].n[0] - cb_context_split_own(a, c->l, x->from);
}

/* Do all ranks have the rows that chunk c reads, and is it computed on every rank? */
static int deals_queries(const struct attention *a, const struct chunk *c)
{
    const struct context_split *x = a->split;

    return x && !x->works && !a->bank->decoding && !c->pos && c->n / x->n >= LEAST_PIECE &&
           !cb_context_split_joins(a, c->l);
}

int cb_context_split_queries(const struct attention *a, const struct chunk *c, int *first)
{
    const int deals = deals_queries(a, c);

    *first = deals ? cb_query_share(a->split, a->split->me, c->n) : 0;
    return deals ? cb_query_share(a->split, a->split->me + 1, c->n) - *first : c->n;
}

int cb_context_split_join(struct attention *a, const struct attention_call *call)
{
    const struct context_split *x = a->split;
    const int hd = a->model->layer[call->c.l].hd, n_row = call->c.n * a->model->hp.n_head;
    const size_t n_out = (size_t)n_row * (size_t)hd, n = n_out + (size_t)n_row;

    memcpy(x->mine, call->out, n_out * sizeof(float));
    memcpy(x->mine + n_out, call->lse, (size_t)n_row * sizeof(float));
    TRY(cb_ranks_share(x->team, x->mine, n * sizeof(float), x->all));
    memcpy(call->out, x->all, n_out * sizeof(float));
    memcpy(call->lse, x->all + n_out, (size_t)n_row * sizeof(float));
    for (int r = 1; r < x->n; r++) {
        const float *part = x->all + (size_t)r * n;
        a->dev->ops->join(a->dev, call->out, call->lse, part, part + n_out, n_row, hd);
    }
    return CB_OK;
}

/* ---- settle ---- */

/* Blocks are prepacked whole, and dealt out whole. */
static int keep_own(struct attention *a, int l)
{
    struct context_split *x = a->split;
    struct store *st = &a->bank->store[l];
    int n = 0, prepacked = 0;

    for (int i = 0; i < st->n[0]; i++)
        if (owner(x, cb_store_pos(st, 0, i)) == x->me) {
            x->keep[n++] = i;
            prepacked += i < st->prepacked;
        }
    for (int h = 0; h < st->n_kv; h++)
        cb_store_deal_steps(st, h, x->keep, prepacked);
    st->prepacked = prepacked;
    for (int h = 0; h < st->n_kv; h++)
        TRY(cb_store_deal_out(st, h, x->keep, n));
    cb_store_sketch_deal_out(st, x->keep, n);
    return CB_OK;
}

int cb_context_split_settle(struct attention *a, int l)
{
    return cb_context_split_deals(a, l) && !a->bank->decoding ? keep_own(a, l) : CB_OK;
}

int cb_context_split_loaded(struct attention *a)
{
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_context_split_deals(a, l)) {
            TRY(cb_store_list_positions(&a->bank->store[l]));
            TRY(keep_own(a, l));
        }
    cb_context_split_forget(a);
    return CB_OK;
}

void cb_context_split_forget(struct attention *a)
{
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->deals_by && a->reading[i].r->clear)
            a->reading[i].r->clear(a, a->reading[i].x);
}
