/* SPDX-License-Identifier: MIT */
/* pick.c - chooses among the devices of this machine by their peak rates (limits.h). */
#include "pick.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum {
    KERNELS = 24, /* that a token takes in a layer */
    CHUNK = 512   /* tokens of a prompt for which a weight is copied in once */
};

static double best_product(const double *limit)
{
    double most = limit[LIMIT_F32];

    most = limit[LIMIT_BF16] > most ? limit[LIMIT_BF16] : most;
    return limit[LIMIT_INT8] > most ? limit[LIMIT_INT8] : most;
}

/* 0 where the device has no such limit */
static double per(double n, double limit)
{
    return limit > 0 ? n / limit : 0;
}

double cb_device_seconds(const struct device_load *m, const double *limit, const double *host,
                         uint64_t room)
{
    const double there = room && m->bytes > (double)room ? (double)room : m->bytes;
    const double beyond = m->bytes - there;
    const double prompt = per(PICK_PROMPT * m->flop, best_product(limit)) +
                          per(beyond * PICK_PROMPT / CHUNK, limit[LIMIT_IN]);
    const double token = per(there, limit[LIMIT_READ]) + per(beyond, host[LIMIT_READ]) +
                         per((double)KERNELS * m->n_layer, limit[LIMIT_LAUNCH]);

    return prompt + PICK_ANSWER * token;
}

struct pick {
    const struct device_load *m;
    const struct team_params *team;
    struct device_want want;
    double host[LIMIT_COUNT], best_s;
    char *name, *why;
    size_t size;
    int n;
};

static void say(struct pick *p, const char *name, double s, const char *error)
{
    const size_t used = strlen(p->why);
    const char *comma = p->n++ ? ", " : "";

    if (error)
        snprintf(p->why + used, p->size - used, "%s%s failed (%s)", comma, name, error);
    else
        snprintf(p->why + used, p->size - used, "%s%s %.3g s", comma, name, s);
}

static int measure(const struct pick *p, const char *name, const struct device_want *want,
                   double *limit, uint64_t *room)
{
    struct device *d;
    int err;

    TRY(cb_device_open_team(name, p->team, want, &d));
    err = cb_device_limits(d, limit);
    *room = cb_device_traffic(d).limit_bytes / 4 * 3; /* as much of it as weights may take */
    cb_device_close(d);
    return err;
}

static void try_device(struct pick *p, const char *name)
{
    double limit[LIMIT_COUNT], s;
    uint64_t room;

    if (measure(p, name, &p->want, limit, &room)) {
        say(p, name, 0, cb_error());
        return;
    }
    s = cb_device_seconds(p->m, limit, p->host, room);
    say(p, name, s, NULL);
    if (s < p->best_s) {
        p->best_s = s;
        snprintf(p->name, 32, "%s", name);
    }
}

static int try_cpu(struct pick *p)
{
    struct device_want want = p->want;
    uint64_t room;

    want.working_set = 0;
    want.stream_kv = 0;
    TRY(measure(p, "cpu", &want, p->host, &room));
    p->best_s = cb_device_seconds(p->m, p->host, p->host, 0);
    say(p, "cpu", p->best_s, NULL);
    return CB_OK;
}

/* The devices that have memory of their own, in the registry's order */
static int try_all(struct pick *p)
{
    const struct backend *b;
    const char *why;
    char text[256], name[32];
    uint64_t bytes;

    for (int i = 0; (b = cb_backend_at(i)); i++) {
        if (!b->own_memory || !b->unit_at || !b->available(&why))
            continue;
        for (int j = 0; b->unit_at(j, text, sizeof text, &bytes); j++) {
            if (!p->n)
                TRY(try_cpu(p));
            snprintf(name, sizeof name, "%s:%d", b->name, j);
            try_device(p, name);
        }
    }
    return CB_OK;
}

int cb_device_pick(const struct device_load *m, const struct team_params *t,
                   const struct device_want *want, char name[32], char *why, size_t size)
{
    static const struct device_want any = { 0 };
    struct pick p = { m, t, want ? *want : any, .name = name, .why = why, .size = size };
    size_t used;

    snprintf(name, 32, "cpu");
    *why = '\0';
    TRY(try_all(&p));
    used = strlen(why);
    if (p.n)
        snprintf(why + used, size - used,
                 " for a prompt of %d tokens and %d more, at the devices' limits", PICK_PROMPT,
                 PICK_ANSWER);
    else
        snprintf(why, size, "there is no accelerator");
    return CB_OK;
}
