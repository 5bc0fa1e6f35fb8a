/* SPDX-License-Identifier: MIT */
/* gen_ruler.c - the 13 tasks of RULER (Hsieh et al. 2024), their sizes and answer lengths as in the
 * paper. */
#include "gen_ruler.h"

#include "base/err.h"

/* A retrieval task: the kinds of its keys and values; how many keys, values a key, keys asked
 * for */
#define NIAH(task, in, keys, values, k, v, q)                                                      \
    {                                                                                              \
        .name = "niah_" task, .make = cb_ruler_niah, .metric = "contains_all", .max_new = 128,     \
        .hay = in, .key = keys, .value = values, .n_key = k, .n_value = v, .n_query = q            \
    }

static const struct ruler_task table[] = {
    NIAH("single_1", HAY_NOISE, VALUE_WORDS, VALUE_NUMBERS, 1, 1, 1),
    NIAH("single_2", HAY_TEXT, VALUE_WORDS, VALUE_NUMBERS, 1, 1, 1),
    NIAH("single_3", HAY_TEXT, VALUE_WORDS, VALUE_UUIDS, 1, 1, 1),
    NIAH("multikey_1", HAY_TEXT, VALUE_WORDS, VALUE_NUMBERS, 4, 1, 1),
    NIAH("multikey_2", HAY_NEEDLES, VALUE_WORDS, VALUE_NUMBERS, 1, 1, 1),
    NIAH("multikey_3", HAY_NEEDLES, VALUE_UUIDS, VALUE_UUIDS, 1, 1, 1),
    NIAH("multivalue", HAY_TEXT, VALUE_WORDS, VALUE_NUMBERS, 1, 4, 1),
    NIAH("multiquery", HAY_TEXT, VALUE_WORDS, VALUE_NUMBERS, 4, 1, 4),
    { "vt", cb_ruler_vt, "contains_all", .max_new = 30, .hay = HAY_NOISE },
    { "cwe", cb_ruler_cwe, "contains_all", .max_new = 120, .hay = HAY_NOISE },
    { "fwe", cb_ruler_fwe, "contains_all", .max_new = 50, .hay = HAY_NOISE },
    { "qa_1", cb_ruler_qa, "contains", .max_new = 32, .hay = HAY_FILE },
    { "qa_2", cb_ruler_qa, "contains", .max_new = 32, .hay = HAY_FILE },
};

const struct ruler_task *cb_ruler_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

const char *cb_ruler_name(const struct ruler_task *t)
{
    return t->name;
}

const char *cb_ruler_needs(const struct ruler_task *t, const struct gen *g)
{
    if (t->hay == HAY_FILE && !cb_ruler_qa_file(g, t))
        return "a file of questions with documents (--qa-file)";
    if (t->hay == HAY_TEXT && !g->haystack)
        return "a text to hide things in (--haystack)";
    return NULL;
}

int cb_gen_ruler(const struct gen *g, const struct ruler_task *t, struct item_list *out)
{
    for (int l = 0; l < g->n_length; l++)
        for (int i = 0; i < g->items; i++)
            TRY(t->make(g, t, g->length[l], i, out));
    return CB_OK;
}
