/* SPDX-License-Identifier: MIT */
/* out.c - text from a model on standard output. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"
#include "cmd.h"

int cb_out_flush(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return CB_OK;
    return cb_fail(CB_EIO, "standard output: %s", strerror(errno ? errno : EIO));
}

/* A terminal obeys escape sequences, so it gets none. */
static int to_terminal(const char *s, size_t n)
{
    struct buf b = { 0 };
    const int rc = cb_buf_put(&b, s, n);

    if (!rc)
        fwrite(b.s, 1, cb_utf8_plain(b.s, b.n, "\n\t"), stdout);
    cb_buf_free(&b);
    return rc;
}

int cb_out_text(const char *s, size_t n)
{
    if (isatty(STDOUT_FILENO))
        TRY(to_terminal(s, n));
    else
        fwrite(s, 1, n, stdout);
    return cb_out_flush();
}
