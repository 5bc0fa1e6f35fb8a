/* SPDX-License-Identifier: MIT */
/* quantize.c - ctxbank quantize: writes a model in another type. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cmd.h"
#include "gguf/requantize.h"
#include "log.h"

static int find_type(const char *text, enum dtype *out)
{
    char all[128] = "";

    for (int i = 0; i < DT_ENCODED; i++) {
        if (!strcasecmp(text, cb_dtype[i].name)) {
            *out = (enum dtype)i;
            return CB_OK;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", cb_dtype[i].name);
    }
    return cb_usage("type '%s': is none of:%s", text, all);
}

static int on_progress(void *arg, int64_t done, int64_t total)
{
    cb_progress_step(arg, done >> 20, total >> 20);
    return cb_interrupted();
}

static int report(const struct opts *o, const struct quantize *q, double seconds)
{
    if (cb_opt_flag(o, ARG_JSON))
        return cb_json_print(json_pack("{s:o, s:s, s:I, s:I, s:i, s:i, s:f}", "output",
                                       cb_json_str(q->out), "type", cb_dtype[q->type].name,
                                       "input_bytes", (json_int_t)q->in_bytes, "output_bytes",
                                       (json_int_t)q->out_bytes, "tensors", q->n_tensor,
                                       "fallbacks", q->n_fallback, "elapsed_s", seconds));
    cb_log_note("%s: %d tensors, %" PRIu64 " bytes, %.1f %% of the input, in %.1f s", q->out,
                q->n_tensor, q->out_bytes, 100 * (double)q->out_bytes / (double)q->in_bytes,
                seconds);
    return CB_OK;
}

static int run(const struct opts *o)
{
    struct quantize q = {
        .in = o->operand[0],
        .out = o->operand[1],
        .n_threads = cb_opt_int(o, ARG_THREADS),
    };
    const double start = cb_now_s();
    struct progress bar;
    int rc = find_type(o->operand[2], &q.type);

    if (rc)
        return rc;
    cb_progress_start(&bar, cb_progress_when(o), "quantize", "MiB");
    q.progress = on_progress;
    q.progress_arg = &bar;
    cb_interrupt_catch();
    cb_bus_error_catch(q.in);
    rc = cb_quantize(&q);
    cb_progress_end(&bar);
    if (rc)
        return cb_interrupt_status(rc);
    if (q.n_requant)
        cb_log_note("%d matrices were quantised already: the errors of both types add up",
                    q.n_requant);
    if (q.n_fallback)
        cb_log_note("%d matrices have rows that are no whole blocks of %s: kept in a wider type",
                    q.n_fallback, cb_dtype[q.type].name);
    return report(o, &q, cb_now_s() - start);
}

const struct cmd cb_cmd_quantize = {
    .name = "quantize",
    .operands = "INPUT.gguf OUTPUT.gguf TYPE",
    .min_operands = 3,
    .max_operands = 3,
    .brief = "write a model in another type",
    .sets = SET_THREADS | SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = run,
};
