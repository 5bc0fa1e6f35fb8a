/* SPDX-License-Identifier: MIT */
/* gguf_open.c - maps a GGUF file and unmaps it.
 *
 * A file may change while it is mapped. Structure is not read twice, so other bytes are other
 * weights or names, and nothing worse. Reading a page beyond a new end raises SIGBUS, as with every
 * mapped file: what to do then is the program's to say. */
#include <errno.h>
#include <fcntl.h>
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

int cb_gguf_open(const char *path, struct gguf **out)
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

void cb_gguf_close(struct gguf *g)
{
    if (!g)
        return;
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

void cb_gguf_release_pages(const struct gguf *g, const struct gguf_tensor *t)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t from = (size_t)((const unsigned char *)t->data - g->map);
    /* Whole pages only: a page at either end also holds bytes of a neighbour or of the header. */
    const size_t first = (from + page - 1) / page * page, end = (from + t->size) / page * page;

    if (end > first) /* a hint: if it is refused, the pages just stay */
        (void)madvise((void *)(uintptr_t)(g->map + first), end - first, MADV_DONTNEED);
}
