/* SPDX-License-Identifier: MIT */
/* quantize.c - ctxbank quantize: writes a model in another type. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/suggest.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "gguf/requantize.h"

static const char *type_name(const void *ctx, int i)
{
    (void)ctx;
    return i < DT_ENCODED ? cb_dtype[i].name : NULL;
}

static int find_type(const char *text, enum dtype *out)
{
    const char *why = "no such type";
    char all[128];

    for (int i = 0; i < DT_COUNT; i++) {
        if (strcasecmp(text, cb_dtype[i].name))
            continue;
        *out = (enum dtype)i;
        if (i < DT_ENCODED)
            return CB_OK;
        why = "can be read, but not written";
    }
    cb_name_list(all, sizeof all, type_name, NULL);
    return cb_usage("type '%s': %s; there are %s", text, why, all);
}

/* Matrices that become another type: the first one, and all with -v */
struct fallbacks {
    char first[160];
};

static void on_fallback(void *arg, const char *tensor, int64_t row, enum dtype became)
{
    struct fallbacks *f = arg;
    char text[sizeof f->first];

    snprintf(text, sizeof text, "%.90s, rows of %" PRId64 " weights, becomes %s", tensor, row,
             cb_dtype[became].name);
    cb_log_detail("%s", text);
    if (!*f->first)
        memcpy(f->first, text, sizeof text);
}

static int on_progress(void *arg, int64_t done, int64_t total)
{
    cb_progress_step(arg, done >> 20, total >> 20);
    return cb_interrupted();
}

static int report(const struct opts *o, const struct quantize *q, double seconds)
{
    if (cb_opt_flag(o, ARG_JSON))
        return cb_json_print(
            json_pack("{s:o, s:s, s:I, s:I, s:i, s:i, s:i, s:f}", "output", cb_json_str(q->out),
                      "type", cb_dtype[q->type].name, "input_bytes", (json_int_t)q->in_bytes,
                      "output_bytes", (json_int_t)q->out_bytes, "tensors", q->n_tensor, "fallbacks",
                      q->n_fallback, "weighted", q->n_weighted, "elapsed_s", seconds));
    cb_log_note("%s: %d tensors, %" PRIu64 " bytes, %.1f %% of the input, in %.1f s", q->out,
                q->n_tensor, q->out_bytes, 100 * (double)q->out_bytes / (double)q->in_bytes,
                seconds);
    return CB_OK;
}

static int run(const struct opts *o)
{
    const char *const input = cb_opt_text(o, ARG_QUANTIZE_INPUT);
    const char *const *const named = o->operand + !input; /* OUTPUT and TYPE */
    struct quantize q = {
        .in = input ? input : o->operand[0],
        .out = named[0],
        .n_threads = cb_opt_int(o, ARG_THREADS),
        .imatrix = cb_opt_text(o, ARG_IMATRIX),
    };
    struct fallbacks other = { "" };
    const double start = cb_now_s();
    struct progress bar;
    int rc;

    if (o->n_operand != 3 - (input != NULL))
        return cb_usage("quantize: needs %s",
                        input ? "OUTPUT.gguf TYPE" : "INPUT.gguf OUTPUT.gguf TYPE");
    rc = find_type(named[1], &q.type);
    if (rc)
        return rc;
    cb_progress_start(&bar, cb_progress_when(o), "quantize", "MiB");
    q.progress = on_progress;
    q.progress_arg = &bar;
    q.fallback = on_fallback;
    q.fallback_arg = &other;
    cb_interrupt_catch();
    cb_bus_error_catch(q.in);
    rc = cb_quantize(&q);
    cb_progress_end(&bar);
    if (rc)
        return cb_interrupt_status(rc);
    if (q.n_requant)
        cb_log_note("%d matrices were quantised already: the errors of both types add up",
                    q.n_requant);
    if (q.imatrix)
        cb_log_note("%d matrices weighed by %s", q.n_weighted, q.imatrix);
    if (q.n_fallback)
        cb_log_note("%d matrices have rows that are not whole blocks of %s (%d weights): %s%s",
                    q.n_fallback, cb_dtype[q.type].name, cb_dtype[q.type].block, other.first,
                    q.n_fallback > 1 ? "; -v names all" : "");
    return report(o, &q, cb_now_s() - start);
}

const struct cmd cb_cmd_quantize = {
    .name = "quantize",
    .operands = "INPUT.gguf OUTPUT.gguf TYPE",
    .min_operands = 2,
    .max_operands = 3,
    .example = "model-F16.gguf model-Q4_K.gguf Q4_K",
    .brief = "write a model in another type",
    .sets = SET_OWN_QUANTIZE | SET_THREADS | SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = run,
};
