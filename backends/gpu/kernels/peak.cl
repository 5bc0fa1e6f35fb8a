/* SPDX-License-Identifier: MIT */
/* peak.cl - nothing but reads of the device's memory, and nothing but products and sums. */

#define READS 16

/* Each group reads n_step * READS * ITEMS() words in a row. The barrier keeps its items side by
 * side: a CPU would run them one after the other, each through the whole piece. */
KERNEL void read_all(GLOBAL const ulong *x, int n_step, GLOBAL ulong *sum)
{
    const int items = ITEMS();
    GLOBAL const ulong *from = x + (long)GROUP(0) * n_step * READS * items + ITEM();
    ulong s = 0;

    for (int i = 0; i < n_step; i++, from += READS * items) {
        for (int r = 0; r < READS; r++)
            s ^= from[r * items];
        BARRIER();
    }
    sum[THREAD()] = s;
}

/* n times 8 products and sums an item */
KERNEL void multiply_add(int n, float w, GLOBAL float *sum)
{
    float a = (float)ITEM(), b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
    float e = a + 4.0f, f = a + 5.0f, g = a + 6.0f, h = a + 7.0f;

    for (int i = 0; i < n; i++) {
        a = a * w + w;
        b = b * w + w;
        c = c * w + w;
        d = d * w + w;
        e = e * w + w;
        f = f * w + w;
        g = g * w + w;
        h = h * w + w;
    }
    sum[THREAD()] = a + b + c + d + e + f + g + h;
}
