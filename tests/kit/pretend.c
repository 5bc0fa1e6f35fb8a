/* SPDX-License-Identifier: MIT */
/* pretend.c - sends the library's search for the CUDA driver to the one that pretends, in programs
 * that are linked with --wrap=dlopen. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void *__real_dlopen(const char *name, int mode);
void *__wrap_dlopen(const char *name, int mode);

/* CTXBANK_TEST_CUDA=real leaves the search as it is; =none finds nothing. */
void *__wrap_dlopen(const char *name, int mode)
{
    const char *which = getenv("CTXBANK_TEST_CUDA");

    which = which ? which : "";
    if (!name || strcmp(name, "libcuda.so.1") || !strcmp(which, "real"))
        return __real_dlopen(name, mode);
    return strcmp(which, "none") ? __real_dlopen(PRETEND_CUDA_LIB, mode) : NULL;
}
