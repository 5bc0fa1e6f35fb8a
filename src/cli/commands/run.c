/* SPDX-License-Identifier: MIT */
/* run.c - ctxbank run: completes a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "cli/prompt.h"
#include "cli/ranked.h"

static int emit(void *arg, const char *s, size_t n)
{
    int *line_open = arg;

    *line_open = s[n - 1] != '\n';
    return cb_out_text(s, n);
}

static json_t *ids_json(const struct generation *gen)
{
    json_t *j = json_array();

    for (int i = 0; i < gen->n; i++)
        cb_json_add(&j, json_integer(gen->ids[i]));
    return j;
}

static json_t *memory_json(const struct opts *o, const struct engine *e)
{
    json_t *j = cb_json_engine_memory(e);

    if (cb_opt_set(o, ARG_BANK) || cb_opt_set(o, ARG_BANK_DIR))
        cb_json_set(&j, "bank_hit_tokens", json_integer(e->n_begun));
    return j;
}

static json_t *adapters_json(const struct engine *e)
{
    json_t *j = json_array();

    for (int i = 0; i < e->n_adapter; i++)
        cb_json_add(&j, json_pack("{s:o, s:o}", "file", cb_json_str(e->adapter[i].path), "scale",
                                  cb_json_real((double)e->adapter[i].scale)));
    return j;
}

static void session_settings(const struct cb_session_params *p, json_t **j)
{
    const struct {
        enum opt_id id;
        const char *text;
    } list[] = { { ARG_POLICY, p->policy },
                 { ARG_PREFILL, p->prefill },
                 { ARG_TYPE_K, p->type_k },
                 { ARG_TYPE_V, p->type_v } };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        cb_json_set(j, cb_opt_table[list[i].id].name, cb_json_str(list[i].text));
}

/* What somebody needs to get the same answer */
static json_t *settings_json(const struct opts *o, const struct engine *e, uint64_t seed)
{
    static const enum opt_id of_sampler[] = { ARG_TEMP,
                                              ARG_TOP_P,
                                              ARG_MIN_P,
                                              ARG_REPEAT_PENALTY,
                                              ARG_FREQUENCY_PENALTY,
                                              ARG_PRESENCE_PENALTY };
    const char *device = cb_opt_text(o, ARG_DEVICE);
    json_t *j = json_pack("{s:o, s:o, s:i, s:i, s:s, s:I, s:i}", "model", cb_json_str(e->path),
                          "device", cb_json_str(strcmp(device, "auto") ? device : e->info.device),
                          "n_ctx", e->n_ctx, "threads", e->info.n_threads, "isa", e->info.isa,
                          "seed", (json_int_t)seed, "top-k", cb_opt_int(o, ARG_TOP_K));

    if (e->info.n_threads_batch != e->info.n_threads)
        cb_json_set(&j, "threads-batch", json_integer(e->info.n_threads_batch));
    if (e->n_adapter)
        cb_json_set(&j, "lora", adapters_json(e));
    if (e->draft_model)
        cb_json_set(&j, "draft-model", cb_json_str(cb_opt_text(o, ARG_DRAFT_MODEL)));
    if (cb_opt_set(o, ARG_BANK)) /* which has the session's settings */
        cb_json_set(&j, "bank", cb_json_str(cb_opt_text(o, ARG_BANK)));
    else
        session_settings(&e->chosen, &j);
    for (size_t i = 0; i < sizeof of_sampler / sizeof *of_sampler; i++)
        cb_json_set(&j, cb_opt_table[of_sampler[i]].name,
                    cb_json_real(cb_opt_real(o, of_sampler[i])));
    return j;
}

static int print_json(const struct opts *o, const struct engine *e, const struct generation *gen)
{
    json_t *j = json_pack("{s:o, s:o, s:s, s:o, s:o, s:o}", "text",
                          cb_json_text(gen->text.s, gen->text.n), "tokens", ids_json(gen),
                          "finish_reason", gen->finish_reason, "timings", cb_json_timings(e, gen),
                          "memory", memory_json(o, e), "settings", settings_json(o, e, gen->seed));

    if (e->team)
        cb_json_set(&j, "ranks", cb_ranked_json(o, e));
    return cb_json_print(j);
}

static int complete(const struct opts *o, struct engine *e, const int32_t *ids, int n)
{
    const int json = cb_opt_flag(o, ARG_JSON);
    int line_open = 0;
    const struct generate g = {
        .e = e,
        .o = o,
        .max_tokens = cb_opt_int(o, ARG_PREDICT),
        .emit = json ? NULL : emit,
        .emit_arg = &line_open,
    };
    struct generation gen;
    int rc;

    cb_interrupt_catch();
    rc = cb_generate(&g, ids, n, &gen);
    if (!rc && json)
        rc = print_json(o, e, &gen);
    if (!json && line_open)
        putchar('\n');
    if (!rc) {
        cb_out_flush();
        if (gen.full)
            cb_log_note("context full: %d tokens (-c)", e->n_ctx);
        else if (cb_opt_flag(o, ARG_CHAT) && !json)
            cb_note_cut(o, &gen);
        cb_note_timings(e, &gen);
        if (!strcmp(gen.finish_reason, "interrupt"))
            rc = cb_interrupt_status(CB_ECANCEL);
    }
    cb_generation_free(&gen);
    return rc;
}

static int with_prompt(const struct opts *o, struct engine *e, int32_t *ids, int n)
{
    const int max = cb_opt_int(o, ARG_PREDICT);
    int left;

    TRY(cb_context_begin(o, e, cb_opt_int(o, ARG_CTX), ids, &n));
    if (!e->n_begun && !n)
        return cb_usage("prompt: none given, and bank %s is empty", cb_opt_text(o, ARG_BANK));
    TRY(cb_check_pieces(e, n));
    cb_note_long_context(e);
    TRY(cb_engine_sampling(o, e));
    left = n < e->n_ctx ? e->n_ctx - n : max > 0 ? max : 0;
    if (cb_opt_flag(o, ARG_DRY_RUN))
        return cb_ranked_print_plan(o, e, n, max < 0 || max > left ? left : max);
    return complete(o, e, ids, n);
}

static int run(const struct opts *o)
{
    const int has_prompt = cb_opt_set(o, ARG_PROMPT) || cb_opt_set(o, ARG_FILE);
    struct engine e;
    int32_t *ids = NULL;
    int n = 0, rc;

    if (!has_prompt && !cb_opt_set(o, ARG_BANK))
        return cb_usage("prompt: none given; use -p TEXT or -f FILE (- is standard input)");
    if (cb_opt_set(o, ARG_BANK) && cb_opt_flag(o, ARG_DRY_RUN))
        return cb_usage("--dry-run: a plan of an empty context; 'ctxbank bank show' tells the size "
                        "of a saved one");
    rc = cb_engine_open(o, &e);
    if (!rc && has_prompt)
        rc = cb_prompt_ids(o, &e, &ids, &n);
    if (!rc)
        rc = with_prompt(o, &e, ids, n);
    free(ids);
    cb_engine_close(&e);
    return rc;
}

const struct cmd cb_cmd_run = {
    .name = "run",
    .operands = "",
    .example = "-m model.gguf --chat -f report.txt -p \"What was decided?\"",
    .brief = "complete a prompt",
    .sets = SET_OWN_RUN | SET_PROMPT | SET_CHAT | SET_GENERATE | SET_SAMPLE | SET_REPETITIONS |
            SET_BANK_FILE | SET_BANK_DIR | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX |
            SET_POLICY | SET_PLAN | SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = run,
};
