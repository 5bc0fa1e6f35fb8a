/* SPDX-License-Identifier: MIT */
/* make_tiny.c - writes a tiny random model: make_tiny FAMILY FILE [LAYERS], for the tests of the
 * program. */
#include <stdio.h>
#include <stdlib.h>

#include "tiny.h"

int main(int argc, char **argv)
{
    struct tiny t;

    if (argc != 3 && argc != 4) {
        fputs("usage: make_tiny FAMILY FILE [LAYERS]\n", stderr);
        return 2;
    }
    t = cb_tiny_small(argv[1]);
    if (argc == 4)
        t.n_layer = (int)strtol(argv[3], NULL, 10);
    cb_tiny_save(&t, argv[2]);
    return 0;
}
