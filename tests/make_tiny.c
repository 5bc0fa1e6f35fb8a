/* SPDX-License-Identifier: MIT */
/* make_tiny.c - writes a tiny random model: make_tiny FAMILY FILE, for the tests of the program. */
#include <stdio.h>

#include "tiny.h"

int main(int argc, char **argv)
{
    struct tiny t;

    if (argc != 3) {
        fputs("usage: make_tiny FAMILY FILE\n", stderr);
        return 2;
    }
    t = cb_tiny_small(argv[1]);
    cb_tiny_save(&t, argv[2]);
    return 0;
}
