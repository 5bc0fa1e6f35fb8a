/* SPDX-License-Identifier: MIT */
/* make_tiny.c - writes a tiny random model: make_tiny FAMILY FILE [LAYERS [HEAD_DIM]], for the
 * tests of the program. */
#include <stdio.h>
#include <stdlib.h>

#include "tiny.h"

int main(int argc, char **argv)
{
    struct tiny t;

    if (argc < 3 || argc > 5) {
        fputs("usage: make_tiny FAMILY FILE [LAYERS [HEAD_DIM]]\n", stderr);
        return 2;
    }
    t = cb_tiny_small(argv[1]);
    if (argc > 3)
        t.n_layer = (int)strtol(argv[3], NULL, 10);
    if (argc > 4) {
        t.hd = (int)strtol(argv[4], NULL, 10);
        t.n_embd = t.hd * t.n_head;
    }
    cb_tiny_save(&t, argv[2]);
    return 0;
}
