/* SPDX-License-Identifier: MIT */
/* many_check.c - whether kernels of many tokens compute what those of one token do, on this
 * machine. They are tried before they are used: nobody would see a wrong product. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kern_mm.h"

/* A chunk and a part of one; two groups of rows; two tiles, the second one narrower */
enum { N_BLK = MM_CHUNK + 3, N_IN = 32 * N_BLK, N_TOK = 2 * MM_MANY_TILE - 3, N_GROUP = 2 };

struct trial {
    uint8_t *packed; /* [N_GROUP] groups */
    uint8_t *panel;
    uint8_t *tiles;    /* records of MM_MANY_TILE tokens, then of the others */
    uint8_t *rec;      /* of one token */
    float *x;          /* [N_TOK][N_IN] */
    float *out, *want; /* [N_TOK][N_GROUP * MM_ROWS] */
    uint32_t seed;
};

/* A type of each form of panels, all with f16 steps */
static const enum dtype type_of[MM_PANELS] = {
    [MM_SYM4] = DT_Q4_0, [MM_SYM5] = DT_Q5_0,  [MM_SYM8] = DT_Q8_0,     [MM_MIN4] = DT_Q4_K,
    [MM_MIN5] = DT_Q5_K, [MM_SYM16] = DT_Q6_K, [MM_WIDE16] = DT_IQ2_XS, [MM_MIN16] = DT_Q2_K,
};

static uint8_t next_byte(struct trial *t)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (uint8_t)(t->seed >> 24);
}

/* Random codes; random scales, none of which is infinite as f16 */
static void make_weights(struct trial *t, enum dtype type)
{
    const size_t lines = (size_t)mm_layout[type].lines * 64;
    uint8_t *at = t->packed;

    for (int g = 0; g < N_GROUP; g++)
        for (int b = 0; b < N_BLK; b += MM_CHUNK) {
            const int n = N_BLK - b < MM_CHUNK ? N_BLK - b : MM_CHUNK;
            const size_t scales = mm_scale_bytes(type, n), all = scales + (size_t)n * lines;

            for (size_t i = 0; i < all; i++)
                at[i] = next_byte(t) & (i < scales && i % 2 ? 0xbf : 0xff);
            at += all;
        }
}

static void make_tokens(struct trial *t, const struct kern_mm *k)
{
    const size_t first = MM_MANY_TILE * N_IN;

    for (size_t i = 0; i < (size_t)N_TOK * N_IN; i++)
        t->x[i] = (float)(next_byte(t) - 127) * (i % 37 ? 0.01f : 0.5f);
    k->quantize(t->x, MM_MANY_TILE, N_IN, t->tiles, mm_rec_bytes(MM_MANY_TILE));
    k->quantize(t->x + first, N_TOK - MM_MANY_TILE, N_IN,
                t->tiles + N_BLK * mm_rec_bytes(MM_MANY_TILE), mm_rec_bytes(N_TOK - MM_MANY_TILE));
}

/* One token and one group at a time */
static void multiply_one(struct trial *t, const struct kern_mm *k, enum dtype type)
{
    const size_t group = cb_mm_group_bytes(type, N_IN);

    for (int i = 0; i < N_TOK; i++) {
        k->quantize(t->x + (size_t)i * N_IN, 1, N_IN, t->rec, mm_rec_bytes(1));
        for (int g = 0; g < N_GROUP; g++)
            k->direct[type][0](t->packed + (size_t)g * group, t->rec, N_IN,
                               t->want + (i * N_GROUP + g) * MM_ROWS);
    }
}

/* A batch of tokens, of 8 or 16 bits, beside each token alone */
static int batch_is_equal(struct trial *t, const struct kern_many *many, const struct kern_mm *k,
                          enum dtype type, int act16)
{
    enum { N = MM_MANY_TILE - 3 };
    const size_t group = cb_mm_group_bytes(type, N_IN), rec = mm_rec_bytes(1 + act16);

    memset(t->out, 0xff, N * N_GROUP * MM_ROWS * sizeof *t->out);
    for (int i = 0; i < N; i++) {
        const float *x = t->x + (size_t)i * N_IN;
        uint8_t *to = t->tiles + (size_t)i * rec;

        if (act16) {
            k->quantize_batch(x, N_IN, to, N * rec);
            k->quantize_act16(x, N_IN, t->rec, rec);
        } else {
            k->quantize(x, 1, N_IN, to, N * rec);
            k->quantize(x, 1, N_IN, t->rec, rec);
        }
        for (int g = 0; g < N_GROUP; g++)
            (act16 ? k->act16[type] : k->direct[type][0])(t->packed + (size_t)g * group, t->rec,
                                                          N_IN, t->want + (g * N + i) * MM_ROWS);
    }
    many->batch[act16][type](t->packed, group, N_GROUP, t->tiles, N_IN, N, t->out);
    return !memcmp(t->out, t->want, N * N_GROUP * MM_ROWS * sizeof *t->out);
}

static int is_equal(struct trial *t, const struct kern_many *many, const struct kern_mm *k,
                    enum dtype type)
{
    const size_t group = cb_mm_group_bytes(type, N_IN), n = (size_t)N_TOK * N_GROUP * MM_ROWS;
    const void *const groups[N_GROUP] = { t->packed, t->packed + group };

    make_weights(t, type);
    memset(t->out, 0xff, n * sizeof *t->out);
    many->unpack[type](groups, N_IN, t->panel);
    many->multiply[mm_layout[type].panel](t->panel, t->tiles, N_IN, N_TOK, t->out);
    multiply_one(t, k, type);
    return !memcmp(t->out, t->want, n * sizeof *t->out);
}

int cb_many_check(const struct kern_many *many, const struct kern_mm *k, char *why, size_t size)
{
    enum { OUT = N_TOK * N_GROUP * MM_ROWS * sizeof(float), TILES = N_TOK * N_BLK * 52 };
    const size_t packed = N_GROUP * cb_mm_group_bytes(DT_Q8_0, N_IN), panel = N_BLK * 32 * 48;
    struct trial t = { .seed = 1 };
    int ok = 0, p = 0;
    uint8_t *all = cb_alloc_aligned(packed + panel + (size_t)(2 * TILES + 64) +
                                        (size_t)N_TOK * N_IN * sizeof *t.x + 2 * OUT,
                                    1);

    if (all) {
        t.packed = all;
        t.panel = t.packed + packed;
        t.tiles = t.panel + panel;
        t.rec = t.tiles + TILES;
        t.x = (float *)(void *)(t.rec + TILES);
        t.out = t.x + (size_t)N_TOK * N_IN;
        t.want = t.out + OUT / sizeof *t.out;
        make_tokens(&t, k);
        for (ok = 1; ok && p < MM_PANELS; p++)
            ok = is_equal(&t, many, k, type_of[p]);
        for (int b = 0; ok && b < 2 * MM_PANELS; b++) {
            p = b / 2 + 1;
            make_weights(&t, type_of[b / 2]);
            ok = batch_is_equal(&t, many, k, type_of[b / 2], b % 2);
        }
    }
    snprintf(why, size, all ? "a product by tiles of %s differs from that by vectors" : "no memory",
             cb_dtype[type_of[p ? p - 1 : 0]].name);
    free(all);
    return ok ? CB_OK : CB_EUNSUPPORTED;
}
