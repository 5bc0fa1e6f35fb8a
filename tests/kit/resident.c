/* SPDX-License-Identifier: MIT */
/* resident.c - memory of this process. */
#include "resident.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

long cb_resident_bytes(void)
{
    long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%ld %ld", &size, &pages), 2);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}
