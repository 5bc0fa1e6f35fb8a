/* SPDX-License-Identifier: MIT */
/* attend_few_q8.cl - attend_few.cl for rows of q8_0, blocks of an f16 step and 32 codes that lie at
 * even addresses; a part of attention.cl. */

/* A code is a half without loss. A block's step is a factor of an entry: a key's product with 32
 * channels is multiplied by it, a value's is part of the entry's weight for these channels. */
#define Q_BLOCK 34
#define Q_BLOCKS (MAX_HD / 32)
#define Q_CHUNKS ((Q_BLOCKS * Q_BLOCK + 29) / 16) /* of 16 bytes from a multiple of 16 on */
#define Q_LOADS (FE * Q_CHUNKS / 32)              /* of an item, for 16 rows */
/* Bytes from one row in LOCAL memory to the next: few loads of a warp meet one bank twice. */
#define Q_PITCH (16 * (Q_CHUNKS + 1))
#define Q_STAGE (FE * Q_PITCH / 4) /* words of 16 rows */
#define Q8_AN_SM (MAX_HD > 128 ? 2 : 4)

/* The rows row_[FE] -> stage, at[FE]: the bytes of each from the multiple of 16 below on, then
 * zeros, as where there is no row. at: where a row begins there, 1 more where there is none. The
 * copies are one batch. */
FUNCTION void bring_rows(int bytes, IN_LOCAL const bytes_t *row_, IN_LOCAL uint *stage,
                         IN_LOCAL int *at)
{
    const int lane = ITEM() % 32;

    UNROLL for (int j = 0; j < Q_LOADS; j++) {
        const int i = j * 32 + lane, from = i % Q_CHUNKS * 16;
        const ulong row = (ulong)row_[i / Q_CHUNKS], skew = row & 15u;
        COPY_16_IF(row && from < (int)skew + bytes,
                   stage + (i / Q_CHUNKS * Q_PITCH + from) / 4, (bytes_t)(row - skew) + from);
    }
    if (lane < FE)
        at[lane] = lane * Q_PITCH + (row_[lane] ? (int)((ulong)row_[lane] & 15u) : 1);
    COPIES_END();
}

/* A place in a row for blocks b and b + 2, ...: they are 17 words apart. Codes begin in the middle
 * of a word or not. */
struct place_q8 {
    IN_LOCAL const uint *at;
    uint which;
};

FUNCTION struct place_q8 place_of(IN_LOCAL const uint *stage, int byte)
{
    struct place_q8 p;

    p.at = stage + (uint)byte / 4u;
    p.which = byte & 2 ? 0x5432u : 0x3210u;
    return p;
}

/* Words i and i + 1 of a place as four codes without sign */
FUNCTION uint four_codes(struct place_q8 p, int i)
{
    return pick_bytes(p.at[i], p.at[i + 1], p.which) ^ 0x80808080u;
}

/* Bytes 2 i and 2 i + 1 of such codes as halves. 0x6400 is 1024, whose last bit is 1. */
FUNCTION uint two_codes(uint codes, int i)
{
    return sub_halves(pick_bytes(codes, 0x64646464u, i ? 0x4342u : 0x4140u), 0x64806480u);
}

/* Where the steps of a row are, 17 halves apart */
FUNCTION IN_LOCAL const ushort *steps_at(IN_LOCAL const uint *stage, int at)
{
    return (IN_LOCAL const ushort *)stage + (uint)at / 2u;
}

/* The same logits as few_logits(), of rows that begin at bytes at[FE] */
FUNCTION void q8_logits(WITH_OPTIONS IN_LOCAL const uint *q_, IN_LOCAL const uint *stage,
                        IN_LOCAL const int *at, float (*s)[2])
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;
    IN_LOCAL const uint *q = q_ + quad * FQ_STEP + 8 * pair;
    IN_LOCAL const ushort *steps[2][2];
    struct place_q8 place[2][2];

    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int i = 0; i < 2; i++) {
            s[n][i] = 0.0f;
            steps[n][i] = steps_at(stage, at[8 * n + 2 * pair + i]);
            place[n][i] = place_of(stage, (at[8 * n + quad] & ~1) + 2 + 8 * pair + i * Q_BLOCK);
        }
    UNROLL for (int b = 0; b < Q_BLOCKS; b++) {
        uint a[2][4];
        load_four(a[0], q + 32 * b);
        load_four(a[1], q + 32 * b + 4);
        UNROLL for (int n = 0; n < 2; n++) {
            const uint lo = four_codes(place[n][b % 2], b / 2 * 17);
            const uint hi = four_codes(place[n][b % 2], b / 2 * 17 + 1);
            const uint k[4] = { two_codes(lo, 0), two_codes(lo, 1), two_codes(hi, 0),
                                two_codes(hi, 1) };
            float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            mma(sum, a[0], k);
            mma(sum, a[1], k + 2);
            UNROLL for (int i = 0; i < 2; i++)
                if (32 * b < HD) /* after a row's end there may be any step */
                    s[n][i] += low_half(steps[n][i][17 * b]) * (sum[i] + sum[i + 2]);
        }
    }
}

/* The number by which the steps of 16 rows are divided before weights are multiplied by them */
FUNCTION float step_of_steps(WITH_OPTIONS IN_LOCAL const uint *stage, IN_LOCAL const int *at)
{
    const int lane = ITEM() % 32;
    IN_LOCAL const ushort *steps = steps_at(stage, at[lane % FE]);
    float most = 0.0f;

    UNROLL for (int i = 0; i < (Q_BLOCKS + 1) / 2; i++) {
        const int b = 2 * i + lane / FE;
        if (32 * b < HD)
            most = fmax(most, fabs(low_half(steps[17 * b])));
    }
    return half_step(subgroup_max(most));
}

/* sum = shrink sum + the values of 16 entries by their weights p: numbers i of sum[b][j] are of
 * channel 32 b + 4 (item % 32 / 4) + 2 j + i / 2 and query 2 (item % 4) + i % 2. */
FUNCTION void q8_values(WITH_OPTIONS IN_LOCAL const uint *stage, IN_LOCAL const int *at,
                        float (*p)[2], const float *shrink, float (*sum)[2][4])
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;
    const float unit = step_of_steps(OPTIONS stage, at);
    const float factor = AS_FLOAT((254u << 23) - AS_UINT(unit)); /* of a power of two */
    IN_LOCAL const ushort *steps[2][2];
    struct place_q8 place[2][2][2];

    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int i = 0; i < 2; i++) {
            const int from = at[8 * n + 2 * pair + i] & ~1;
            p[n][i] *= factor;
            steps[n][i] = steps_at(stage, from);
            place[n][i][0] = place_of(stage, from + 2 + 4 * quad);
            place[n][i][1] = place_of(stage, from + 2 + 4 * quad + Q_BLOCK);
        }
    UNROLL for (int b = 0; b < Q_BLOCKS; b++) {
        uint most[2], left[2], two[2][2];
        UNROLL for (int n = 0; n < 2; n++) {
            const float x = p[n][0] * low_half(steps[n][0][17 * b]);
            const float y = p[n][1] * low_half(steps[n][1][17 * b]);
            const uint vx = four_codes(place[n][0][b % 2], b / 2 * 17);
            const uint vy = four_codes(place[n][1][b % 2], b / 2 * 17);
            most[n] = pack_f16(x, y);
            left[n] = pack_f16(x - low_half(most[n]), y - high_half(most[n]));
            two[n][0] = pick_bytes(vx, vy, 0x5140u); /* channel by channel */
            two[n][1] = pick_bytes(vx, vy, 0x7362u);
        }
        UNROLL for (int j = 0; j < 2; j++) {
            const uint a[4] = { two_codes(two[0][j], 0), two_codes(two[0][j], 1),
                                two_codes(two[1][j], 0), two_codes(two[1][j], 1) };
            float d[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            mma(d, a, most);
            mma(d, a, left);
            UNROLL for (int i = 0; i < 4; i++)
                sum[b][j][i] = sum[b][j][i] * shrink[i % 2] + d[i] * unit;
        }
    }
}

/* attend_few for rows of q8_0, whose bytes come by way of LOCAL memory: values while a warp
 * multiplies their keys, the next keys while it multiplies the values */
KERNEL_OF(FEW_WARPS * 32, Q8_AN_SM)
void attend_few_q8(WITH_OPTIONS GLOBAL const struct run *runs, GLOBAL const float *q, int q_stride,
                   int n_tok, int n_head, int group, float scale, float softcap, int causal,
                   int window, int per, int logit_stride, GLOBAL float *out, GLOBAL float *lse)
{
    LOCAL ALIGNED_16 uint q_[FQ * FQ_STEP], stage_[FEW_WARPS * 2 * Q_STAGE];
    LOCAL float scale_[FQ], shrink_[FEW_WARPS * FQ];
    LOCAL bytes_t row_[FEW_WARPS * 2 * FE]; /* 16 keys and 16 values of each warp */
    LOCAL int at_[FEW_WARPS * 2 * FE];
    const int item = ITEM(), warp = item / 32, lane = item % 32, quad = lane / 4, pair = item % 4;
    const int first = warp * FE + lane % FE, bytes = HD / 32 * Q_BLOCK;
    const struct few_part p = few_part_of(runs, group, window, per, logit_stride);
    IN_LOCAL bytes_t *k_row = row_ + warp * 2 * FE, *v_row = k_row + FE;
    IN_LOCAL int *k_at = at_ + warp * 2 * FE, *v_at = k_at + FE;
    IN_LOCAL uint *k_ = stage_ + warp * 2 * Q_STAGE, *v_ = k_ + Q_STAGE;
    IN_LOCAL float *o_ = (IN_LOCAL float *)stage_, *most_ = o_ + O_FLOATS;
    float sum[Q_BLOCKS][2][4];
    struct entry next;
    struct few f;

    f.most = -INFINITY;
    f.all = 0.0f;
    UNROLL for (int b = 0; b < Q_BLOCKS; b++)
        UNROLL for (int j = 0; j < 2; j++)
            UNROLL for (int i = 0; i < 4; i++)
                sum[b][j][i] = 0.0f;
    next = find_entry(p.run, p.from + first, p.lo, p.to);
    k_row[lane] = row_of(&next, lane / FE);
    WARP_BARRIER();
    bring_rows(bytes, k_row, k_, k_at);
    next = find_entry(p.run, p.from + FEW_WARPS * FE + first, p.lo, p.to);
    split_queries(OPTIONS &p, q, group, scale, q_, scale_);
    BARRIER();
    for (int base = p.from; base < p.to; base += FEW_WARPS * FE) {
        float s[2][2], shrink[2];
        int there[2][2];
        bring_rows(bytes, v_row, v_, v_at);
        COPIES_WAIT(1);
        WARP_BARRIER(); /* the keys are there */
        k_row[lane] = row_of(&next, lane / FE);
        next = find_entry(p.run, base + 2 * FEW_WARPS * FE + first, p.lo, p.to);
        q8_logits(OPTIONS q_, k_, k_at, s);
        UNROLL for (int i = 0; i < 4; i++)
            there[i / 2][i % 2] = !(k_at[i / 2 * 8 + 2 * pair + i % 2] & 1);
        finish_logits(&p, base + warp * FE, there, scale_[quad], softcap, logit_stride, s);
        few_softmax(&f, s, shrink_ + warp * FQ, shrink); /* all have multiplied the keys */
        bring_rows(bytes, k_row, k_, k_at);
        COPIES_WAIT(1);
        WARP_BARRIER(); /* the values are there */
        q8_values(OPTIONS v_, v_at, s, shrink, sum);
        WARP_BARRIER();
    }
    COPIES_WAIT(0);
    BARRIER(); /* all have read their rows */
    leave_few(&f, most_, most_ + FEW_WARPS * FQ);
    UNROLL for (int b = 0; b < Q_BLOCKS; b++)
        UNROLL for (int j = 0; j < 2; j++)
            UNROLL for (int i = 0; i < 4; i++)
                o_[(warp * FQ + 2 * pair + i % 2) * MAX_HD + 32 * b + 4 * quad + 2 * j + i / 2] =
                    sum[b][j][i];
    BARRIER();
    few_join(OPTIONS most_, most_ + FEW_WARPS * FQ, o_, p.n_query,
             (long)GROUP(1) * n_head + p.kv * group + p.first, out, lse);
}
