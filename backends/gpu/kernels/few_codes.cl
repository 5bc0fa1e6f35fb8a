/* SPDX-License-Identifier: MIT */
/* few_codes.cl - the products of quantised weights with a few tokens; a part of matmul.cl, for
 * devices where a warp multiplies small matrices of halves at once.
 *
 * A warp multiplies 16 rows by 8 tokens. Codes of weights are halves without loss, a token's number
 * is the sum of two halves, and sums are floats: so this kernel has the digits that few_1 has.
 * Some warps share the columns of a group's rows; they copy the rows' bytes 16 at a time to LOCAL
 * memory, and the next ones are on their way while they multiply. How columns are shared out
 * depends on the weight alone, and a token's sums on no other token. */

#define CODE_ROWS 16

/* What the items of a warp have of rows q and q + 8 as halves, for both halves of 32 elements */
FUNCTION void matrix_of(int type, const struct codes *c, uint (*a)[4])
{
    for (int row = 0; row < 2; row++) {
        uint lo[2], hi[2];
        halves_of_codes(type, &c[row], lo, hi);
        a[0][row] = lo[0];
        a[0][2 + row] = lo[1];
        a[1][row] = hi[0];
        a[1][2 + row] = hi[1];
    }
}

/* The rows' products with 32 elements of eight tokens, x[2][4] of an item, added to sum[4]; not
 * `valid`: they have no part in it. */
FUNCTION void add_products(int type, const struct codes *c, uint (*a)[4], const uint *x, int valid,
                           float *sum)
{
    float lo[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, hi[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

    mma(lo, a[0], x);
    mma(lo, a[0], x + 4);
    mma(type == Q6_K ? hi : lo, a[1], x + 2);
    mma(type == Q6_K ? hi : lo, a[1], x + 6);
    for (int i = 0; valid && i < 4; i++)
        sum[i] += c[i / 2].d_lo * lo[i];
    if (type == Q6_K)
        for (int i = 0; valid && i < 4; i++)
            sum[i] += c[i / 2].d_hi * hi[i];
    if (type == Q4_1 || type == Q5_1 || type == Q4_K || type == Q5_K) { /* minimum times x's sum */
        const uint one[4] = { 0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u };
        for (int i = 0; i < 8; i += 2)
            mma(hi, one, x + i);
        for (int i = 0; valid && i < 4; i++)
            sum[i] += c[i / 2].m * hi[i];
    }
}

#define MOST_T 4 /* eights of tokens */
#define X_AHEAD 2

/* The tokens' numbers. An item loads those of one token in eight, from `at` on: its share of one
 * block of 32 elements after the other. */
struct few_x {
    GLOBAL const uint *at[MOST_T];
    /* The next blocks, where there are at most eight tokens; a missing token has zeros. */
    int has;
    uint next[X_AHEAD][8];
};

FUNCTION void load_block(GLOBAL const uint *at, uint *to)
{
    load_four(to, at);
    load_four(to + 4, at + 16);
}

/* Adds the block whose number ends in b, of 32 elements of rows q and q + 8 of a warp and of all
 * tokens, to sum[T][4]. Tokens' numbers may be read beyond the last block (split.cl). */
FUNCTION void add_block(int type, int T, const struct codes *c, int b, int valid, struct few_x *x,
                        float (*sum)[4])
{
    uint a[2][4], both[8];

    matrix_of(type, c, a);
    if (T == 1) {
        add_products(type, c, a, x->next[b % X_AHEAD], valid, sum[0]);
        if (x->has)
            load_block(x->at[0] + (b + X_AHEAD) * SPLIT_WORDS, x->next[b % X_AHEAD]);
        return;
    }
    UNROLL for (int t = 0; t < T; t++) {
        load_block(x->at[t] + b * SPLIT_WORDS, both);
        add_products(type, c, a, both, valid, sum[t]);
    }
}

/* The same for n blocks, which lie at row[2] in LOCAL memory and of which n_valid are there */
FUNCTION void add_blocks(int type, int T, IN_LOCAL const uchar *const *row, int n, int n_valid,
                         struct few_x *x, float (*sum)[4])
{
    const int p = ITEM() % 4, step = type >= Q4_K ? 8 : 4;
    struct codes c[2];

    for (int from = 0; from < n; from += step) {
        struct steps s[2];
        if (type >= Q4_K)
            for (int i = 0; i < 2; i++)
                s[i] = steps_of(type, row[i]);
        UNROLL for (int b = 0; b < step; b++) {
            for (int i = 0; i < 2; i++)
                c[i] = type == Q6_K   ? codes_6_k(row[i], &s[i], b, p)
                       : type >= Q4_K ? codes_45_k(type, row[i], &s[i], b, p)
                       : type == Q8_0 ? codes_8(row[i] + (from + b) * code_bytes(type), p)
                                      : codes_45(type, row[i] + (from + b) * code_bytes(type), p);
            add_block(type, T, c, b, from + b < n_valid, x, sum);
        }
        UNROLL for (int t = 0; t < T; t++)
            x->at[t] += step * SPLIT_WORDS;
    }
}

/* The products of a group: CODE_ROWS rows from row o0 on of one weight, T times eight tokens */
struct few_group {
    bytes_t weight;
    GLOBAL const float *bias;
    GLOBAL float *y;
    int n_out, o0;
};

/* Up to three weights of one type and as many columns are multiplied at once: which has the rows of
 * tile GROUP(1)? */
FUNCTION struct few_group few_group_of(bytes_t w0, bytes_t w1, bytes_t w2, int n0, int n1, int n2,
                                       GLOBAL const float *b0, GLOBAL const float *b1,
                                       GLOBAL const float *b2, GLOBAL float *y0, GLOBAL float *y1,
                                       GLOBAL float *y2)
{
    const int t0 = (n0 + CODE_ROWS - 1) / CODE_ROWS, t1 = (n1 + CODE_ROWS - 1) / CODE_ROWS;
    const int tile = GROUP(1), i = tile < t0 ? 0 : tile < t0 + t1 ? 1 : 2;
    struct few_group g;

    g.weight = i == 0 ? w0 : i == 1 ? w1 : w2;
    g.bias = i == 0 ? b0 : i == 1 ? b1 : b2;
    g.y = i == 0 ? y0 : i == 1 ? y1 : y2;
    g.n_out = i == 0 ? n0 : i == 1 ? n1 : n2;
    g.o0 = (tile - (i > 0 ? t0 : 0) - (i > 1 ? t1 : 0)) * CODE_ROWS;
    return g;
}

/* The number of a row whose products are wanted; one that there is not is the last. */
FUNCTION long code_row(const struct few_group *g, int r)
{
    return g->o0 + r < g->n_out ? g->o0 + r : g->n_out - 1;
}

/* The type of a weight's codes, and how a group brings them */
struct few_form {
    int type, warps;
    int pitch;  /* bytes from one row in LOCAL memory to the next, 16 times something odd: the rows
                   of a warp meet all banks */
    int stages; /* steps of blocks that have room there: 2 or 3 */
};

/* What a warp still has to copy. Items side by side bring 16 bytes each of one row, so that their
 * addresses share lines. An item has number piece / 16 of a row's in a step, of every
 * rows_at_once()th row. */
struct few_copies {
    bytes_t from; /* `piece` bytes after those of the item's first row that are to come next */
    int apart;    /* bytes from an item's row to its next */
    int n_row;    /* how many rows there are, from the item's first on */
    int even;     /* 1: there are all rows, and an item's have addresses with the same last bits */
    int piece;
    int left, bytes; /* of each row, still to come and of a step */
    int stage;       /* words of a step; step number n goes to `to` + n % stages * stage */
    IN_LOCAL uint *to, *end;
};

/* Rows whose pieces the 32 items bring at once */
FUNCTION int rows_at_once(const struct few_form f)
{
    return f.pitch > 128 ? 2 : 4;
}

/* The 16 bytes at or below an address, if they have bytes of a step that ends this many after it */
FUNCTION void copy_piece(IN_LOCAL uint *to, bytes_t at, int end)
{
    if (-end < (int)((ulong)at & 15u))
        COPY_16(to, (bytes_t)((ulong)at & ~(ulong)15u));
}

/* The next step */
FUNCTION void copy_step(const struct few_form f, struct few_copies *c)
{
    const int rows = rows_at_once(f), here = c->left < c->bytes ? c->left : c->bytes;
    const int end = c->left > 0 ? here - c->piece : -16; /* less than any skew */

    if (c->even) {
        if (-end < (int)((ulong)c->from & 15u))
            UNROLL for (int i = 0; i < CODE_ROWS / rows; i++)
                COPY_16(c->to + i * rows * (f.pitch / 4),
                        (bytes_t)((ulong)c->from & ~(ulong)15u) + i * c->apart);
    } else {
        NO_UNROLL for (int i = 0; i * rows < CODE_ROWS; i++)
            if (i * rows < c->n_row)
                copy_piece(c->to + i * rows * (f.pitch / 4), c->from + i * c->apart, end);
    }
    COPIES_END();
    c->from += c->bytes;
    c->left -= c->bytes;
    c->to = c->to + c->stage == c->end ? c->end - f.stages * c->stage : c->to + c->stage;
}

/* A warp's sums over its columns, step blocks at a time, of which the next ones are under way */
FUNCTION void warp_sums(const struct few_form f, int T, const struct few_group *g, long row_bytes,
                        int n_block, int step, struct few_x *x, IN_LOCAL uint *s_, float (*sum)[4])
{
    const int lane = ITEM() % 32, warp = ITEM() / 32, stage = CODE_ROWS * f.pitch / 4;
    const int n_step = (n_block + step - 1) / step, per = (n_step + f.warps - 1) / f.warps;
    const int bytes = (f.type >= Q4_K ? step / 8 : step) * code_bytes(f.type);
    IN_LOCAL uint *mine = s_ + warp * f.stages * stage;
    const int rows = rows_at_once(f), r = lane * rows / 32, piece = lane % (32 / rows);
    IN_LOCAL uint *to = mine + r * (f.pitch / 4) + piece * 4;
    struct few_copies c = { g->weight + (g->o0 + r) * row_bytes + warp * per * bytes + piece * 16,
                            rows * (int)row_bytes,
                            g->n_out - g->o0 - r,
                            g->n_out - g->o0 >= CODE_ROWS && rows * (int)row_bytes % 16 == 0,
                            piece * 16,
                            (int)row_bytes - warp * per * bytes,
                            bytes,
                            stage,
                            to,
                            to + f.stages * stage };
    int n_valid = n_block - warp * per * step, skew[2];
    IN_LOCAL const uchar *now = (IN_LOCAL const uchar *)mine + lane / 4 * f.pitch;

    for (int i = 0; i < 2; i++)
        skew[i] = (int)((ulong)(g->weight + code_row(g, lane / 4 + 8 * i) * row_bytes)) +
                  warp * per * bytes;
    UNROLL for (int t = 0; t < T; t++)
        x->at[t] += warp * per * step * SPLIT_WORDS;
    UNROLL for (int b = 0; T == 1 && b < X_AHEAD; b++)
        if (x->has)
            load_block(x->at[0] + b * SPLIT_WORDS, x->next[b]);
    UNROLL for (int k = 0; k < f.stages - 1; k++)
        copy_step(f, &c);
    for (int k = 0; k < per; k++) {
        IN_LOCAL const uchar *const row[2] = { now + (skew[0] & 15),
                                               now + 8 * f.pitch + (skew[1] & 15) };
        if (f.stages == 2)
            COPIES_WAIT(0);
        else
            COPIES_WAIT(1);
        WARP_BARRIER(); /* all have what they wait for, and have read what is to be written over */
        copy_step(f, &c);
        add_blocks(f.type, T, row, step, n_valid, x, sum);
        n_valid -= step;
        skew[0] += bytes;
        skew[1] += bytes;
        now += 4 * stage;
        if (now >= (IN_LOCAL const uchar *)(mine + f.stages * stage))
            now -= 4 * f.stages * stage;
    }
    COPIES_WAIT(0); /* the memory may be used for something else */
}

/* Blocks of a step; of most types the compiler knows it. */
FUNCTION int step_of(int type, int step)
{
    return type >= Q4_K ? 8 : type >= Q5_0 ? 4 : step;
}

FUNCTION void few_codes(const struct few_form f, int T, const struct few_group *g, long row_bytes,
                        int n_in, int step, GLOBAL const uint *split, GLOBAL const float *scale,
                        int n_tok, int y_stride, int add, IN_LOCAL uint *s_)
{
    const int item = ITEM(), warp = item / 32, q = item % 32 / 4, p = item % 4;
    const int tok0 = GROUP(0) * T * 8;
    IN_LOCAL float *part = (IN_LOCAL float *)s_; /* [warp][token][row] */
    struct few_x x;
    float sum[MOST_T][4];

    x.has = tok0 + q < n_tok;
    UNROLL for (int i = 0; i < 8 * X_AHEAD; i++)
        x.next[i / 8][i % 8] = 0u;
    UNROLL for (int t = 0; t < T; t++) {
        const int tok = tok0 + t * 8 + q < n_tok ? tok0 + t * 8 + q : n_tok - 1;
        x.at[t] = split + (long)tok * n_in + 4 * p;
        sum[t][0] = sum[t][1] = sum[t][2] = sum[t][3] = 0.0f;
    }
    warp_sums(f, T, g, row_bytes, n_in / 32, step_of(f.type, step), &x, s_, sum);
    BARRIER();
    UNROLL for (int t = 0; t < T; t++)
        UNROLL for (int i = 0; i < 4; i++)
            part[(warp * T * 8 + t * 8 + 2 * p + i % 2) * CODE_ROWS + q + i / 2 * 8] = sum[t][i];
    BARRIER();
    for (int i = item; i < CODE_ROWS * 8 * T; i += f.warps * 32) {
        const int o = g->o0 + i % CODE_ROWS, tok = tok0 + i / CODE_ROWS;
        float all = 0.0f;
        for (int w = 0; w < f.warps; w++)
            all += part[w * T * 8 * CODE_ROWS + i];
        if (o < g->n_out && tok < n_tok)
            store(g->y + (long)tok * y_stride + o, g->bias, o, add, all * scale[tok]);
    }
}

/* For up to T times eight tokens. A step of a row has not more than pitch - 15 bytes. */
#define FEW_CODES(name, type, warps, pitch, stages, T, least_groups)                               \
    KERNEL_OF((warps) * 32, least_groups)                                                          \
    void name(WITH_OPTIONS bytes_t w0, bytes_t w1, bytes_t w2, int n0, int n1, int n2,             \
              long row_bytes, int n_in, int step, GLOBAL const uint *x, GLOBAL const float *scale, \
              int n_tok, GLOBAL const float *b0, GLOBAL const float *b1, GLOBAL const float *b2,   \
              GLOBAL float *y0, GLOBAL float *y1, GLOBAL float *y2, int y_stride, int add)         \
    {                                                                                              \
        LOCAL ALIGNED_16 uint s_[(warps) * (stages) * CODE_ROWS * (pitch) / 4];                    \
        const struct few_group g = few_group_of(w0, w1, w2, n0, n1, n2, b0, b1, b2, y0, y1, y2);   \
        const struct few_form f = { type, warps, pitch, stages };                                  \
        few_codes(f, T, &g, row_bytes, n_in, step, x, scale, n_tok, y_stride, add, s_);            \
    }

/* 8 or 32 tokens at a time; the multiprocessor has room for this many groups of the first */
#define CODES(of, type, warps, pitch, stages, groups)                                              \
    FEW_CODES(codes_8_tok_##of, type, warps, pitch, stages, 1, groups)                             \
    FEW_CODES(codes_32_tok_##of, type, warps, pitch, stages, 4, 16 / (warps))

CODES(q4_0, Q4_0, 8, 176, 2, 3)
CODES(q4_1, Q4_1, 8, 176, 2, 3)
CODES(q5_0, Q5_0, 8, 112, 3, 3)
CODES(q5_1, Q5_1, 8, 112, 3, 3)
CODES(q8_0, Q8_0, 8, 176, 2, 3)
CODES(q4_k, Q4_K, 4, 176, 2, 5)
CODES(q5_k, Q5_K, 4, 176, 2, 5)
CODES(q6_k, Q6_K, 4, 240, 2, 6)
