/* SPDX-License-Identifier: MIT */
/* info_backends.c - ctxbank info --backends: the devices, their memory, and how fast they are. */
#include "info_backends.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/device.h"
#include "par/affinity.h"

/* ---- limits ---- */

static const struct {
    enum limit limit;
    const char *key, *text, *unit;
    double scale;
} shown[] = {
    { LIMIT_READ_1, "read_1_gb_per_s", "memory, 1 thread", "GB/s", 1e-9 },
    { LIMIT_READ, "read_gb_per_s", "memory", "GB/s", 1e-9 },
    { LIMIT_F32, "f32_gflop_per_s", "f32", "GFLOP/s", 1e-9 },
    { LIMIT_BF16, "bf16_gflop_per_s", "bf16", "GFLOP/s", 1e-9 },
    { LIMIT_INT8, "int8_gop_per_s", "int8", "Gop/s", 1e-9 },
    { LIMIT_IN, "to_device_gb_per_s", "host to device", "GB/s", 1e-9 },
    { LIMIT_OUT, "from_device_gb_per_s", "device to host", "GB/s", 1e-9 },
    { LIMIT_LAUNCH, "kernels_per_ms", "empty kernels", "a ms", 1e-3 },
};
enum { N_SHOWN = sizeof shown / sizeof *shown };

json_t *cb_json_limits(const double *limit)
{
    json_t *j = json_object();

    for (int i = 0; i < N_SHOWN; i++) {
        const double x = limit[shown[i].limit];
        cb_json_set(&j, shown[i].key, x > 0 ? json_real(x * shown[i].scale) : json_null());
    }
    return j;
}

void cb_print_limits(const double *limit, int indent)
{
    for (int i = 0; i < N_SHOWN; i++) {
        const double x = limit[shown[i].limit];
        if (x > 0)
            printf("%*s%-16s %.1f %s\n", indent, "", shown[i].text, x * shown[i].scale,
                   shown[i].unit);
    }
}

/* ---- devices ---- */

struct unit {
    char name[32]; /* "opencl:0" */
    char model[256];
    uint64_t bytes;
    int measured;
    double limit[LIMIT_COUNT];
};

/* Fails where the device does not open. */
static int measure(const struct opts *o, struct unit *u)
{
    const struct team_params team = { cb_opt_int(o, ARG_THREADS),
                                      (enum numa_mode)cb_numa_mode(cb_opt_text(o, ARG_NUMA)),
                                      cb_opt_flag(o, ARG_PIN) };
    char kernels[PATH_MAX];
    const struct device_want want = { .cache_dir =
                                          cb_user_cache("kernels", kernels, sizeof kernels) };
    struct device *d;
    int err;

    if (!cb_opt_flag(o, ARG_MEASURE))
        return CB_OK;
    TRY(cb_device_open_team(u->name, &team, &want, &d));
    u->measured = d->ops->limits != NULL;
    err = cb_device_limits(d, u->limit);
    cb_device_close(d);
    return err;
}

/* ---- forms ---- */

static void print_unit(const struct unit *u, int numbered)
{
    if (numbered)
        printf("  %s: %s, %.1f GiB\n", u->name, u->model, (double)u->bytes / 1073741824);
    if (u->measured)
        cb_print_limits(u->limit, numbered ? 4 : 2);
}

static void add_unit(json_t **list, const struct unit *u, int j)
{
    json_t *unit =
        json_pack("{s:i, s:s, s:I}", "index", j, "model", u->model, "bytes", (json_int_t)u->bytes);

    if (u->measured)
        cb_json_set(&unit, "speeds", cb_json_limits(u->limit));
    cb_json_add(list, unit);
}

static int numbered_units(const struct opts *o, int i, const char *name, json_t **list)
{
    struct unit u = { .name = "" };

    for (int j = 0; !cb_device_unit_at(i, j, u.model, sizeof u.model, &u.bytes); j++) {
        snprintf(u.name, sizeof u.name, "%s:%d", name, j);
        TRY(measure(o, &u));
        if (list)
            add_unit(list, &u, j);
        else
            print_unit(&u, 1);
    }
    return CB_OK;
}

static void print_backend(const struct cb_device_info *d)
{
    printf("%-8s %-13s %s%s%s\n", d->name, d->available ? "available" : "not available", d->text,
           d->available ? "" : ": ", d->why_not);
}

/* Backend i as a line and its devices', or as an object of the list */
static int backend(const struct opts *o, int i, const struct cb_device_info *d, json_t **list)
{
    struct unit u = { .name = "" };
    json_t *units = list ? json_array() : NULL, *j;

    snprintf(u.name, sizeof u.name, "%s", d->name);
    if (!list)
        print_backend(d);
    if (d->available && !cb_backend_at(i)->unit_at)
        TRY(measure(o, &u));
    if (!list)
        print_unit(&u, 0);
    TRY(numbered_units(o, i, d->name, list ? &units : NULL));
    if (!list)
        return CB_OK;
    j = json_pack("{s:s, s:s, s:b, s:s, s:o}", "name", d->name, "text", d->text, "available",
                  d->available, "why_not", d->why_not, "devices", units);
    if (u.measured)
        cb_json_set(&j, "speeds", cb_json_limits(u.limit));
    cb_json_add(list, j);
    return CB_OK;
}

int cb_info_backends(const struct opts *o)
{
    const int json = cb_opt_flag(o, ARG_JSON);
    json_t *list = json ? json_array() : NULL;
    struct cb_device_info d;

    for (int i = 0; !cb_device_at(i, &d); i++) {
        const int rc = backend(o, i, &d, json ? &list : NULL);
        if (rc) {
            json_decref(list);
            return rc;
        }
    }
    return json ? cb_json_print(list) : CB_OK;
}
