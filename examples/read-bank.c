/* SPDX-License-Identifier: MIT */
/* read-bank.c - reads a saved context, ctxbank-bank(5), without the library: checks every checksum,
 * then prints what each layer holds and the ids of the tokens.
 *
 *     cc read-bank.c -lxxhash -o read-bank && ./read-bank FILE */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { KEYS = 2, VALUES = 3, KIVI_KEYS = 9, KIVI_VALUES = 10, TOKENS = 40 };

static unsigned char *file;
static uint64_t n_file;

static void fail(const char *what)
{
    fprintf(stderr, "read-bank: %s\n", what);
    exit(1);
}

static void read_file(const char *path)
{
    FILE *f = fopen(path, "rb");

    if (!f || fseek(f, 0, SEEK_END) || (n_file = (uint64_t)ftell(f)) < 80 || fseek(f, 0, SEEK_SET))
        fail("no file, or too short");
    file = malloc(n_file);
    if (!file || fread(file, 1, n_file, f) != n_file)
        fail("cannot be read");
    fclose(f);
}

/* A little-endian number */
static uint64_t number(uint64_t at, int bytes)
{
    uint64_t x = 0;

    for (int i = bytes - 1; i >= 0; i--)
        x = x << 8 | file[at + (uint64_t)i];
    return x;
}

/* The place of n bytes; ends the program if they are not there or not as they were written */
static uint64_t checked(uint64_t at, uint64_t n, uint64_t hash, const char *what)
{
    if (n > n_file || at > n_file - n || XXH3_64bits(file + at, n) != hash)
        fail(what);
    return at;
}

int main(int argc, char **argv)
{
    uint64_t table, about, n_area, held[2] = { 0, 0 }, layer = 0;

    if (argc != 2)
        fail("usage: read-bank FILE");
    read_file(argv[1]);
    if (memcmp(file, "ctxbank", 8) || number(8, 4) != 1)
        fail("is not a saved bank of format 1");
    checked(0, 72, number(72, 8), "the header is damaged");
    n_area = number(32, 8);
    if (n_area > n_file / 48)
        fail("the table is damaged");
    table = checked(number(24, 8), n_area * 48, number(40, 8), "the table is damaged");
    about = checked(number(48, 8), number(56, 8), number(64, 8), "the description is damaged");
    printf("%.*s\n", (int)number(56, 8), (const char *)file + about);

    for (uint64_t i = 0; i <= n_area; i++) {
        const uint64_t row = table + i * 48;
        const uint64_t kind = i < n_area ? number(row, 4) : 0,
                       l = i < n_area ? number(row + 4, 4) : 0;
        uint64_t at, n;

        if (held[0] + held[1] && (l != layer || i == n_area)) {
            printf("layer %d: keys %llu bytes, values %llu bytes\n", (int)layer,
                   (unsigned long long)held[0], (unsigned long long)held[1]);
            held[0] = held[1] = 0;
        }
        if (i == n_area)
            break;
        layer = l;
        n = number(row + 32, 8);
        at = checked(number(row + 24, 8), n, number(row + 40, 8), "an area is damaged");
        if (kind == KEYS || kind == KIVI_KEYS)
            held[0] += n;
        if (kind == VALUES || kind == KIVI_VALUES)
            held[1] += n;
        for (uint64_t j = 0; kind == TOKENS && j < n; j += 4)
            printf("%d%c", (int)number(at + j, 4), j + 4 < n ? ' ' : '\n');
    }
    free(file);
    return 0;
}
