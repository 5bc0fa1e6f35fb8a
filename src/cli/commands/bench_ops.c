/* SPDX-License-Identifier: MIT */
/* bench_ops.c - ctxbank bench --ops: times of single ops beside the limits of this machine. */
#include "bench_ops.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "bench/run_ops.h"
#include "cli/output/log.h"
#include "cli/output/row_writer.h"
#include "par/cpus.h"

struct table {
    struct rows rows;
    int begun; /* 1: the head is printed, before the first row */
    char machine[160];
};

static const char *const columns[] = {
    "machine", "isa",      "matmul",      "threads",        "op",
    "type",    "model",    "shape",       "n_tok",          "n_ctx",
    "us",      "gb_per_s", "gflop_per_s", "limit_gb_per_s", "limit_gflop_per_s",
    NULL,
};

/* A figure that a row lacks is null, which is an empty field in CSV. */
static json_t *figure(double x)
{
    return x > 0 ? cb_json_real(x) : json_null();
}

static json_t *row_json(const struct table *t, const struct op_row *r)
{
    json_t *j = json_pack("{s:o, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:i, s:i}", "machine",
                          cb_json_str(t->machine), "isa", r->isa, "matmul", r->matmul, "threads",
                          r->threads, "op", r->op, "type", r->type, "model", r->model, "shape",
                          r->shape, "n_tok", r->n_tok, "n_ctx", r->n_ctx);
    const int rate = !strcmp(r->op, "limit") && r->bytes + r->flop > 0;

    cb_json_set(&j, "us", figure(rate ? 0 : 1e6 * r->s));
    cb_json_set(&j, "gb_per_s", figure(1e-9 * r->bytes / r->s));
    cb_json_set(&j, "gflop_per_s", figure(1e-9 * r->flop / r->s));
    cb_json_set(&j, "limit_gb_per_s", figure(1e-9 * r->read));
    cb_json_set(&j, "limit_gflop_per_s", figure(1e-9 * r->peak));
    return j;
}

static const char *text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* Prints "12.3 | 45% |"; unknown values stay blank. */
static void md_figure(double x, double limit)
{
    char value[32] = "", part[32] = "";

    if (x > 0)
        snprintf(value, sizeof value, "%.1f", x);
    if (x > 0 && limit > 0)
        snprintf(part, sizeof part, "%.0f%%", 100 * x / limit);
    printf(" %s | %s |", value, part);
}

static void md_line(const json_t *row)
{
    const char *matmul = text(row, "matmul");
    char size[48] = "";

    if (number(row, "n_ctx") > 0)
        snprintf(size, sizeof size, "%.0f @ %.0f", number(row, "n_tok"), number(row, "n_ctx"));
    else if (number(row, "n_tok") > 0)
        snprintf(size, sizeof size, "%.0f", number(row, "n_tok"));
    printf("| %s | %s%s%s | %s | %s %s | %s |", text(row, "isa"), text(row, "op"),
           *matmul ? " " : "", matmul, text(row, "type"), text(row, "model"), text(row, "shape"),
           size);
    if (number(row, "us") > 0)
        printf(" %.1f |", number(row, "us"));
    else
        printf("  |");
    md_figure(number(row, "gb_per_s"), number(row, "limit_gb_per_s"));
    md_figure(number(row, "gflop_per_s"), number(row, "limit_gflop_per_s"));
    putchar('\n');
}

static void begin(struct table *t)
{
    if (!t->begun)
        cb_rows_begin(&t->rows);
    t->begun = 1;
}

static int put(void *arg, const struct op_row *r)
{
    struct table *t = arg;

    if (cb_interrupted())
        return CB_ECANCEL;
    begin(t);
    return cb_rows_put(&t->rows, row_json(t, r));
}

int cb_bench_ops_run(const struct opts *o, int n_threads)
{
    struct table t = {
        .rows = { .format = cb_opt_text(o, ARG_FORMAT), .columns = columns, .md_line = md_line }
    };
    struct cpu_tiers tiers;
    const struct op_pick pick = { cb_opt_text(o, ARG_ONLY), &tiers };
    const struct team_params team = { n_threads,
                                      (enum numa_mode)cb_numa_mode(cb_opt_text(o, ARG_NUMA)),
                                      cb_opt_flag(o, ARG_PIN) };
    const char *device = cb_opt_text(o, ARG_DEVICE);
    char kernels[PATH_MAX];
    const struct device_want want = { .working_set = (uint64_t)cb_opt_int64(o, ARG_WORKING_SET),
                                      .cache_dir =
                                          cb_user_cache("kernels", kernels, sizeof kernels) };
    struct affinity place;
    int rc;

    t.rows.md_head =
        "| ISA | op | type | shape | tokens | us | GB/s | of limit | GFLOP/s | of limit |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";
    cb_cpu_find_tiers(&tiers);
    if (cb_op_pick_check(&pick))
        return cb_usage("--only: %s; 'ctxbank bench --help' names the ops", cb_error());
    if (!strcmp(device, "auto"))
        return cb_usage("--device: with --ops, name one");
    cb_cpus_name("/proc/cpuinfo", t.machine, sizeof t.machine);
    TRY(cb_affinity_here(&team, &place));
    if (*place.note)
        cb_log_note("%s", place.note);
    cb_affinity_free(&place);
    rc = cb_bench_ops(&pick, &team, device, &want, put, &t);
    if (!rc)
        begin(&t); /* of no rows */
    if (t.begun)
        cb_rows_end(&t.rows);
    return rc;
}
