/* SPDX-License-Identifier: MIT */
/* bank_file.c - writes and reads saved banks. Nothing that is read is trusted before its checksum
 * and its range have been checked. */
#include "bank_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/array.h"
#include "base/err.h"
#include "base/new_file.h"
#include "par/par.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are written as they lie in memory, which must be little-endian"
#endif

static const char magic[8] = "ctxbank";

struct header {
    char magic[8];
    uint32_t version, align;
    uint64_t bytes; /* of the file */
    uint64_t table_at, n_area, table_hash;
    uint64_t about_at, n_about, about_hash;
    uint64_t hash; /* of what stands before it */
};

enum { USES_AT = sizeof(struct header) }; /* a number of 8 bytes that no checksum covers */

_Static_assert(sizeof(struct header) == 80 && sizeof(struct bank_area) == 48, "no padding");

static uint64_t header_hash(const struct header *h)
{
    return XXH3_64bits(h, offsetof(struct header, hash));
}

/* ---- writing ---- */

struct bank_writer {
    struct new_file file;
    uint64_t at; /* end of what was written */
    struct bank_area *area;
    size_t n_area;
};

static int put(struct bank_writer *w, const void *bytes, size_t n, uint64_t at)
{
    if (lseek(w->file.fd, (off_t)at, SEEK_SET) < 0)
        return cb_fail(CB_EIO, "%s: %s", w->file.path, strerror(errno));
    return cb_new_file_write(&w->file, bytes, n);
}

int cb_bank_writer_open(const char *path, int unsynced, struct bank_writer **out)
{
    struct bank_writer *w = *out = cb_calloc(1, sizeof *w);
    int err;

    if (!w)
        return CB_ENOMEM;
    w->at = BANK_FILE_ALIGN;
    err = cb_new_file_open_private(&w->file, path); /* texts are private */
    w->file.unsynced = unsynced;
    if (err) {
        cb_bank_writer_abort(w);
        *out = NULL;
    }
    return err;
}

void cb_bank_writer_abort(struct bank_writer *w)
{
    if (!w)
        return;
    cb_new_file_close(&w->file);
    free(w->area);
    free(w);
}

static uint64_t align_up(uint64_t at, uint64_t to)
{
    return (at + to - 1) / to * to;
}

static uint64_t place(uint64_t at, size_t bytes)
{
    return align_up(at, bytes >= BANK_FILE_ALIGN ? BANK_FILE_ALIGN : 64);
}

uint64_t cb_bank_file_bytes(const size_t *bytes, int n)
{
    uint64_t at = BANK_FILE_ALIGN;

    for (int i = 0; i < n; i++)
        at = place(at, bytes[i]) + bytes[i];
    return align_up(at + (uint64_t)n * sizeof(struct bank_area) + 4096, BANK_FILE_ALIGN);
}

int cb_bank_writer_add(struct bank_writer *w, const struct area *a)
{
    TRY(cb_grow_by_one(&w->area, w->n_area, sizeof *w->area));
    w->at = place(w->at, a->bytes);
    TRY(put(w, a->at, a->bytes, w->at));
    w->area[w->n_area++] = (struct bank_area){ .kind = a->kind,
                                               .layer = a->layer,
                                               .head = a->head,
                                               .from = a->from,
                                               .at = w->at,
                                               .bytes = a->bytes,
                                               .hash = XXH3_64bits(a->at, a->bytes) };
    w->at += a->bytes;
    return CB_OK;
}

int cb_bank_writer_replace(struct bank_writer *w, int i, const void *bytes)
{
    struct bank_area *a = &w->area[i];

    a->hash = XXH3_64bits(bytes, (size_t)a->bytes);
    return put(w, bytes, (size_t)a->bytes, a->at);
}

static int finish(struct bank_writer *w, int version, const char *about, size_t n)
{
    struct header h = {
        .version = (uint32_t)version, .align = BANK_FILE_ALIGN, .n_area = w->n_area, .n_about = n
    };

    memcpy(h.magic, magic, sizeof magic);
    h.table_at = align_up(w->at, 64);
    h.table_hash = XXH3_64bits(w->area, w->n_area * sizeof *w->area);
    h.about_at = h.table_at + w->n_area * sizeof *w->area;
    h.about_hash = XXH3_64bits(about, n);
    h.bytes = align_up(h.about_at + n, BANK_FILE_ALIGN); /* the last page can be mapped, too */
    h.hash = header_hash(&h);
    TRY(put(w, w->area, w->n_area * sizeof *w->area, h.table_at));
    TRY(put(w, about, n, h.about_at));
    TRY(put(w, &h, sizeof h, 0));
    if (ftruncate(w->file.fd, (off_t)h.bytes))
        return cb_fail(CB_EIO, "%s: %s", w->file.path, strerror(errno));
    return cb_new_file_keep(&w->file);
}

int cb_bank_writer_finish(struct bank_writer *w, int version, const char *about, size_t n)
{
    const int err = finish(w, version, about, n);

    cb_bank_writer_abort(w);
    return err;
}

/* ---- reading ---- */

static int damaged(const struct bank_file *f, const char *what)
{
    return cb_fail(CB_EFORMAT, "%s: damaged: %s", f->path, what);
}

static int read_at(const struct bank_file *f, void *to, uint64_t n, uint64_t at)
{
    char *b = to;

    while (n) {
        const ssize_t done = pread(f->fd, b, n < (1 << 30) ? n : 1 << 30, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return cb_fail(CB_EIO, "%s: %s", f->path, strerror(errno));
        if (!done)
            return damaged(f, "it ends too early");
        b += done;
        at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return CB_OK;
}

static int inside(const struct bank_file *f, uint64_t at, uint64_t n)
{
    return n <= f->bytes && at <= f->bytes - n;
}

static int check_header(const struct bank_file *f, const struct header *h)
{
    if (memcmp(h->magic, magic, sizeof magic))
        return cb_fail(CB_EFORMAT, "%s: is not a saved bank", f->path);
    if (h->version > BANK_FILE_VERSION)
        return cb_fail(CB_EUNSUPPORTED, "%s: a saved bank of format %u; this version reads %d",
                       f->path, h->version, BANK_FILE_VERSION);
    if (h->hash != header_hash(h) || h->version < 1)
        return damaged(f, "its header");
    if (h->bytes != f->bytes)
        return cb_fail(CB_EFORMAT, "%s: damaged: it has %llu bytes of %llu", f->path,
                       (unsigned long long)f->bytes, (unsigned long long)h->bytes);
    if (h->n_area > INT32_MAX || !inside(f, h->table_at, h->n_area * sizeof *f->area) ||
        h->n_about > INT32_MAX || !inside(f, h->about_at, h->n_about))
        return damaged(f, "its header");
    return CB_OK;
}

static int read_table(struct bank_file *f, const struct header *h)
{
    const size_t bytes = (size_t)h->n_area * sizeof *f->area;

    f->area = cb_calloc((size_t)h->n_area + 1, sizeof *f->area);
    f->about = cb_calloc((size_t)h->n_about + 1, 1);
    if (!f->area || !f->about)
        return CB_ENOMEM;
    TRY(read_at(f, f->area, bytes, h->table_at));
    TRY(read_at(f, f->about, h->n_about, h->about_at));
    if (XXH3_64bits(f->area, bytes) != h->table_hash)
        return damaged(f, "its table of areas");
    if (XXH3_64bits(f->about, (size_t)h->n_about) != h->about_hash)
        return damaged(f, "its description");
    f->n_area = (int)h->n_area;
    f->n_about = (size_t)h->n_about;
    for (int i = 0; i < f->n_area; i++)
        if (!inside(f, f->area[i].at, f->area[i].bytes))
            return damaged(f, "an area beyond its end");
    return CB_OK;
}

static int open_steps(struct bank_file *f)
{
    struct header h;
    struct stat st;

    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is not waited for */
    if (f->fd < 0 || fstat(f->fd, &st))
        return cb_fail(CB_EIO, "%s: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return cb_fail(CB_EFORMAT, "%s: is not a regular file", f->path);
    f->bytes = (uint64_t)st.st_size;
    if (f->bytes < sizeof h)
        return cb_fail(CB_EFORMAT, "%s: is not a saved bank", f->path);
    TRY(read_at(f, &h, sizeof h, 0));
    TRY(check_header(f, &h));
    f->id = h.hash;
    f->version = (int)h.version;
    TRY(read_at(f, &f->uses, sizeof f->uses, USES_AT));
    return read_table(f, &h);
}

int cb_bank_file_open(const char *path, struct bank_file *f)
{
    int err;

    *f = (struct bank_file){ .fd = -1, .path = strdup(path) };
    err = f->path ? open_steps(f) : cb_fail(CB_ENOMEM, "out of memory");
    if (err)
        cb_bank_file_close(f);
    return err;
}

void cb_bank_file_close(struct bank_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->about);
    free(f->area);
    *f = (struct bank_file){ .fd = -1 };
}

int cb_bank_file_again(const struct bank_file *f, struct bank_file *out)
{
    *out = (struct bank_file){ .fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0),
                               .path = strdup(f->path),
                               .area = cb_calloc((size_t)f->n_area + 1, sizeof *f->area),
                               .version = f->version,
                               .bytes = f->bytes,
                               .id = f->id };
    if (out->fd < 0 || !out->path || !out->area) {
        cb_bank_file_close(out);
        return cb_fail(CB_ENOMEM, "%s: cannot be kept open", f->path);
    }
    out->n_area = f->n_area;
    memcpy(out->area, f->area, (size_t)f->n_area * sizeof *f->area);
    return CB_OK;
}

/* ---- checksums ---- */

enum { PIECE = 1 << 16 }; /* the heap keeps it, and L2 holds it */

struct verify {
    const struct bank_file *f;
    uint32_t later;      /* a kind that is left out; 0 = none */
    signed char *status; /* [n_area] */
};

static int checksum_fails(const struct bank_file *f, int i)
{
    return cb_fail(CB_EFORMAT, "%s: damaged: the checksum of layer %d, area %d does not agree",
                   f->path, f->area[i].layer, i);
}

/* Reads through a buffer: a file that shrinks meanwhile is an error then, not a signal. */
static int hash_area(const struct bank_file *f, const struct bank_area *a, XXH3_state_t *state,
                     char *piece, uint64_t *out)
{
    XXH3_64bits_reset(state);
    for (uint64_t at = 0; at < a->bytes; at += PIECE) {
        const size_t n = (size_t)(a->bytes - at < PIECE ? a->bytes - at : PIECE);
        TRY(read_at(f, piece, n, a->at + at));
        XXH3_64bits_update(state, piece, n);
    }
    *out = XXH3_64bits_digest(state);
    return CB_OK;
}

static int verify_area(const struct bank_file *f, int i)
{
    XXH3_state_t *state = XXH3_createState();
    char *piece = cb_calloc(PIECE, 1);
    uint64_t hash = 0;
    int err;

    err = state && piece ? hash_area(f, &f->area[i], state, piece, &hash)
                         : cb_fail(CB_ENOMEM, "%s: out of memory", f->path);
    XXH3_freeState(state);
    free(piece);
    return err || hash == f->area[i].hash ? err : checksum_fails(f, i);
}

static void verify_one(void *ctx, int i, int thread)
{
    const struct verify *v = ctx;

    (void)thread;
    if (v->f->area[i].kind != v->later)
        v->status[i] = (signed char)verify_area(v->f, i);
}

int cb_bank_file_verify(const struct bank_file *f, uint32_t later, struct par *par)
{
    struct verify v = { f, later, cb_calloc((size_t)f->n_area + 1, 1) };
    int err = CB_OK;

    if (!v.status)
        return CB_ENOMEM;
    if (par)
        cb_par_for(par, f->n_area, verify_one, &v);
    for (int i = 0; i < f->n_area && !err; i++)
        if (f->area[i].kind != later && (!par || v.status[i]))
            err = verify_area(f, i); /* once more: the text of a failure is the thread's own */
    free(v.status);
    return err;
}

/* ---- areas ---- */

int cb_bank_file_read(const struct bank_file *f, int i, size_t n, void *at)
{
    return read_at(f, at, n, f->area[i].at);
}

int cb_bank_file_read_checked(const struct bank_file *f, int i, void *at)
{
    const struct bank_area *a = &f->area[i];

    TRY(read_at(f, at, a->bytes, a->at));
    return XXH3_64bits(at, (size_t)a->bytes) == a->hash ? CB_OK : checksum_fails(f, i);
}

int cb_bank_file_maps(const struct bank_file *f, int i, size_t n, const void *at)
{
    const struct bank_area *a = &f->area[i];
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return n >= BANK_FILE_ALIGN && (uintptr_t)at % page == 0 && a->at % page == 0 &&
           align_up(a->at + n, page) <= f->bytes;
}

int cb_bank_file_map(const struct bank_file *f, int i, size_t n, void *at)
{
    if (mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, f->fd, (off_t)f->area[i].at) ==
        MAP_FAILED)
        return cb_fail(CB_ENOMEM, "%s: cannot be mapped: %s", f->path, strerror(errno));
    return CB_OK;
}

int cb_bank_file_is_same(const struct bank_file *f)
{
    struct stat st;
    uint64_t id;

    return !fstat(f->fd, &st) && (uint64_t)st.st_size >= f->bytes &&
           pread(f->fd, &id, sizeof id, offsetof(struct header, hash)) == (ssize_t)sizeof id &&
           id == f->id;
}

void cb_bank_file_count_use(const struct bank_file *f)
{
    const int fd = open(f->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    const uint64_t uses = f->uses + 1;

    if (fd >= 0 && pwrite(fd, &uses, sizeof uses, USES_AT) < 0)
        errno = 0; /* a count that is too small does no harm */
    if (fd >= 0)
        close(fd);
}
