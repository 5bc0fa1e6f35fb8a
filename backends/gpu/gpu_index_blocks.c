/* SPDX-License-Identifier: MIT */
/* gpu_index_blocks.c - the blocks whose keys a trained selector scores highest, for each of its
 * heads. The keys are rows that a session stores, and the mirror has copies of them, which pages.cl
 * scores. The CPU scores them where there is no room for all of a layer. */
#include "gpu_blocks.h"
#include "gpu_index.h"
#include "gpu_pages.h"

enum { SCORE_ITEMS = 128 }; /* as in pages.cl */

/* A choice of blocks, and its work space on the device */
struct choice {
    const struct block_topk *t;
    struct gpu_blocks b; /* rows of keys */
    int n;               /* of a list */
    void *on, *q, *score, *found;
};

/* Work space, which has been reserved; its bytes, where g is NULL */
static size_t work_space(struct gpu *g, struct choice *x)
{
    const struct block_topk *t = x->t;
    const size_t heads = (size_t)t->n_head, q = heads * (size_t)t->hd * sizeof(float);
    const size_t found = heads * (size_t)(x->n + 1) * sizeof(int32_t);
    size_t bytes =
        cb_gpu_aligned(q) + cb_gpu_aligned(found) + cb_gpu_pick_bytes(t->n_head, t->n_block);

    x->q = g ? cb_gpu_in(g, t->q, q) : NULL;
    x->found = g ? cb_gpu_room_for(g, found) : NULL; /* may stay longer */
    x->score = cb_gpu_search_room(g, &bytes, heads * (size_t)t->n_block, sizeof(float));
    return bytes;
}

static void launch(struct gpu *g, struct gpu_program *p, const struct choice *x)
{
    const struct block_topk *t = x->t;
    const size_t blocks[3] = { (size_t)t->n_block, 1, 1 };
    const struct gpu_arg score[] = {
        GPU_P(x->on),        GPU_P((char *)x->on + sizeof(struct gpu_pages)),
        GPU_I((int)t->type), GPU_I(t->n_head),
        GPU_P(x->q),         GPU_P(x->score)
    };

    cb_gpu_run(g, p, "score_blocks", blocks, SCORE_ITEMS, score, 6, cb_gpu_mirror_pieces(g));
    cb_gpu_pick_pages(g, p, x->on, x->score, t->n_head, t->n_block, x->found);
}

static int choose(struct gpu *g, struct gpu_program *p, void *choice)
{
    struct choice *x = choice;
    const struct block_topk *t = x->t;
    const struct gpu_pages of = { .n_page = t->n_block,
                                  .n_block = x->b.n_page,
                                  .first = x->b.first,
                                  .shift = x->b.shift,
                                  .bytes = (int32_t)x->b.bytes,
                                  .hd = t->hd,
                                  .page = t->block,
                                  .k = t->k,
                                  .after = t->after };

    x->on = cb_gpu_search_begin(g, &x->b, &of, sizeof of, work_space(NULL, x));
    if (!x->on)
        return 0;
    work_space(g, x);
    launch(g, p, x);
    g->traffic.hit_sketches += (uint64_t)t->n_block;
    const struct gpu_found found = { .to = t->idx,
                                     .on = x->found,
                                     .n_list = t->n_head,
                                     .n = x->n,
                                     .stride = t->idx_stride,
                                     .end = x->b.n_block + t->after };
    cb_gpu_found_end(g, found, t->later);
    return 1;
}

int cb_gpu_block_topk(struct device *d, const struct block_topk *t)
{
    struct gpu *g = cb_gpu_of(d);
    struct choice x = { .t = t,
                        .b = { .at = t->keys,
                               .bytes = cb_kv_row_bytes(t->type, t->hd),
                               .n_kv = 1,
                               .n_block = t->n_block * t->block },
                        .n = t->k * t->block + t->after };

    return cb_gpu_search(g, &x.b, cb_gpu_pages_program, choose, &x);
}
