/* SPDX-License-Identifier: MIT */
/* context_split.c - one context over several ranks.
 *
 * Slots are dealt out by blocks of positions: block b belongs to rank b % n. Layers with a window
 * hold little, so that every rank has all of their slots. Where a token reads some slots, all ranks
 * choose them together (rank_choice.c), and each reads those that it has.
 *
 * A prompt in an empty timeline is dealt out as work: its tokens are cut into pieces of about the
 * same length, n pieces a step, and each rank puts its piece through the layer. The ranks share the
 * rows of keys and values of a step before they attend, so that a layer has all rows until it
 * settles: a query reads what it would read in one process, in one sum, with the same bits. Later
 * ranks' pieces read more, but by one step at most. Then each rank keeps its own slots.
 *
 * Where products need all ranks' rows, every rank puts all tokens through a layer. Of a chunk that
 * reads rows which all ranks have, each attends with its share of the queries, and the ranks share
 * the results.
 *
 * A short prompt, one after earlier tokens, and a decoded token are computed on every rank. Each
 * attends to its own slots, and the parts are joined in the order of ranks, on every rank with the
 * same bits. New rows of a prompt are on all ranks until the layer settles; rank 0 reads them. */
#include "context_split.h"

#include <stdlib.h>
#include <string.h>

#include "bank/store_prepack.h"
#include "base/err.h"
#include "base/ints.h"
#include "rank_choice.h"
#include "reader.h"
#include "state_memory.h"

enum {
    LEAST_PIECE = 16, /* a prompt, or a chunk, with fewer tokens a rank is not dealt out */
    LINE = 16         /* floats of a cache line */
};

struct context_split {
    struct ranks *team;
    int me, n;
    int block;          /* positions that are dealt out together, a multiple of KV_PREPACK */
    char *deals;        /* [n_layer] */
    int works;          /* 1: a prompt is dealt out as work */
    int *row;           /* [n_ctx] tokens of the prompt that this rank computes */
    int from;           /* position where the prompt began */
    int n_feed, n_step; /* its tokens, and steps a layer; 0: each rank computes all tokens */
    int *keep;          /* [n_ctx] */
    size_t most;        /* floats of a message */
    float *mine, *all;  /* [most], [n][most] */
    struct rank_choice *choice;
};

/* ---- open ---- */

/* Floats of the largest message: rows of a step, or the part of a chunk's queries */
static size_t most_floats(const struct attention *a)
{
    size_t most = 0;

    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct layer *y = &a->model->layer[l];
        const size_t rows = 2 * (size_t)y->n_kv * (size_t)y->hd;
        const size_t part = (size_t)a->model->hp.n_head * ((size_t)y->hd + 1);
        most = rows > most ? rows : most;
        most = part > most ? part : most;
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

    return x ? x->most * sizeof(float) * (size_t)(x->n + 1) + cb_rank_choice_bytes(x->choice) : 0;
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

/* The first token of piece p of the prompt; the piece after the last one begins at its end. */
static int piece(const struct context_split *x, int p)
{
    return (int)((int64_t)p * x->n_feed / ((int64_t)x->n_step * x->n));
}

int cb_context_split_begin(struct attention *a, int n, const int **row)
{
    struct context_split *x = a->split;
    int m = 0;

    if (!x)
        return n;
    x->from = a->bank->n_seen;
    x->n_feed = n;
    x->n_step = 0;
    if (!x->works || x->from || n / x->n < LEAST_PIECE)
        return n;
    x->n_step = (int)(((int64_t)n + (int64_t)x->n * a->chunk - 1) / ((int64_t)x->n * a->chunk));
    for (int j = 0; j < x->n_step; j++)
        for (int i = piece(x, j * x->n + x->me); i < piece(x, j * x->n + x->me + 1); i++)
            x->row[m++] = i;
    *row = x->row;
    return m;
}

/* A piece may have one token less than others. */
static int most_piece(const struct context_split *x)
{
    return (int)(x->n_feed / ((int64_t)x->n_step * x->n) + 1);
}

int cb_context_split_deals_work(const struct attention *a)
{
    return a->split && a->split->works;
}

int cb_context_split_works(const struct attention *a)
{
    return a->split && !a->bank->decoding && a->split->n_step;
}

/* The step of a layer that puts token i of the prompt through it on this rank */
static int step_of(const struct context_split *x, int i)
{
    int j = 0;

    while (piece(x, j * x->n + x->me + 1) <= i)
        j++;
    return j;
}

int cb_context_split_step(const struct attention *a, int i)
{
    const struct context_split *x = a->split;
    int at;

    if (!cb_context_split_works(a))
        return INT32_MAX;
    at = x->row[i];
    return piece(x, step_of(x, at) * x->n + x->me + 1) - at;
}

int cb_context_split_last(const struct attention *a, float *x, int n)
{
    if (!cb_context_split_works(a))
        return CB_OK;
    return cb_ranks_tell(a->split->team, a->split->n - 1, x, (size_t)n * sizeof *x, 0);
}

/* The rows of a step are at or after those of the rank's own that are still to be shared. */
int cb_context_split_gather(const struct attention *a, float *rows, int n)
{
    const struct context_split *x = a->split;
    const size_t row = (size_t)n;
    int end = 0;

    if (!cb_context_split_works(a))
        return CB_OK;
    for (int j = 0; j < x->n_step; j++)
        end += piece(x, j * x->n + x->me + 1) - piece(x, j * x->n + x->me);
    for (int j = x->n_step - 1; j >= 0; j--) {
        const int own = piece(x, j * x->n + x->me + 1) - piece(x, j * x->n + x->me);
        const size_t most = (size_t)most_piece(x) * row;
        memset(x->mine, 0, most * sizeof *x->mine);
        memcpy(x->mine, rows + (size_t)(end -= own) * row, (size_t)own * row * sizeof *rows);
        TRY(cb_ranks_share(x->team, x->mine, most * sizeof *x->mine, x->all));
        for (int r = 0; r < x->n; r++) {
            const int at = piece(x, j * x->n + r), m = piece(x, j * x->n + r + 1) - at;
            memcpy(rows + (size_t)at * row, x->all + (size_t)r * most,
                   (size_t)m * row * sizeof *rows);
        }
    }
    return CB_OK;
}

/* The rank that computes token i of the prompt */
static int rank_of(const struct context_split *x, int i)
{
    int p = (int)((int64_t)i * x->n_step * x->n / x->n_feed);

    while (piece(x, p + 1) <= i)
        p++;
    while (piece(x, p) > i)
        p--;
    return p % x->n;
}

/* Rows of tokens from..end-1 -> rows[end - from][row] on every rank; own[]: this rank's, in order
 */
static int share_rows(const struct context_split *x, int from, int end, const float *own,
                      size_t row, float *rows)
{
    const size_t n = (size_t)(end - from) * row;

    memset(x->mine, 0, n * sizeof *x->mine);
    for (int i = from; i < end; i++)
        if (rank_of(x, i) == x->me) {
            memcpy(x->mine + (size_t)(i - from) * row, own, row * sizeof *own);
            own += row;
        }
    TRY(cb_ranks_share(x->team, x->mine, n * sizeof *x->mine, x->all));
    for (int i = from; i < end; i++)
        memcpy(rows + (size_t)(i - from) * row,
               x->all + (size_t)rank_of(x, i) * n + (size_t)(i - from) * row, row * sizeof *rows);
    return CB_OK;
}

/* From the last tokens to the first: a token's row does not move towards the begin. */
int cb_context_split_last_rows(const struct attention *a, float *rows, size_t row, int n)
{
    const struct context_split *x = a->split;
    const int first = cb_context_split_works(a) ? x->n_feed - n : 0, step = (int)(x->most / row);
    int left = 0;

    if (!cb_context_split_works(a))
        return CB_OK;
    for (int i = first; i < x->n_feed; i++)
        left += rank_of(x, i) == x->me;
    for (int end = x->n_feed; end > first; end -= step) {
        const int from = max_int(first, end - step);
        for (int i = from; i < end; i++)
            left -= rank_of(x, i) == x->me;
        TRY(share_rows(x, from, end, rows + (size_t)left * row, row,
                       rows + (size_t)(from - first) * row));
    }
    return CB_OK;
}

int cb_context_split_last_of(const struct attention *a, float *ring, size_t row, int w)
{
    const struct context_split *x = a->split;
    const int n = min_int(w, a->bank->n_feed), skip = a->bank->n_feed - n;
    float *rows;
    int err, own = 0;

    if (!cb_context_split_works(a))
        return CB_OK;
    if (!(rows = cb_calloc((size_t)n * row, sizeof *rows)))
        return CB_ENOMEM;
    for (int i = skip; i < skip + n; i++)
        if (rank_of(x, i) == x->me)
            memcpy(rows + (size_t)own++ * row, ring + (size_t)((x->from + i) % w) * row,
                   row * sizeof *rows);
    err = cb_context_split_last_rows(a, rows, row, n);
    for (int i = 0; !err && i < n; i++)
        memcpy(ring + (size_t)((x->from + skip + i) % w) * row, rows + (size_t)i * row,
               row * sizeof *rows);
    free(rows);
    return err;
}

/* ---- append ---- */

/* Keys and values of c -> mine[c->n][2][n_kv * hd] */
static void pack_rows(const struct context_split *x, const struct chunk *c, size_t row)
{
    for (int i = 0; i < c->n; i++) {
        float *to = x->mine + (size_t)i * 2 * row;
        memcpy(to, c->k + (size_t)i * (size_t)c->stride, row * sizeof *to);
        memcpy(to + row, c->v + (size_t)i * (size_t)c->stride, row * sizeof *to);
    }
}

/* Stores the rows of all pieces of the step that c is of. */
static int append_step(struct attention *a, const struct chunk *c)
{
    const struct context_split *x = a->split;
    struct store *st = &a->bank->store[c->l];
    const size_t row = (size_t)st->n_kv * (size_t)st->hd;
    const int first = step_of(x, c->pos[0] - x->from) * x->n;
    const size_t most = (size_t)most_piece(x) * 2 * row;

    pack_rows(x, c, row);
    memset(x->mine + (size_t)c->n * 2 * row, 0, (most - (size_t)c->n * 2 * row) * sizeof(float));
    TRY(cb_ranks_share(x->team, x->mine, most * sizeof(float), x->all));
    for (int r = 0; r < x->n; r++) {
        const float *k = x->all + (size_t)r * most;
        const int at = piece(x, first + r), n = piece(x, first + r + 1) - at;
        TRY(cb_store_append(st, a->dev, k, k + row, (int)(2 * row), n, x->from + at));
    }
    return 1;
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

int cb_context_split_unread(const struct attention *a, const struct chunk *c, int *causal)
{
    const struct context_split *x = a->split;

    if (cb_context_split_works(a)) {
        const int own = step_of(x, c->pos[0] - x->from) * x->n + x->me;
        return piece(x, own - x->me + x->n) - piece(x, own + 1);
    }
    if (!cb_context_split_joins(a, c->l) || a->bank->decoding || !x->me)
        return 0;
    *causal = 0;
    return a->bank->store[c->l].n[0] - cb_context_split_own(a, c->l, x->from);
}

/* The first query of rank r's share of a chunk of n; the share after the last one begins at n. */
static int share_of(const struct context_split *x, int r, int n)
{
    return (int)((int64_t)r * n / x->n);
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

    *first = deals ? share_of(a->split, a->split->me, c->n) : 0;
    return deals ? share_of(a->split, a->split->me + 1, c->n) - *first : c->n;
}

/* Of rows[n][row], of which this rank has its queries' -> all of them */
static int share_queries(const struct context_split *x, float *rows, size_t row, int n)
{
    const size_t most = (size_t)(n / x->n + 1) * row;

    memset(x->mine, 0, most * sizeof *x->mine);
    memcpy(x->mine, rows + (size_t)share_of(x, x->me, n) * row,
           (size_t)(share_of(x, x->me + 1, n) - share_of(x, x->me, n)) * row * sizeof *rows);
    TRY(cb_ranks_share(x->team, x->mine, most * sizeof *x->mine, x->all));
    for (int r = 0; r < x->n; r++) {
        const int first = share_of(x, r, n);
        memcpy(rows + (size_t)first * row, x->all + (size_t)r * most,
               (size_t)(share_of(x, r + 1, n) - first) * row * sizeof *rows);
    }
    return CB_OK;
}

int cb_context_split_share_out(struct attention *a, const struct attention_call *call)
{
    const size_t n_head = (size_t)a->model->hp.n_head;
    const size_t hd = (size_t)a->model->layer[call->c.l].hd;

    TRY(share_queries(a->split, call->out, n_head * hd, call->c.n));
    return call->lse ? share_queries(a->split, call->lse, n_head, call->c.n) : CB_OK;
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
