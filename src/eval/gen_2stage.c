/* SPDX-License-Identifier: MIT */
/* gen_2stage.c - 2StageRetr (Hao et al. 2025, appendix A): a dictionary from numbers to colours,
 * then an equation whose sum is the key to look up. */
#include "base/err.h"
#include "gen.h"

enum { N_COLOUR = 16, MAX_ENTRIES = 1 << 20 };

static const char *const colour[N_COLOUR] = {
    "red",    "blue", "green", "yellow", "black", "white", "brown", "violet",
    "orange", "pink", "teal",  "maroon", "lime",  "gray",  "gold",  "silver",
};

struct stage {
    struct rng rng; /* state before the item */
    int cot;
    const char *answer; /* set by build */
};

/* Keys ascend from 0 with gaps. The question asks for the key at `share` of the list. */
static int build(void *arg, int units, struct buf *context, struct buf *question)
{
    struct stage *x = arg;
    struct rng r = x->rng;
    const int share = cb_rng_below(&r, 1 << 20), split = cb_rng_below(&r, 1 << 20);
    const int asked = 2 + (int)((int64_t)share * (units - 2) >> 20);
    int key = -1, sum = 0, a;

    cb_buf_text(context, "Let us play a game. There is a dictionary and an equation. Add the two "
                         "numbers of the equation, look the sum up in the dictionary and say its "
                         "colour.\nThe dictionary is {");
    for (int i = 0; i < units; i++) {
        const char *c;
        key += cb_rng_below(&r, 8) ? 1 : 2 + cb_rng_below(&r, 8);
        c = colour[cb_rng_below(&r, N_COLOUR)];
        cb_buf_print(context, "%s%d: %s", i ? ", " : "", key, c);
        if (i == asked) {
            sum = key;
            x->answer = c;
        }
    }
    cb_buf_text(context, "}\n\n");
    a = 1 + (int)((int64_t)split * (sum - 1) >> 20);
    cb_buf_print(question, "The equation is %d + %d = ?\n", a, sum - a);
    cb_buf_text(question, x->cot ? "First work out the sum, then say its colour, in the form: "
                                   "Since 1 + 2 = 3, the colour is \"red\".\nAnswer: Since"
                                 : "Answer with the colour alone.\nAnswer: The colour is");
    return CB_OK;
}

static int item(const struct gen *g, int cot, int length, int index, struct item_list *out)
{
    struct stage x = { cb_rng_for(g->seed, "2stage", length, 0, index), cot, NULL };
    const int max_new = cot ? 64 : 12;
    const struct recipe recipe = { build, &x, 3, MAX_ENTRIES, max_new };
    struct made m = { .task = cot ? "2stage_cot" : "2stage",
                      .metric = "contains",
                      .length = length,
                      .depth = -1,
                      .index = index,
                      .max_new = max_new,
                      .answer = &x.answer,
                      .n_answer = 1 };

    return cb_gen_item(g, &recipe, &m, out);
}

int cb_gen_2stage(const struct gen *g, int cot, struct item_list *out)
{
    for (int l = 0; l < g->n_length; l++)
        for (int i = 0; i < g->items; i++)
            TRY(item(g, cot, g->length[l], i, out));
    return CB_OK;
}
