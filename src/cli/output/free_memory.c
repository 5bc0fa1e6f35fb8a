/* SPDX-License-Identifier: MIT */
/* free_memory.c - how much memory programs can still get. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/cmd.h"

uint64_t cb_free_bytes(void)
{
    struct buf text = { 0 };
    unsigned long long kib = 0;
    const char *at;

    if (!cb_file_read_path("/proc/meminfo", &text) && (at = strstr(text.s, "MemAvailable:")))
        kib = strtoull(at + strlen("MemAvailable:"), NULL, 10);
    cb_buf_free(&text);
    return kib * 1024;
}
