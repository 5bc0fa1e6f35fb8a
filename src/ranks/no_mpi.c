/* SPDX-License-Identifier: MIT */
/* no_mpi.c - where the library is built without MPI, a process is alone. */
#include "base/err.h"
#include "ranks.h"

int cb_ranks_built(void)
{
    return 0;
}

int cb_ranks_join(const struct ranks_params *p, struct ranks **out)
{
    (void)p;
    *out = NULL;
    return cb_fail(CB_EUNSUPPORTED, "ranks: this program was built without MPI (configure "
                                    "with-mpi)");
}

void cb_ranks_leave(struct ranks *r)
{
    (void)r;
}

int cb_ranks_near(struct ranks *r, int number, struct ranks **out)
{
    (void)number;
    *out = r;
    return CB_OK;
}

void cb_ranks_part(struct ranks *r)
{
    (void)r;
}

void cb_ranks_end(struct ranks *r, int status)
{
    (void)r, (void)status;
}

int cb_ranks_n(const struct ranks *r)
{
    (void)r;
    return 1;
}

int cb_ranks_me(const struct ranks *r)
{
    (void)r;
    return 0;
}

const char *cb_ranks_host(const struct ranks *r, int rank)
{
    (void)r, (void)rank;
    return "";
}

struct ranks_traffic cb_ranks_traffic(const struct ranks *r)
{
    (void)r;
    return (struct ranks_traffic){ 0 };
}

int cb_ranks_tell(struct ranks *r, int from, void *buf, size_t bytes, int idle)
{
    (void)r, (void)from, (void)buf, (void)bytes, (void)idle;
    return CB_OK;
}

int cb_ranks_share(struct ranks *r, const void *mine, size_t bytes, void *all)
{
    (void)r, (void)mine, (void)bytes, (void)all;
    return CB_OK;
}

int cb_ranks_send(struct ranks *r, int to, const void *buf, size_t bytes)
{
    (void)r, (void)to, (void)buf, (void)bytes;
    return CB_OK;
}

int cb_ranks_receive(struct ranks *r, int from, void *buf, size_t bytes)
{
    (void)r, (void)from, (void)buf, (void)bytes;
    return CB_OK;
}
