/* SPDX-License-Identifier: MIT */
/* linux_flags.h - flags that are Linux's, for systems without them: hints that do nothing, and
 * requests that fail, after which callers do without. Include it after the system's headers. */
#ifndef LINUX_FLAGS_H
#define LINUX_FLAGS_H

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE MADV_NORMAL
#endif
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE MADV_NORMAL
#endif
#ifndef O_TMPFILE
#define O_TMPFILE 0 /* no folder opens for writing */
#endif
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC             0
#define memfd_create(name, how) (-1)
#endif
#ifndef _SC_AVPHYS_PAGES
#define _SC_AVPHYS_PAGES (-1)
#endif

#endif
