/* SPDX-License-Identifier: MIT */
/* out.c - text from a model on standard output. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"
#include "cli/cmd.h"

int cb_out_flush(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return CB_OK;
    return cb_fail(CB_EIO, "standard output: %s", strerror(errno ? errno : EIO));
}

static int plain(const char *s, size_t n, const char *keep)
{
    struct buf b = { 0 };
    const int rc = cb_buf_put(&b, s, n);

    if (!rc)
        fwrite(b.s, 1, cb_utf8_plain(b.s, b.n, keep), stdout);
    cb_buf_free(&b);
    return rc;
}

void cb_out_plain(const char *s)
{
    (void)plain(s, strlen(s), "");
}

int cb_out_text(const char *s, size_t n)
{
    if (isatty(STDOUT_FILENO))
        TRY(plain(s, n, "\n\t")); /* it would obey escape sequences */
    else
        fwrite(s, 1, n, stdout);
    return cb_out_flush();
}
