/* SPDX-License-Identifier: MIT */
/* prompt_rows.cl - keys and values of a block of entries on their way to LOCAL memory, for
 * prompt.cl, which includes it: where they lie, copies that do not wait, stored types as halves. */

#define PE (MAX_HD > 128 ? 16 : MAX_HD > 64 ? 32 : 64) /* entries of a block */
#define EIGHTS (MAX_HD / 8)                            /* of channels of a row */
#define TILE_WORDS (PE * MAX_HD / 2)                   /* a block's keys, or its values */
#define ROUND (WARPS * 32 / EIGHTS) /* entries that the items bring at a time */
#define ROUNDS (PE / ROUND)

/* Word of a tile where eight channels of an entry lie. Eights of one number of 8 neighbours meet
 * all banks; eight_at(e, i) ^ 8 * k is eight_at(e, i + 2 * k) where i is 0 or 1. */
FUNCTION int eight_at(int entry, int eight)
{
    return (entry * EIGHTS + (eight ^ entry % 8)) * 4;
}

/* eight_at(e + more, i) + x from eight_at(e, i) + x, for multiples of 4 */
FUNCTION int eight_later(int at, int more)
{
    return (at ^ more % 8 * 4) + more * EIGHTS * 4;
}

/* Channels c and c + 1 as halves */
FUNCTION uint two_channels(WITH_OPTIONS GLOBAL const struct run *run, int value, struct place p,
                           int c)
{
    if (value)
        return pack_f16_limited(value_number(OPTIONS run, p, c),
                                value_number(OPTIONS run, p, c + 1));
    return pack_f16_limited(key_number(OPTIONS run, p, c), key_number(OPTIONS run, p, c + 1));
}

/* Rows of bf16 or q8_0 of one kind, where HD is a multiple of 8, become halves in a tile; 0 where
 * there are none. All loads begin before one is waited for. */
FUNCTION void bring_coded(WITH_OPTIONS int type, IN_LOCAL const struct place *places, int eight,
                          IN_LOCAL uint *tile, int at)
{
    uint w[ROUNDS][4];
    float scale[ROUNDS];

    UNROLL for (int i = 0; i < ROUNDS; i++) {
        bytes_t row = places[i * ROUND].at;
        w[i][0] = w[i][1] = w[i][2] = w[i][3] = 0;
        scale[i] = 0.0f;
        if (!row || 8 * eight >= HD)
            continue;
        if (type == 2) {
            load_four(w[i], (GLOBAL const uint *)(row + 16 * eight));
            continue;
        }
        row += 34 * (eight / 4);
        scale[i] = load_f16(row);
        UNROLL for (int k = 0; k < 4; k++)
            w[i][k] = *(GLOBAL const ushort *)(row + 2 + eight % 4 * 8 + 2 * k);
    }
    UNROLL for (int i = 0; i < ROUNDS; i++) {
        UNROLL for (int k = 0; k < 4; k++) {
            const uint two = w[i][k];
            if (type == 2)
                w[i][k] = pack_f16_limited(AS_FLOAT(two << 16), AS_FLOAT(two & 0xffff0000u));
            else
                w[i][k] = pack_f16_limited((float)(signed char)(two & 0xffu) * scale[i],
                                           (float)(signed char)(two >> 8) * scale[i]);
        }
        store_four(tile + eight_later(at, i * ROUND), w[i][0], w[i][1], w[i][2], w[i][3]);
    }
}

/* Channels c..c+7 of any row as halves */
FUNCTION void unpack_eight(WITH_OPTIONS GLOBAL const struct run *run, int value, struct place p,
                           int c, uint *to)
{
    NO_UNROLL for (int i = 0; i < 4; i++) {
        const uint two = c + 2 * i < HD ? two_channels(OPTIONS run, value, p, c + 2 * i) : 0;
        UNROLL for (int at = 0; at < 4; at++) /* to[] is in registers */
            to[at] = at == i ? two : to[at];
    }
}

/* Begins to bring a block's keys and values to tile + at, 0 where there are none. Rows of halves
 * are copied as they are; plain: all are. An item has one eight of every ROUND-th entry. */
FUNCTION void bring_rows(WITH_OPTIONS GLOBAL const struct run *run, int plain,
                         IN_LOCAL const struct place *places, IN_LOCAL uint *tile, int at)
{
    int eight = ITEM() % EIGHTS, first = ITEM() / EIGHTS;
    int rest = 0; /* what is not copied as it is */

    at += eight_at(first, eight);
    if (plain) {
        UNROLL for (int i = 0; i < 2 * ROUNDS; i++) {
            const int value = i / ROUNDS, e = i % ROUNDS * ROUND;
            COPY_16(tile + eight_later(at, e) + value * TILE_WORDS,
                    places[value * PE + first + e].at + 16 * eight);
        }
        return;
    }
    first = ITEM_AGAIN() / EIGHTS; /* registers are not kept for this rare part */
    eight = ITEM_AGAIN() % EIGHTS;
    UNROLL for (int value = 0; value < 2; value++) {
        const int type = value ? TYPE_V : TYPE;
        if (type > 1 && HD % 8 == 0)
            bring_coded(OPTIONS type, places + value * PE + first, eight, tile,
                        at + value * TILE_WORDS);
        UNROLL for (int i = 0; i < ROUNDS; i++) {
            const struct place p = places[value * PE + first + i * ROUND];
            IN_LOCAL uint *to = tile + eight_later(at, i * ROUND) + value * TILE_WORDS;
            if (!p.at || 8 * eight >= HD)
                store_four(to, 0, 0, 0, 0);
            else if (HD % 8 || p.quant >= 0)
                rest |= 1 << (value * ROUNDS + i);
            else if (type == 1)
                COPY_16(to, p.at + 16 * eight);
        }
    }
    NO_UNROLL for (int i = 0; rest >> i; i++) {
        const int value = i / ROUNDS, e = i % ROUNDS * ROUND;
        uint w[4];
        if (rest >> i & 1) {
            unpack_eight(OPTIONS run, value, places[value * PE + first + e], 8 * eight, w);
            store_four(tile + eight_later(at, e) + value * TILE_WORDS, w[0], w[1], w[2], w[3]);
        }
    }
}

/* The place of this item's key or value among entries base..base+PE-1; item / PE: 0 for a key, 1
 * for a value, else the item has none. *odd = base: some entries are not in [lo, to), missing, or
 * quantised. */
FUNCTION struct place find_place(WITH_OPTIONS GLOBAL const struct run *run, int base, int lo,
                                 int to, IN_LOCAL int *odd)
{
    const int value = ITEM() / PE, j = base + ITEM() % PE;
    struct place p;

    p.at = 0;
    p.quant = -1;
    if (value > 1)
        return p;
    if (j >= lo && j < to)
        p = value ? value_of(OPTIONS run, slot_of(run, j)) : key_of(OPTIONS run, slot_of(run, j));
    if (!p.at || p.quant >= 0)
        *odd = base;
    return p;
}
