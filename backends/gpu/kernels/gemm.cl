/* SPDX-License-Identifier: MIT */
/* gemm.cl - y = W x for the tokens of a prompt, where rows of W and tokens are halves: [n_block]
 * blocks of 32 elements each, side by side. An element's sum over columns has one order in all
 * kernels, so a token's result does not depend on the tokens beside it. */

#ifdef HAS_MMA
#define BLOCK_WORDS 16 /* of two halves */
#define FEW_STAGES 3   /* of 16 KiB of LOCAL memory */
#define MANY_STAGES 6  /* of 8 KiB */
#define PIECES 2    /* pieces of 16 bytes of a block that an item brings, of rows and of tokens */
#define MOST_TOKS 8 /* eights of tokens of a warp */
#define MOST_ROWS 2 /* sixteens of its rows */

/* In LOCAL memory blocks of 64 bytes lie side by side. The four pieces of a block change places
 * with the row's number, so that the pieces of eight rows that have one number meet all banks. */
FUNCTION int piece_at(int row, int piece)
{
    return row * BLOCK_WORDS + (piece ^ row / 2 % 4) * 4;
}

/* Rows of up to three weights lie one after another, each one's from a multiple of 128 on. */
#define APART 128
struct part {
    GLOBAL const float *bias;
    GLOBAL float *y; /* element o of token t is y[t * y_stride + o] */
    int first, n_out, y_stride;
};

FUNCTION struct part part_of(int row, int n0, int n1, int n2, GLOBAL const float *b0,
                             GLOBAL const float *b1, GLOBAL const float *b2, GLOBAL float *y0,
                             GLOBAL float *y1, GLOBAL float *y2, int s0, int s1, int s2)
{
    const int first1 = (n0 + APART - 1) / APART * APART;
    const int first2 = first1 + (n1 + APART - 1) / APART * APART;
    const int i = row < first1 ? 0 : row < first2 ? 1 : 2;
    struct part p;

    p.bias = i == 0 ? b0 : i == 1 ? b1 : b2;
    p.y = i == 0 ? y0 : i == 1 ? y1 : y2;
    p.first = i == 0 ? 0 : i == 1 ? first1 : first2;
    p.n_out = i == 0 ? n0 : i == 1 ? n1 : n2;
    p.y_stride = i == 0 ? s0 : i == 1 ? s1 : s2;
    return p;
}

/* Where an item finds its pieces of the first block: rows first + item / 4 and so on, of which the
 * last one there is stands for those behind it */
FUNCTION void places(GLOBAL const uint *of, int first, int n, int n_block, int items,
                     GLOBAL const uint **at)
{
    UNROLL for (int i = 0; i < PIECES; i++) {
        const int row = first + ITEM() / 4 + i * (items / 4);
        at[i] = of + (long)(row < n ? row : n - 1) * n_block * BLOCK_WORDS + ITEM() % 4 * 4;
    }
}

FUNCTION void bring(GLOBAL const uint *const *from, int b, int items, IN_LOCAL uint *to)
{
    UNROLL for (int i = 0; i < PIECES; i++)
        COPY_16(to + piece_at(ITEM() / 4, ITEM() % 4) + i * (items / 4) * BLOCK_WORDS,
                   from[i] + b * BLOCK_WORDS);
}

/* The products of a block of a warp's rows and tokens, added to sum */
FUNCTION void add_block(int R, int T, IN_LOCAL const uint *w, IN_LOCAL const uint *x,
                        float (*sum)[MOST_TOKS][4])
{
    const int lane = ITEM() % 32;
    const int w_at = piece_at(lane % 16, lane / 16);
    const int x_at = piece_at(lane / 16 * 8 + lane % 8, lane / 8 % 2);

    UNROLL for (int k = 0; k < 2; k++) { /* 16 columns; the other two pieces differ in one bit */
        uint a[MOST_ROWS][4], c[MOST_TOKS / 2][4];
        UNROLL for (int r = 0; r < R; r++)
            load_matrices(a[r], w + r * 16 * BLOCK_WORDS + (w_at ^ k * 8));
        UNROLL for (int t = 0; t < T / 2; t++)
            load_matrices(c[t], x + t * 16 * BLOCK_WORDS + (x_at ^ k * 8));
        UNROLL for (int t = 0; t < T; t++)
            UNROLL for (int r = 0; r < R; r++)
                mma(sum[r][t], a[r], c[t / 2] + t % 2 * 2);
    }
}

/* A warp's results, of a part's rows from o0 on and tokens from k0 on */
FUNCTION void store_results(int R, int T, const float (*sum)[MOST_TOKS][4], const struct part *p,
                            int o0, int k0, int n_tok, GLOBAL const float *scale, int add)
{
    const int o = o0 + ITEM() % 32 / 4, k = k0 + 2 * (ITEM() % 4);
    float more[MOST_ROWS * 2];

    UNROLL for (int r = 0; r < 2 * R; r++)
        more[r] = p->bias && o + 8 * r < p->n_out ? p->bias[o + 8 * r] : 0.0f;
    UNROLL for (int t = 0; t < 2 * T; t++) {
        const int tok = k + t / 2 * 8 + t % 2;
        GLOBAL float *at = p->y + (long)tok * p->y_stride + o;
        const float step = tok < n_tok ? scale[tok] : 0.0f;
        UNROLL for (int r = 0; r < 2 * R; r++) {
            const float result = sum[r / 2][t / 2][r % 2 * 2 + t % 2] * step + more[r];
            if (tok < n_tok && o + 8 * r < p->n_out)
                at[8 * r] = add ? at[8 * r] + result : result;
        }
    }
}

/* A group's product: row_warps by tok_warps warps have R sixteens of rows and T eights of tokens
 * each. So many `stages`, of a block of rows and tokens each, find room in s_: one is multiplied,
 * the next ones are on their way. What a token was divided by is scale[token]. */
FUNCTION void multiply(int R, int T, int row_warps, int tok_warps, int stages, IN_LOCAL uint *s_,
                       GLOBAL const uint *w, const struct part *p, GLOBAL const uint *x, int n_tok,
                       int n_block, GLOBAL const float *scale, int add)
{
    const int rows = row_warps * R * 16, toks = tok_warps * T * 8;
    const int items = row_warps * tok_warps * 32, stage = (rows + toks) * BLOCK_WORDS;
    const int row0 = GROUP(1) * rows, tok0 = GROUP(0) * toks, warp = ITEM() / 32;
    const int row = warp % row_warps * R * 16, tok = warp / row_warps * T * 8; /* its first */
    GLOBAL const uint *w_from[PIECES], *x_from[PIECES];
    float sum[MOST_ROWS][MOST_TOKS][4];
    int slot = 0, free = stages - 1;

    if (row0 - p->first >= p->n_out)
        return;
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int t = 0; t < T; t++)
            UNROLL for (int i = 0; i < 4; i++)
                sum[r][t][i] = 0.0f;
    places(w, row0, p->first + p->n_out, n_block, items, w_from);
    places(x, tok0, n_tok, n_block, items, x_from);
    for (int b = 0; b < stages - 1; b++) {
        if (b < n_block) {
            bring(w_from, b, items, s_ + b * stage);
            bring(x_from, b, items, s_ + b * stage + rows * BLOCK_WORDS);
        }
        COPIES_END();
    }
    for (int b = 0; b < n_block; b++) {
        const int next = b + stages - 1;
        if (stages == FEW_STAGES) /* block b is there */
            COPIES_WAIT(FEW_STAGES - 2);
        else
            COPIES_WAIT(MANY_STAGES - 2);
        BARRIER(); /* of all items, and all have multiplied block b - 1 */
        if (next < n_block) {
            bring(w_from, next, items, s_ + free * stage);
            bring(x_from, next, items, s_ + free * stage + rows * BLOCK_WORDS);
        }
        COPIES_END();
        add_block(R, T, s_ + slot * stage + row * BLOCK_WORDS,
                  s_ + slot * stage + (rows + tok) * BLOCK_WORDS, sum);
        slot = slot == stages - 1 ? 0 : slot + 1;
        free = free == stages - 1 ? 0 : free + 1;
    }
    store_results(R, T, sum, p, row0 - p->first + row, tok0 + tok, n_tok, scale, add);
}

/* w: rows of all parts, x[n_tok]: tokens, both of n_block blocks */
#define GEMM(name, R, T, row_warps, tok_warps, stages, least_groups)                               \
    KERNEL_OF((row_warps) * (tok_warps) * 32, least_groups)                                        \
    void name(GLOBAL const uint *w, GLOBAL const uint *x, GLOBAL const float *scale, int n_tok,    \
              int n_block, int n0, int n1, int n2, GLOBAL const float *b0, GLOBAL const float *b1, \
              GLOBAL const float *b2, GLOBAL float *y0, GLOBAL float *y1, GLOBAL float *y2,        \
              int s0, int s1, int s2, int add)                                                     \
    {                                                                                              \
        LOCAL ALIGNED_16 uint s_[(stages) * ((row_warps) * (R) * 16 + (tok_warps) * (T) * 8) *     \
                                 BLOCK_WORDS];                                                     \
        const int row = GROUP(1) * ((row_warps) * (R) * 16);                                       \
        const struct part p = part_of(row, n0, n1, n2, b0, b1, b2, y0, y1, y2, s0, s1, s2);        \
        multiply(R, T, row_warps, tok_warps, stages, s_, w, &p, x, n_tok, n_block, scale, add);    \
    }

GEMM(gemm_128, 2, 8, 4, 2, FEW_STAGES, 2) /* 128 rows, 128 tokens */
GEMM(gemm_64, 2, 4, 2, 2, MANY_STAGES, 4) /* 64 rows, 64 tokens */
#endif
