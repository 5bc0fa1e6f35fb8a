/* SPDX-License-Identifier: MIT */
/* failing_calls.c - makes the n-th call of a kind fail, once or from then on. Two forms: a library
 * that is loaded before all others (LD_PRELOAD), which sees the calls of every library; or, with
 * -DFAULTS_WRAPPED, an object of a program that is linked with --wrap for each call, for
 * sanitizers, whose own functions would hide a library's.
 *
 * CTXBANK_FAULTS names a file of int32 numbers, struct control, which whoever watches maps too: it
 * says what fails, and sees what was called. With CTXBANK_FAULTS_SERVE=1 the program stops before
 * its own code, and starts a copy of itself for each line "OUT ERR SECONDS" that it reads from
 * descriptor 198, whose output goes to these files; to 199 it writes "STATUS", as from waitpid().
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { ALLOC, OPEN, READ, WRITE, SYNC, RENAME, MAP, THREAD, OTHER, KINDS };

struct control {
    atomic_int kind; /* -1: nothing fails */
    atomic_int nth;  /* from 1 */
    atomic_int on;   /* 1: and all calls after it */
    atomic_int failed;
    atomic_int calls[KINDS];
};

static struct control *control;

static int fails(enum kind kind, int err)
{
    int n, nth;

    if (!control)
        return 0;
    n = atomic_fetch_add(&control->calls[kind], 1) + 1;
    nth = atomic_load(&control->nth);
    if (atomic_load(&control->kind) != (int)kind || n < nth ||
        (n > nth && !atomic_load(&control->on)))
        return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = err;
    return 1;
}

/* ---- the calls ---- */

#ifdef FAULTS_WRAPPED
#define NAME(f) __wrap_##f
#define REAL(f) __real_##f
#define DECLARE(result, f, ...)                                                                    \
    result __real_##f(__VA_ARGS__);                                                                \
    result __wrap_##f(__VA_ARGS__);
#else
#define NAME(f) f
#define REAL(f) find_##f()
/* dlsym() allocates, so no call is looked for while one may fail: begin() has found them. */
#define DECLARE(result, f, ...)                                                                    \
    typedef result (*f##_fn)(__VA_ARGS__);                                                         \
    static f##_fn find_##f(void)                                                                   \
    {                                                                                              \
        static _Atomic(f##_fn) found;                                                              \
        f##_fn it = atomic_load(&found);                                                           \
        if (!it) {                                                                                 \
            it = (f##_fn)(uintptr_t)dlsym(RTLD_NEXT, #f);                                          \
            atomic_store(&found, it);                                                              \
        }                                                                                          \
        return it;                                                                                 \
    }                                                                                              \
    __attribute__((visibility("default"))) result f(__VA_ARGS__);
#endif

#define CALL(kind, error, none, result, f, parameters, arguments)                                  \
    DECLARE(result, f, PARAMETERS parameters)                                                      \
    result NAME(f)(PARAMETERS parameters)                                                          \
    {                                                                                              \
        return fails(kind, error) ? (none) : REAL(f) arguments;                                    \
    }
#define PARAMETERS(...) __VA_ARGS__

/* ---- memory: dlsym() itself allocates, so the library's other names are called ---- */

#ifndef FAULTS_WRAPPED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    return fails(ALLOC, ENOMEM) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(ALLOC, ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails(ALLOC, ENOMEM) ? NULL : __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = fails(ALLOC, ENOMEM) ? NULL : __libc_memalign(align, n);

    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

void *aligned_alloc(size_t align, size_t n)
{
    return fails(ALLOC, ENOMEM) ? NULL : __libc_memalign(align, n);
}
#else
CALL(ALLOC, ENOMEM, NULL, void *, malloc, (size_t n), (n))
CALL(ALLOC, ENOMEM, NULL, void *, calloc, (size_t n, size_t size), (n, size))
CALL(ALLOC, ENOMEM, NULL, void *, realloc, (void *p, size_t n), (p, n))
CALL(ALLOC, ENOMEM, ENOMEM, int, posix_memalign, (void **out, size_t align, size_t n),
     (out, align, n))
CALL(ALLOC, ENOMEM, NULL, char *, strdup, (const char *s), (s))
CALL(ALLOC, ENOMEM, NULL, char *, strndup, (const char *s, size_t n), (s, n))
#endif

/* ---- files ---- */

DECLARE(int, open, const char *path, int flags, ...)
int NAME(open)(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    return fails(OPEN, EMFILE) ? -1 : REAL(open)(path, flags, mode);
}

CALL(OPEN, EMFILE, NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
CALL(OPEN, EMFILE, NULL, FILE *, fdopen, (int fd, const char *mode), (fd, mode))
CALL(OPEN, EMFILE, NULL, DIR *, opendir, (const char *path), (path))
CALL(OPEN, EMFILE, -1, int, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(OPEN, EMFILE, -1, int, pipe2, (int fd[2], int flags), (fd, flags))
CALL(OPEN, EMFILE, -1, int, socket, (int domain, int type, int protocol), (domain, type, protocol))

CALL(READ, EIO, -1, ssize_t, read, (int fd, void *to, size_t n), (fd, to, n))
CALL(READ, EIO, -1, ssize_t, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
CALL(READ, EIO, NULL, struct dirent *, readdir, (DIR * d), (d))
CALL(READ, EIO, -1, ssize_t, getrandom, (void *to, size_t n, unsigned flags), (to, n, flags))

CALL(WRITE, ENOSPC, -1, ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n))
CALL(WRITE, ENOSPC, -1, ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at),
     (fd, from, n, at))
CALL(WRITE, EPIPE, -1, ssize_t, send, (int fd, const void *from, size_t n, int flags),
     (fd, from, n, flags))
CALL(WRITE, EPIPE, -1, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags),
     (fd, m, flags))

CALL(SYNC, EIO, -1, int, fsync, (int fd), (fd))
CALL(SYNC, ENOSPC, -1, int, ftruncate, (int fd, off_t n), (fd, n))

CALL(RENAME, EIO, -1, int, rename, (const char *from, const char *to), (from, to))
CALL(RENAME, EIO, -1, int, linkat, (int at, const char *from, int to_at, const char *to, int flags),
     (at, from, to_at, to, flags))

CALL(MAP, ENOMEM, MAP_FAILED, void *, mmap,
     (void *to, size_t n, int prot, int flags, int fd, off_t at), (to, n, prot, flags, fd, at))

CALL(THREAD, EAGAIN, EAGAIN, int, pthread_create,
     (pthread_t * out, const pthread_attr_t *attr, void *(*f)(void *), void *arg),
     (out, attr, f, arg))

CALL(OTHER, EIO, -1, int, fstat, (int fd, struct stat *st), (fd, st))
CALL(OTHER, EIO, -1, int, stat, (const char *path, struct stat *st), (path, st))
CALL(OTHER, EIO, -1, off_t, lseek, (int fd, off_t at, int whence), (fd, at, whence))
CALL(OTHER, EIO, NULL, char *, realpath, (const char *path, char *out), (path, out))

/* A stream is read by calls inside of the library: it fails as a whole, and says so. */
DECLARE(size_t, fread, void *to, size_t size, size_t n, FILE *f)
size_t NAME(fread)(void *to, size_t size, size_t n, FILE *f)
{
    if (!fails(READ, EIO))
        return REAL(fread)(to, size, n, f);
    f->_flags |= 0x20; /* ferror() */
    return 0;
}

DECLARE(char *, fgets, char *to, int n, FILE *f)
char *NAME(fgets)(char *to, int n, FILE *f)
{
    if (!fails(READ, EIO))
        return REAL(fgets)(to, n, f);
    f->_flags |= 0x20;
    return NULL;
}

DECLARE(size_t, fwrite, const void *from, size_t size, size_t n, FILE *f)
size_t NAME(fwrite)(const void *from, size_t size, size_t n, FILE *f)
{
    if (!fails(WRITE, ENOSPC))
        return REAL(fwrite)(from, size, n, f);
    f->_flags |= 0x20;
    return 0;
}

DECLARE(int, fflush, FILE *f)
int NAME(fflush)(FILE *f)
{
    if (!f || !fails(WRITE, ENOSPC))
        return REAL(fflush)(f);
    f->_flags |= 0x20;
    return EOF;
}

DECLARE(int, fclose, FILE *f)
int NAME(fclose)(FILE *f)
{
    const int failed = fails(WRITE, ENOSPC);

    return REAL(fclose)(f) || failed ? EOF : 0;
}

/* ---- before the program begins ---- */

#ifndef FAULTS_WRAPPED
static void find_all(void)
{
    find_open(), find_fopen(), find_fdopen(), find_opendir(), find_memfd_create(), find_pipe2(),
        find_socket();
    find_read(), find_pread(), find_readdir(), find_getrandom(), find_write(), find_pwrite();
    find_send(), find_sendmsg(), find_fsync(), find_ftruncate(), find_rename(), find_linkat();
    find_mmap(), find_pthread_create(), find_fstat(), find_stat(), find_lseek(), find_realpath();
    find_fread(), find_fgets(), find_fwrite(), find_fflush(), find_fclose();
}
#else
static void find_all(void)
{
}
#endif

static void map_control(const char *path)
{
    const int fd = REAL(open)(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED
                     : REAL(mmap)(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        _exit(99);
    control = p;
}

static void send_to(const char *path, int fd)
{
    const int to = REAL(open)(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (to < 0 || dup2(to, fd) < 0)
        _exit(98);
    close(to);
}

enum { ASKS = 198, TOLD = 199 };

/* One line of a pipe. 0: it has ended */
static int next_line(char *line, size_t cap)
{
    size_t n = 0;

    while (n + 1 < cap && REAL(read)(ASKS, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = '\0';
    return n > 0;
}

/* Returns in each copy; the original never does. */
static void serve(void)
{
    char line[1024], out[400], err[400];
    int seconds, status;

    while (next_line(line, sizeof line)) {
        pid_t child;
        if (sscanf(line, "%399s %399s %d", out, err, &seconds) != 3)
            _exit(97);
        for (int k = 0; k < KINDS; k++)
            atomic_store(&control->calls[k], 0);
        atomic_store(&control->failed, 0);
        child = fork();
        if (!child) {
            send_to(out, STDOUT_FILENO);
            send_to(err, STDERR_FILENO);
            close(ASKS);
            close(TOLD);
            alarm((unsigned)seconds);
            for (int k = 0; k < KINDS; k++)
                atomic_store(&control->calls[k], 0);
            return;
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            _exit(96);
        if (REAL(write)(TOLD, line, (size_t)snprintf(line, sizeof line, "%d\n", status)) < 0)
            _exit(95);
    }
    _exit(0);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CTXBANK_FAULTS");

    if (!path)
        return;
    find_all();
    map_control(path);
    unsetenv("CTXBANK_FAULTS");
    if (!getenv("CTXBANK_FAULTS_SERVE"))
        return;
    unsetenv("CTXBANK_FAULTS_SERVE");
    serve();
}
