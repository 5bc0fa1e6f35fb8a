/* SPDX-License-Identifier: MIT */
/* replay.c - runs a fuzzer's target over its seeds, tests/fuzz/seeds/NAME, or over the files that
 * are named. A finding of a fuzzer becomes a seed. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 20 };

static int run(const char *path)
{
    static uint8_t room[MOST];
    FILE *f = fopen(path, "rb");
    uint8_t *data;
    size_t n;

    if (!f) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return 1;
    }
    n = fread(room, 1, MOST, f);
    fclose(f);
    data = malloc(n + !n); /* exactly as long as it is */
    if (!data)
        return 1;
    memcpy(data, room, n);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 0;
}

/* All files of the folder; returns how many failed, -1 if there is none. */
static int run_all(const char *folder, int *n)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int failed = 0;

    while (d && (e = readdir(d))) {
        char path[1024];
        if (*e->d_name == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            failed += run(path);
        else
            failed++;
        ++*n;
    }
    if (d)
        closedir(d);
    return d ? failed : -1;
}

/* Weak: a fuzzer's own takes its place. */
__attribute__((weak)) int main(int argc, char **argv)
{
    const char *dir = getenv("srcdir"), *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0], *kind = strstr(name, "fuzz_");
    char folder[1024];
    int n = 0, failed = 0;

    for (int i = 1; i < argc; i++, n++)
        failed += run(argv[i]);
    if (argc == 1) {
        snprintf(folder, sizeof folder, "%s/tests/fuzz/seeds/%s", dir ? dir : ".",
                 kind ? kind + 5 : name);
        failed = run_all(folder, &n);
    }
    printf("%d passed, %d failed\n", n - (failed > 0 ? failed : 0), failed);
    return failed || !n;
}
