/* SPDX-License-Identifier: MIT */
/* random_model.c - writes a model of random weights in the shape that a text describes: to measure
 * speed and memory where no real model of that size can be had. Its texts mean nothing.
 *
 * usage: bench/random-model SHAPE.txt OUT.gguf [TYPE]
 *
 * A line of a shape is one of
 *   string|u32|f32|bool KEY VALUE    metadata; lists of u32, f32 and bool have commas
 *   vocabulary N                     a byte-level vocabulary of N tokens
 *   tensor NAME TYPE N [N...]        dimensions as GGUF lists them; TYPE * is the argument's
 *   layers A B [A B...]              '%' in the names of what follows runs from A to B - 1
 * and # begins a comment. Matrices are normal with deviation 1 / sqrt(n_in), names that end in
 * norm.weight are 1, those that end in ssm_a are -e^x of a normal x, so that a state decays, and
 * other rows of one dimension are 0.01 times a normal number. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/number.h"
#include "base/splitmix.h"
#include "gguf/dtype.h"
#include "gguf/gguf_write.h"

enum { MOST_DIM = 4, MOST_TENSOR = 1 << 17, POOL = 1 << 22, LIST = 1024, NAME = 96, RANGES = 32 };

struct tensor {
    char name[NAME];
    enum dtype type;
    int n_dim;
    int64_t dim[MOST_DIM];
};

struct shape {
    struct gguf_writer w;
    struct tensor *at; /* [n] */
    int n;
    int range[RANGES][2], n_range; /* layers of the lines that follow: first, one after the last */
    enum dtype type;
    uint64_t rng;
};

static void fail(const char *file, int line, const char *why)
{
    fprintf(stderr, "random-model: %s:%d: %s\n", file, line, why);
    exit(1);
}

/* The sum of twelve uniform numbers */
static float normal(uint64_t *s)
{
    float sum = -6;

    for (int i = 0; i < 3; i++)
        for (uint64_t x = cb_splitmix(s), k = 0; k < 4; k++, x >>= 16)
            sum += (float)(x & 0xffff) / 65536;
    return sum;
}

/* ---- metadata ---- */

/* Characters that stand for bytes in a byte-level vocabulary: printable ones for themselves */
static int byte_char(int byte)
{
    int other = 0;

    if ((byte >= 33 && byte < 127) || (byte >= 161 && byte != 173))
        return byte;
    for (int b = 0; b < byte; b++)
        other += !((b >= 33 && b < 127) || (b >= 161 && b != 173));
    return 256 + other;
}

static void put_vocabulary(struct shape *s, int n)
{
    struct gguf_str *piece = calloc((size_t)n + 2, sizeof *piece);
    char(*text)[16] = calloc((size_t)n + 2, sizeof *text);
    int32_t *kind = calloc((size_t)n, sizeof *kind);
    struct gguf_str merge = { "a a", 3 };

    if (!piece || !text || !kind)
        exit(1);
    for (int i = 0; i < n; i++) {
        const int c = i < 256 ? byte_char(i) : 0;
        if (c >= 128)
            snprintf(text[i], sizeof *text, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 63));
        else if (i < 256)
            snprintf(text[i], sizeof *text, "%c", c);
        else
            snprintf(text[i], sizeof *text, i == 256 ? "aa" : i == n - 1 ? "<|end|>" : "t%d", i);
        kind[i] = i == n - 1 ? 3 : 1;
        piece[i] = (struct gguf_str){ text[i], strlen(text[i]) };
    }
    cb_gguf_put_string(&s->w, "tokenizer.ggml.model", "gpt2");
    cb_gguf_put_string(&s->w, "tokenizer.ggml.pre", "gpt-2");
    cb_gguf_put_strings(&s->w, "tokenizer.ggml.tokens", piece, (uint64_t)n);
    cb_gguf_put_array(&s->w, "tokenizer.ggml.token_type", GGUF_I32, kind, (uint64_t)n);
    cb_gguf_put_strings(&s->w, "tokenizer.ggml.merges", &merge, 1);
    cb_gguf_put_i64(&s->w, "tokenizer.ggml.bos_token_id", GGUF_U32, n - 1);
    cb_gguf_put_i64(&s->w, "tokenizer.ggml.eos_token_id", GGUF_U32, n - 1);
    free(piece);
    free(text);
    free(kind);
}

static int put_value(struct shape *s, const char *kind, const char *key, char *value)
{
    double x[LIST];
    uint32_t u[LIST];
    float f[LIST];
    uint8_t b[LIST];
    int n = 0;

    if (!strcmp(kind, "string")) {
        cb_gguf_put_string(&s->w, key, value);
        return 1;
    }
    for (char *end = value; n < LIST; value = end + 1) {
        x[n] = cb_number(value, &end);
        if (end == value)
            return 0;
        u[n] = (uint32_t)x[n];
        f[n] = (float)x[n];
        b[n] = x[n] != 0;
        n++;
        if (*end != ',')
            break;
    }
    if (!strcmp(kind, "u32") && n == 1)
        cb_gguf_put_i64(&s->w, key, GGUF_U32, (int64_t)x[0]);
    else if (!strcmp(kind, "u32"))
        cb_gguf_put_array(&s->w, key, GGUF_U32, u, (uint64_t)n);
    else if (!strcmp(kind, "f32") && n == 1)
        cb_gguf_put_f32(&s->w, key, f[0]);
    else if (!strcmp(kind, "f32"))
        cb_gguf_put_array(&s->w, key, GGUF_F32, f, (uint64_t)n);
    else if (!strcmp(kind, "bool") && n == 1)
        cb_gguf_put_bool(&s->w, key, b[0]);
    else if (!strcmp(kind, "bool"))
        cb_gguf_put_array(&s->w, key, GGUF_BOOL, b, (uint64_t)n);
    else
        return 0;
    return 1;
}

/* ---- tensors ---- */

static int find_type(const struct shape *s, const char *name)
{
    if (!strcmp(name, "*"))
        return (int)s->type;
    for (int t = 0; t < DT_COUNT; t++)
        if (cb_dtype[t].from_f32 && !strcmp(cb_dtype[t].name, name))
            return t;
    return -1;
}

static int put_tensor(struct shape *s, const struct tensor *t)
{
    const struct gguf_str name = { t->name, strlen(t->name) };

    if (s->n == MOST_TENSOR || t->dim[0] % cb_dtype[t->type].block)
        return 0;
    s->at[s->n++] = *t;
    cb_gguf_put_tensor(&s->w, name, t->type, t->n_dim, t->dim);
    return 1;
}

/* "layers A B..." after its first word */
static int read_layers(struct shape *s, const char *line)
{
    int used = 0;

    s->n_range = 0;
    for (; line[strspn(line, " ")] && s->n_range < RANGES; line += used) {
        int *r = s->range[s->n_range++];
        if (sscanf(line, "%d %d%n", &r[0], &r[1], &used) != 2 || r[0] < 0)
            return 0;
    }
    return s->n_range > 0 && !line[strspn(line, " ")];
}

/* A tensor for each layer, named FRONT, its number, BACK */
static int put_layers(struct shape *s, struct tensor *t, const char *front, const char *back)
{
    for (int i = 0; i < s->n_range; i++)
        for (int l = s->range[i][0]; l < s->range[i][1]; l++) {
            snprintf(t->name, sizeof t->name, "%s%d%s", front, l, back);
            if (!put_tensor(s, t))
                return 0;
        }
    return 1;
}

/* "tensor NAME TYPE N..." after its first word */
static int read_tensor(struct shape *s, char *line)
{
    char *name = strsep(&line, " "), *mark = name ? strchr(name, '%') : NULL;
    const char *type = strsep(&line, " "), *word;
    struct tensor t = { .n_dim = 0 };
    const int kind = type ? find_type(s, type) : -1;

    while ((word = strsep(&line, " ")) && t.n_dim < MOST_DIM)
        if (*word)
            t.dim[t.n_dim++] = (int64_t)cb_number(word, NULL);
    if (kind < 0 || !t.n_dim || t.dim[0] < 1)
        return 0;
    t.type = (enum dtype)kind;
    if (mark) {
        *mark = '\0';
        return put_layers(s, &t, name, mark + 1);
    }
    snprintf(t.name, sizeof t.name, "%s", name);
    return put_tensor(s, &t);
}

static int read_line(struct shape *s, char *line)
{
    char *word;

    line[strcspn(line, "#\n")] = '\0';
    for (size_t n = strlen(line); n && line[n - 1] == ' ';)
        line[--n] = '\0';
    line += strspn(line, " ");
    if (!*line)
        return 1;
    word = strsep(&line, " ");
    if (!line)
        return 0;
    line += strspn(line, " ");
    if (!strcmp(word, "tensor"))
        return read_tensor(s, line);
    if (!strcmp(word, "layers"))
        return read_layers(s, line);
    if (!strcmp(word, "vocabulary")) {
        const int n = (int)cb_number(line, NULL);
        if (n < 512)
            return 0;
        put_vocabulary(s, n);
        return 1;
    }
    {
        const char *key = strsep(&line, " ");
        return line && put_value(s, word, key, line + strspn(line, " "));
    }
}

static void read_shape(struct shape *s, const char *path)
{
    FILE *f = fopen(path, "r");
    char line[4096];
    int n = 0;

    if (!f)
        fail(path, 0, strerror(errno));
    while (fgets(line, sizeof line, f))
        if (n++, !read_line(s, line))
            fail(path, n, "cannot be read");
    fclose(f);
}

/* ---- data ---- */

static void write_all(int fd, const void *p, size_t n)
{
    for (const char *at = p; n;) {
        const ssize_t done = write(fd, at, n);
        if (done <= 0) {
            fprintf(stderr, "random-model: %s\n", done ? strerror(errno) : "nothing written");
            exit(1);
        }
        at += done;
        n -= (size_t)done;
    }
}

static int ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static float number(struct shape *s, const struct tensor *t)
{
    const float x = normal(&s->rng);

    if (ends_in(t->name, "ssm_a"))
        return -expf(x);
    return t->n_dim > 1 ? x / sqrtf((float)t->dim[0]) : 0.01f * x;
}

/* Blocks of a pool of random numbers, from a place that differs for each tensor */
static void write_tensor(struct shape *s, const struct tensor *t, int fd, float *x, char *bytes)
{
    const struct dtype_info *d = &cb_dtype[t->type];
    const int ones = ends_in(t->name, "norm.weight");
    int64_t n = 1, size, pool = POOL;
    uint64_t at = cb_splitmix(&s->rng);

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    pool = n < pool ? n : pool;
    for (int64_t i = 0; i < pool; i++)
        x[i] = ones ? 1 : number(s, t);
    d->from_f32(x, bytes, pool);
    size = n / d->block * d->block_bytes;
    for (int64_t left = size; left > 0;) {
        const int64_t held = pool / d->block, from = (int64_t)(at % (uint64_t)held);
        int64_t part = (n > pool ? held - from : held) * d->block_bytes;
        part = part < left ? part : left;
        write_all(fd, bytes + (n > pool ? from * d->block_bytes : 0), (size_t)part);
        left -= part;
        at = cb_splitmix(&s->rng);
    }
    {
        static const char zero[64];
        write_all(fd, zero, cb_gguf_pad(&s->w, (uint64_t)size));
    }
}

int main(int argc, char **argv)
{
    struct shape s = { .type = DT_Q4_0, .rng = 1 };
    float *x = malloc(POOL * sizeof *x);
    char *bytes = malloc(POOL * sizeof *x);
    struct gguf_bytes head;
    int fd;

    if (argc < 3 || argc > 4 || !x || !bytes) {
        fputs("usage: random-model SHAPE.txt OUT.gguf [TYPE]\n", stderr);
        return 2;
    }
    s.at = calloc(MOST_TENSOR, sizeof *s.at);
    if (!s.at)
        return 1;
    if (argc == 4) {
        const int t = find_type(&s, argv[3]);
        if (t < 0)
            fail(argv[3], 0, "no such type");
        s.type = (enum dtype)t;
    }
    cb_gguf_writer_init(&s.w);
    read_shape(&s, argv[1]);
    fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || cb_gguf_put_header(&s.w, &head))
        fail(argv[2], 0, fd < 0 ? strerror(errno) : cb_error());
    write_all(fd, head.p, head.n);
    for (int i = 0; i < s.n; i++)
        write_tensor(&s, &s.at[i], fd, x, bytes);
    if (close(fd))
        fail(argv[2], 0, strerror(errno));
    free(head.p);
    cb_gguf_writer_free(&s.w);
    free(s.at);
    free(x);
    free(bytes);
    return 0;
}
