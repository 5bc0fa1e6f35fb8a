/* SPDX-License-Identifier: MIT */
/* gguf_open.c - maps a GGUF file and unmaps it. A model may be split into several files,
 * NAME-00001-of-00003.gguf and so on; the first one is opened, and has the metadata.
 *
 * A file may change while it is mapped. Structure is not read twice, so other bytes are other
 * weights or names, and nothing worse. Reading a page beyond a new end raises SIGBUS, as with every
 * mapped file: what to do then is the program's to say. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "gguf_file.h"

static int map_file(struct gguf *g)
{
    struct stat st;
    void *p;
    /* A FIFO would wait for its writer without O_NONBLOCK; a regular file does not care. */
    const int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return cb_fail(CB_EIO, "%s: %s", g->path, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size) {
        close(fd);
        return cb_fail(CB_EFORMAT, "%s: %s", g->path,
                       S_ISDIR(st.st_mode)   ? "is a directory"
                       : S_ISREG(st.st_mode) ? "the file is empty"
                                             : "is not a regular file");
    }
    g->size = (size_t)st.st_size;
    p = mmap(NULL, g->size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return cb_fail(CB_EIO, "%s: mmap: %s", g->path, strerror(errno));
    g->map = p;
    return 0;
}

static int open_one(const char *path, struct gguf **out)
{
    struct gguf *g = cb_calloc(1, sizeof *g);
    int err;

    *out = NULL;
    if (!g)
        return CB_ENOMEM;
    g->path = strdup(path);
    if (!g->path) {
        free(g);
        return cb_fail(CB_ENOMEM, "%s: out of memory", path);
    }
    err = map_file(g);
    if (!err)
        err = cb_gguf_parse(g);
    if (err) {
        cb_gguf_close(g);
        return cb_fail_in(err, path);
    }
    *out = g;
    return 0;
}

/* ---- split models ---- */

enum { MAX_PARTS = 99999, TAIL = 20 }; /* "-00001-of-00003.gguf" */

static int64_t number(const struct gguf *g, const char *key)
{
    int64_t v = 0;

    return cb_gguf_i64(g, key, &v) < 0 ? -1 : v;
}

/* The name of part i -> *out, which the caller frees */
static int part_name(const struct gguf *g, int i, int n, char **out)
{
    const size_t len = strlen(g->path);
    char tail[2 * TAIL];

    *out = NULL;
    snprintf(tail, sizeof tail, "-00001-of-%05d.gguf", n);
    if (len < TAIL || strcmp(g->path + len - TAIL, tail))
        return cb_fail(CB_EFORMAT, "%s: is one of %d files; the name must end in %s", g->path, n,
                       tail);
    *out = strdup(g->path);
    if (!*out)
        return cb_fail(CB_ENOMEM, "%s: out of memory", g->path);
    snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", i + 1, n);
    memcpy(*out + len - TAIL, tail, TAIL);
    return CB_OK;
}

static int check_part(const struct gguf *p, int i, int n)
{
    if (number(p, "split.no") == i && number(p, "split.count") == n)
        return CB_OK;
    return cb_fail(CB_EFORMAT, "%s: is not part %d of %d", p->path, i + 1, n);
}

/* Appends a part's tensors. Both arrays stay: the part's names are sorted by address. */
static int append_tensors(struct gguf *g, const struct gguf *p)
{
    struct gguf_tensor *t =
        cb_realloc(g->tensor, (size_t)(g->n_tensor + p->n_tensor) + 1, sizeof *t);

    if (!t)
        return CB_ENOMEM;
    memcpy(t + g->n_tensor, p->tensor, (size_t)p->n_tensor * sizeof *t);
    g->tensor = t;
    g->n_tensor += p->n_tensor;
    return CB_OK;
}

static int open_part(struct gguf *g, int i, int n)
{
    char *path;
    int err;

    TRY(part_name(g, i, n, &path));
    err = open_one(path, &g->part[i - 1]);
    free(path);
    TRY(err);
    g->n_part = i;
    TRY(check_part(g->part[i - 1], i, n));
    return append_tensors(g, g->part[i - 1]);
}

static int open_parts(struct gguf *g)
{
    const int64_t n = number(g, "split.count"), no = number(g, "split.no");
    const int64_t n_tensor = number(g, "split.tensors.count");

    if (n < 0 || n > MAX_PARTS || no < 0)
        return cb_fail(CB_EFORMAT, "%s: key split.count: not a number of files", g->path);
    if (n < 2)
        return CB_OK;
    if (no > 0)
        return cb_fail(CB_EARG, "%s: is part %lld of %lld; open the first one", g->path,
                       (long long)no + 1, (long long)n);
    g->part = cb_calloc((size_t)n, sizeof *g->part);
    if (!g->part)
        return CB_ENOMEM;
    for (int i = 1; i < (int)n; i++)
        TRY(open_part(g, i, (int)n));
    if (n_tensor && g->n_tensor != (uint64_t)n_tensor)
        return cb_fail(CB_EFORMAT, "%s: its files have %llu tensors instead of %lld", g->path,
                       (unsigned long long)g->n_tensor, (long long)n_tensor);
    return cb_gguf_index_tensors(g);
}

int cb_gguf_open(const char *path, struct gguf **out)
{
    int err;

    TRY(open_one(path, out));
    err = open_parts(*out);
    if (err) {
        cb_gguf_close(*out);
        *out = NULL;
    }
    return err;
}

void cb_gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_part; i++)
        cb_gguf_close(g->part[i]);
    free(g->part);
    for (uint64_t i = 0; g->kv && i < g->n_kv; i++)
        free((void *)(uintptr_t)g->kv[i].str_at);
    if (g->map)
        munmap((void *)(uintptr_t)g->map, g->size);
    free(g->by_key);
    free(g->by_name);
    free(g->kv);
    free(g->tensor);
    free(g->path);
    free(g);
}

static void release(const struct gguf *g, const unsigned char *data, size_t size, size_t page)
{
    const size_t from = (size_t)(data - g->map);
    /* Whole pages only: a page at either end also holds bytes of a neighbour or of the header. */
    const size_t first = (from + page - 1) / page * page, end = (from + size) / page * page;

    if (end > first) /* a hint: if it is refused, the pages just stay */
        (void)madvise((void *)(uintptr_t)(g->map + first), end - first, MADV_DONTNEED);
}

void cb_gguf_release_pages(const struct gguf *g, const void *data, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *at = data;

    for (int i = 0; i < g->n_part; i++)
        if (at >= g->part[i]->map && at < g->part[i]->map + g->part[i]->size) {
            cb_gguf_release_pages(g->part[i], data, size);
            return;
        }
    if (at >= g->map && at < g->map + g->size) /* else it was made of the file's */
        release(g, at, size, page);
}
