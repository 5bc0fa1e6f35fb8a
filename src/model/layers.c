/* SPDX-License-Identifier: MIT */
/* layers.c - what metadata says of each layer: its heads and width, its window and rotation, whose
 * keys and values it reads, and whether policies act on it. */
#include <stdio.h>

#include "base/err.h"
#include "hparams.h"

/* Has layer l the window? The file may say so by the length of the pattern, or layer by layer. */
static int read_pattern(const struct cb_model *m, int l, int *local)
{
    static const char name[] = "attention.sliding_window_pattern";
    char key[128];
    const struct gguf_kv *kv = cb_gguf_find(m->gguf, cb_hp_key(m, name, &key));
    int every = m->arch->global_every;

    if (kv && kv->type == GGUF_ARRAY)
        return cb_hp_at(m, name, REQUIRED, 0, 1, l, local);
    TRY(cb_hp_int(m, name, OPTIONAL, 0, 1024, &every));
    *local = !every || (l + 1) % every != 0;
    return CB_OK;
}

/* ---- heads ---- */

/* The heads of the layers with a window, which may differ from those of the others */
static int read_local(struct cb_model *m, int *hd, int *n_rot)
{
    const struct hparams *hp = &m->hp;
    int value = hp->hd;

    *hd = hp->hd;
    *n_rot = hp->n_rot;
    if (hp->latent.rank)
        return CB_OK;
    TRY(cb_hp_int(m, "attention.key_length_swa", OPTIONAL, 2, KV_MAX_HD, hd));
    TRY(cb_hp_int(m, "attention.value_length_swa", OPTIONAL, 2, KV_MAX_HD, &value));
    if (value != *hd)
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: layers with a window: keys are %d wide and values %d: not supported",
                       cb_gguf_path(m->gguf), *hd, value);
    *n_rot = *hd == hp->hd ? hp->n_rot : *hd;
    TRY(cb_hp_int(m, "rope.dimension_count_swa", OPTIONAL, 2, *hd, n_rot));
    return *hd % 2 || *n_rot % 2
               ? cb_fail(CB_EFORMAT,
                         "%s: layers with a window: head_dim %d, rotated %d: both must be even",
                         cb_gguf_path(m->gguf), *hd, *n_rot)
               : CB_OK;
}

/* The table that rotates the layers with a window: in families that say so, the scaling of the
 * file is for contexts that these never see. */
static int read_local_rope(struct cb_model *m, int n_rot)
{
    struct rope_params *all = &m->hp.rope[0], *r = &m->hp.rope[1];
    char key[128];
    const int has_base = cb_gguf_find(m->gguf, cb_hp_key(m, "rope.freq_base_swa", &key)) != NULL;
    const int plain = m->arch->local_plain && all->scaling != ROPE_NONE;

    if (!m->hp.window)
        return CB_OK;
    if (m->arch->local_base > 0 || plain)
        *r = (struct rope_params){ .base = plain ? all->base : m->arch->local_base,
                                   .factor = 1,
                                   .attn_factor = 1,
                                   .n_ctx_orig = m->hp.n_ctx_train };
    else if (has_base || n_rot != all->n_rot)
        *r = *all;
    else
        return CB_OK;
    r->n_rot = n_rot;
    return cb_hp_float(m, "rope.freq_base_swa", OPTIONAL, 1, 1e12, &r->base);
}

static int read_kv_heads(struct cb_model *m, int l, int *n_kv)
{
    const int n_head = m->hp.n_head;
    int n_ff = 0;

    *n_kv = 0;
    if (m->arch->mixed != MIXED_BESIDE) {
        const int mixed = cb_hp_is_mixed(m, l);
        if (mixed)
            return mixed < 0 ? mixed : CB_OK;
    }
    if (m->arch->single)
        TRY(cb_hp_at(m, "feed_forward_length", REQUIRED, 0, 1 << 20, l, &n_ff));
    if (n_ff)
        return CB_OK;
    *n_kv = n_head;
    if (m->hp.latent.rank) {
        *n_kv = 1;
        return CB_OK;
    }
    TRY(cb_hp_at(m, "attention.head_count_kv", OPTIONAL, 1, 1024, l, n_kv));
    return n_head % *n_kv ? cb_fail(CB_EFORMAT, "%s: %d heads cannot share %d KV heads",
                                    cb_gguf_path(m->gguf), n_head, *n_kv)
                          : CB_OK;
}

static int read_layer(struct cb_model *m, int l, int local, int hd)
{
    struct hparams *hp = &m->hp;
    struct layer *y = &m->layer[l];

    TRY(read_kv_heads(m, l, &y->n_kv));
    y->n_ff = hp->n_ff;
    TRY(cb_hp_at(m, "feed_forward_length", cb_hp_need_ff(m), 0, 1 << 20, l, &y->n_ff));
    y->window = local ? hp->window : 0;
    y->hd = y->window ? hd : hp->hd;
    y->rope = y->window && hp->rope[1].base > 0;
    if (hp->compress.n_group) {
        int ratio;
        TRY(cb_hp_ratio(m, l, &ratio));
        y->rope = !ratio; /* layers with entries have the base of these */
    }
    if (hp->nope == NOPE_ALL || (hp->nope == NOPE_FOURTH && (l + 1) % 4 == 0) ||
        (hp->nope == NOPE_GLOBAL && hp->window && !y->window))
        y->rope = -1;
    hp->hd_max = y->hd > hp->hd_max ? y->hd : hp->hd_max;
    hp->kv_max = y->n_kv * y->hd > hp->kv_max ? y->n_kv * y->hd : hp->kv_max;
    return CB_OK;
}

/* ---- what others do with layers ---- */

/* Do policies act on layer y? any_wide: a layer that stores keys has no window */
static int is_chosen(const struct layer *y, int any_wide)
{
    return y->n_kv && !y->kv_back && !(any_wide && y->window);
}

static int list_global(struct cb_model *m)
{
    const int n = m->hp.n_layer;
    int any_wide = 0;

    for (int l = 0; l < n; l++)
        any_wide |= m->layer[l].n_kv && !m->layer[l].kv_back && !m->layer[l].window;
    for (int l = 0; l < n; l++)
        m->n_global += is_chosen(&m->layer[l], any_wide);
    if (m->n_global == n) {
        m->n_global = 0;
        return CB_OK;
    }
    if (!(m->global = cb_calloc((size_t)m->n_global, sizeof *m->global)))
        return CB_ENOMEM;
    for (int l = 0, i = 0; l < n; l++)
        if (is_chosen(&m->layer[l], any_wide))
            m->global[i++] = l;
    return CB_OK;
}

/* The heads of the layers that policies act on become those of the model. */
static void common_heads(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    const int n = m->global ? m->n_global : hp->n_layer;

    for (int i = 0; i < n; i++) {
        const struct layer *y = &m->layer[m->global ? m->global[i] : i];
        if (!i) {
            hp->n_kv = y->n_kv;
            hp->hd = y->hd;
            hp->n_rot = y->rope < 0 ? hp->n_rot : hp->rope[y->rope].n_rot;
        }
        hp->heads_differ |= y->n_kv != hp->n_kv || y->hd != hp->hd;
    }
}

/* The last layers read keys and values of the last layer before them that is of their kind. */
static int lend(struct cb_model *m)
{
    const int n = m->hp.n_layer, own = n - m->hp.n_shared_kv;

    if (m->hp.n_shared_kv && (m->hp.latent.rank || m->hp.chunked))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: key %s.attention.shared_kv_layers: not supported with %s",
                       cb_gguf_path(m->gguf), m->arch->name,
                       m->hp.chunked ? "chunks of attention" : "latent attention");
    for (int l = own; l < n; l++) {
        const struct layer *y = &m->layer[l];
        int from = own - 1;
        while (from >= 0 && (m->layer[from].window != y->window || m->layer[from].rope != y->rope))
            from--;
        if (from < 0)
            return cb_fail(CB_EFORMAT,
                           "%s: layer %d has no keys and values, and no layer before "
                           "layer %d is of its kind",
                           cb_gguf_path(m->gguf), l, own);
        m->layer[l].kv_back = l - from;
        m->layer[from].lends = 1;
    }
    return CB_OK;
}

/* All layers read those of another model. */
static void lend_nothing(struct cb_model *m)
{
    for (int l = 0; l < m->hp.n_layer; l++)
        m->layer[l].kv_back = l + 1;
    m->hp.n_kv = m->layer[0].n_kv;
}

int cb_hparams_layers(struct cb_model *m)
{
    const struct hparams *hp = &m->hp;
    int local, hd, n_rot;

    TRY(cb_hp_mixer(m));
    TRY(cb_hp_compressed(m));
    if (!(m->layer = cb_calloc((size_t)hp->n_layer + 1, sizeof *m->layer)))
        return CB_ENOMEM;
    TRY(read_local(m, &hd, &n_rot));
    TRY(read_local_rope(m, n_rot));
    for (int l = 0; l < hp->n_layer; l++) {
        TRY(read_pattern(m, l, &local));
        TRY(read_layer(m, l, local, hd));
    }
    if (cb_model_has_target(m))
        lend_nothing(m);
    else
        TRY(lend(m));
    TRY(list_global(m));
    common_heads(m);
    return CB_OK;
}

int cb_hparams_mtp(struct cb_model *m)
{
    const int n = m->hp.n_layer;
    struct layer *y = &m->layer[n];
    int l = n;

    while (l > 0 && (!m->layer[l - 1].n_kv || m->layer[l - 1].window || m->layer[l - 1].kv_back))
        l--;
    if (!l)
        return cb_fail(CB_EUNSUPPORTED, "no layer has keys without a window");
    y->n_kv = m->layer[l - 1].n_kv;
    y->hd = m->layer[l - 1].hd;
    y->n_ff = m->layer[l - 1].n_ff;
    y->rope = m->layer[l - 1].rope;
    return CB_OK;
}
