/* SPDX-License-Identifier: MIT */
/* bank_file.h - the file format of a saved bank, ctxbank-bank(5): a header, areas of memory, a
 * table of them, and a JSON text about where they come from. Everything is checksummed (XXH3, 64
 * bits) and little-endian. */
#ifndef BANK_FILE_H
#define BANK_FILE_H

#include "store_areas.h"

struct par;

enum {
    BANK_FILE_VERSION = 4, /* 1: all rows stand in the file; 2: another file has the first ones; 3:
                              either, with areas of a head for later tokens; 4: either, with keys
                              of selectors by halves of their codes (device/index_strips.h) */
    BANK_FILE_WHOLE_CODES = 3, /* the last one with such keys as cb_strips_renew() takes them */
    BANK_FILE_ALIGN = 1 << 16  /* of large areas: pages of all machines divide it, so they can be
                                  mapped */
};

/* An area of the file */
struct bank_area {
    uint32_t kind; /* enum area_kind */
    int32_t layer, head;
    uint32_t zero;
    uint64_t from; /* struct area's */
    uint64_t at;   /* bytes from the beginning of the file */
    uint64_t bytes;
    uint64_t hash;
};

/* ---- writing: the file takes its place when all of it is on the disk ---- */

/* `path` must live until the end. */

struct bank_writer;
/* How long a file with n areas of these sizes will be, with a description of up to 4 KiB */
uint64_t cb_bank_file_bytes(const size_t *bytes, int n);
/* unsynced: as in struct new_file, for files that can be made again: checksums find what is lost */
int cb_bank_writer_open(const char *path, int unsynced, struct bank_writer **out);
int cb_bank_writer_add(struct bank_writer *w, const struct area *a);
/* The i-th one that was added has these bytes, as many, instead. */
int cb_bank_writer_replace(struct bank_writer *w, int i, const void *bytes);
/* Ends with the text about[n], and frees w, even after a failure. */
int cb_bank_writer_finish(struct bank_writer *w, int version, const char *about, size_t n);
void cb_bank_writer_abort(struct bank_writer *w); /* NULL is allowed */

/* ---- reading ---- */

struct bank_file {
    int fd;
    char *path;
    int version;
    char *about; /* JSON, ended by NUL */
    size_t n_about;
    struct bank_area *area; /* [n_area] each within the file */
    int n_area;
    uint64_t bytes;
    uint64_t id;   /* the checksum that covers all others */
    uint64_t uses; /* cb_bank_file_count_use() */
};

/* Opens `path` and checks header, table and text. CB_EIO; CB_EFORMAT: it is no saved bank, or
 * damaged; CB_EUNSUPPORTED: of a newer version. */
int cb_bank_file_open(const char *path, struct bank_file *f);
void cb_bank_file_close(struct bank_file *f);
/* The same open file once more, without its description, to be closed on its own. CB_ENOMEM */
int cb_bank_file_again(const struct bank_file *f, struct bank_file *out);
/* Compares each area with its checksum, but for kind `later` (0: none is left out), whose areas
 * cb_bank_file_read_checked() compares; par NULL: on the calling thread. CB_EFORMAT names the first
 * damaged one; CB_EIO and CB_ENOMEM say nothing about the file. */
int cb_bank_file_verify(const struct bank_file *f, uint32_t later, struct par *par);
/* The first n bytes of area i -> at[n] */
int cb_bank_file_read(const struct bank_file *f, int i, size_t n, void *at);
/* The whole area, then compares what is there now with its checksum: CB_EFORMAT */
int cb_bank_file_read_checked(const struct bank_file *f, int i, void *at);
/* 1: the sizes and addresses allow mapping the file there instead */
int cb_bank_file_maps(const struct bank_file *f, int i, size_t n, const void *at);
/* Does so; pages are copied when written to. The memory after the area, up to the end of its page,
 * is overwritten. */
int cb_bank_file_map(const struct bank_file *f, int i, size_t n, void *at);
/* 0: the open file became shorter, or another one was written in its place */
int cb_bank_file_is_same(const struct bank_file *f);
/* Counts one use in the file, which also sets the time of its last change. No checksum covers the
 * count; a file that cannot be written stays as it is. */
void cb_bank_file_count_use(const struct bank_file *f);

#endif
