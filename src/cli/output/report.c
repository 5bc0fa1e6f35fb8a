/* SPDX-License-Identifier: MIT */
/* report.c - timings and memory, as JSON and as text. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/free_memory.h"
#include "cli/cmd.h"
#include "log.h"

static double per_s(int n, double s)
{
    return n > 0 && s > 0 ? n / s : 0;
}

json_t *cb_json_timings(const struct engine *e, const struct generation *g)
{
    return json_pack(
        "{s:f, s:i, s:f, s:f, s:i, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "load_s",
        e->load_s, "prompt_tokens", g->n_prompt, "prompt_s", g->prompt_s, "prompt_tps",
        per_s(g->n_prompt, g->prompt_s), "predicted_tokens", g->n, "decoded_tokens", g->n_step,
        "predicted_s", g->predicted_s, "predicted_tps", per_s(g->n_step, g->predicted_s),
        "drafted_tokens", (json_int_t)g->drafts.drafted, "accepted_tokens",
        (json_int_t)g->drafts.accepted, "model_drafted_tokens", (json_int_t)g->drafts.model_drafted,
        "model_accepted_tokens", (json_int_t)g->drafts.model_accepted, "mtp_drafted_tokens",
        (json_int_t)g->drafts.mtp_drafted, "mtp_accepted_tokens",
        (json_int_t)g->drafts.mtp_accepted);
}

uint64_t cb_rss_peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (uint64_t)u.ru_maxrss * 1024;
}

/* What is on a device with memory of its own, and what crossed over. */
static json_t *json_device(const struct cb_memory *m)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, "
        "s:o}",
        "limit_bytes", (json_int_t)m->device_limit_bytes, "weights_bytes",
        (json_int_t)m->device_weights_bytes, "work_bytes", (json_int_t)m->device_work_bytes,
        "kv_bytes", (json_int_t)m->device_kv_bytes, "peak_bytes", (json_int_t)m->device_peak_bytes,
        "in_bytes", (json_int_t)m->device_in_bytes, "out_bytes", (json_int_t)m->device_out_bytes,
        "weights_in_bytes", (json_int_t)m->device_weights_in_bytes, "device_rows",
        (json_int_t)m->device_rows, "host_rows", (json_int_t)m->host_rows, "device_sketches",
        (json_int_t)m->device_sketches, "host_sketches", (json_int_t)m->host_sketches,
        "kv_in_bytes_per_token", (json_int_t)m->device_kv_in_bytes_per_token,
        "kv_out_bytes_per_token", (json_int_t)m->device_kv_out_bytes_per_token,
        "device_rows_per_token", (json_int_t)m->device_rows_per_token, "host_rows_per_token",
        (json_int_t)m->host_rows_per_token, "gathered_rows_per_token",
        (json_int_t)m->device_gathered_rows_per_token, "gathers_per_token",
        (json_int_t)m->device_gathers_per_token, "gather_s_per_token",
        cb_json_real(m->device_gather_s_per_token));
}

json_t *cb_json_memory(const struct cb_memory *m)
{
    json_t *j = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i}", "weights_bytes",
        (json_int_t)m->weights_bytes, "preview_bytes", (json_int_t)m->head_prune_bytes, "kv_bytes",
        (json_int_t)m->kv_bytes, "kv_full_bytes", (json_int_t)m->kv_full_bytes, "kv_peak_bytes",
        (json_int_t)m->kv_peak_bytes, "kv_read_bytes_per_token",
        (json_int_t)m->kv_read_bytes_per_token, "scratch_bytes", (json_int_t)m->scratch_bytes,
        "kv_beside_bytes", (json_int_t)m->kv_beside_bytes, "rss_peak_bytes",
        (json_int_t)cb_rss_peak_bytes(), "kept_min", m->kept_min, "kept_max", m->kept_max);
    if (m->state_bytes) {
        cb_json_set(&j, "state_bytes", json_integer((json_int_t)m->state_bytes));
        cb_json_set(&j, "checkpoint_bytes", json_integer((json_int_t)m->checkpoint_bytes));
    }
    if (m->prompt_density > 0)
        cb_json_set(&j, "prompt_density", json_real(m->prompt_density));
    if (m->device_limit_bytes)
        cb_json_set(&j, "device", json_device(m));
    return j;
}

/* Memory of the draft model, as now or planned */
static json_t *json_draft(const struct cb_memory *m)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "weights_bytes", (json_int_t)m->weights_bytes,
                     "kv_bytes", (json_int_t)m->kv_bytes, "kv_peak_bytes",
                     (json_int_t)m->kv_peak_bytes, "scratch_bytes", (json_int_t)m->scratch_bytes);
}

json_t *cb_json_engine_memory(const struct engine *e)
{
    struct cb_memory m;
    json_t *j;

    cb_session_memory(e->session, &m);
    j = cb_json_memory(&m);
    if (e->draft) {
        cb_session_memory(e->draft, &m);
        cb_json_set(&j, "draft_model", json_draft(&m));
    }
    return j;
}

int cb_json_print(json_t *j)
{
    int rc = CB_OK;

    if (!j)
        return cb_json_fail("result");
    if (json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) || putchar('\n') == EOF)
        rc = CB_EIO;
    json_decref(j);
    return cb_out_flush() ? CB_EIO : rc;
}

/* What a reader would miss between the bank's bytes and those of its keys and values, or "" */
static const char *beside_text(const struct cb_memory *m, char text[80])
{
    *text = '\0';
    if (cb_mib(m->kv_beside_bytes) >= 0.05)
        snprintf(text, 80, "%.1f MiB of it steps, sketches and positions; ",
                 cb_mib(m->kv_beside_bytes));
    return text;
}

uint64_t cb_memory_total(const struct cb_memory *m)
{
    return m->weights_bytes + m->kv_peak_bytes + m->scratch_bytes + m->state_bytes +
           m->checkpoint_bytes;
}

/* Measured: the program without a model takes 10 MiB, and a token's spelling 75 bytes. */
void cb_print_uncounted(const struct cb_model_info *info)
{
    printf("not counted      code and vocabulary (about %.0f MiB)",
           10 + 75 * cb_mib((uint64_t)info->n_vocab));
    if (info->open_bytes)
        printf(", and %.0f MiB of the model's file while it is opened", cb_mib(info->open_bytes));
    putchar('\n');
}

void cb_print_memory(const struct cb_model_info *info, const struct cb_memory *m,
                     const struct cb_memory *draft)
{
    const uint64_t there = cb_free_bytes();
    char beside[80];

    printf("weights          %.1f MiB", cb_mib(m->weights_bytes));
    if (m->head_prune_bytes)
        printf(" (%.1f MiB of it the preview of the output matrix)", cb_mib(m->head_prune_bytes));
    printf("\n"
           "bank             %s%.1f MiB (%speak %.1f MiB; full cache at f16 %.1f MiB)\n"
           "read a token     %.1f MiB\n"
           "work space       %.1f MiB\n",
           m->at_most ? "at most " : "", cb_mib(m->kv_bytes), beside_text(m, beside),
           cb_mib(m->kv_peak_bytes), cb_mib(m->kv_full_bytes), cb_mib(m->kv_read_bytes_per_token),
           cb_mib(m->scratch_bytes));
    if (m->state_bytes)
        printf("state            %.1f MiB of layers without keys; %.1f MiB of checkpoints\n",
               cb_mib(m->state_bytes), cb_mib(m->checkpoint_bytes));
    if (draft)
        printf("draft model      %.1f MiB (weights %.1f MiB, bank %.1f MiB, work space %.1f MiB)\n",
               cb_mib(cb_memory_total(draft)), cb_mib(draft->weights_bytes),
               cb_mib(draft->kv_peak_bytes), cb_mib(draft->scratch_bytes));
    printf("total            %s%.1f MiB", m->at_most ? "at most " : "",
           cb_mib(cb_memory_total(m) + (draft ? cb_memory_total(draft) : 0)));
    if (there)
        printf(" (%.1f MiB are free here)", cb_mib(there));
    putchar('\n');
    cb_print_uncounted(info);
    printf("tokens a layer   %d to %d\n", m->kept_min, m->kept_max);
    if (m->at_most)
        printf("What the policy keeps depends on the text: the figures of the bank are a bound.\n");
    if (m->device_limit_bytes)
        printf("working set      %.1f MiB of %.1f MiB (weights %.1f MiB, work space %.1f MiB, "
               "mirrored "
               "bank %.1f MiB)\n",
               cb_mib(m->device_weights_bytes + m->device_work_bytes + m->device_kv_bytes),
               cb_mib(m->device_limit_bytes), cb_mib(m->device_weights_bytes),
               cb_mib(m->device_work_bytes), cb_mib(m->device_kv_bytes));
    if (m->device_kv_in_bytes_per_token)
        printf("copied a token   %.1f MiB\n", cb_mib(m->device_kv_in_bytes_per_token));
}

/* The session's plan counts the work space of drafts, if there will be any. */
static int expect_drafts(const struct opts *o, struct engine *e)
{
    const int most = cb_engine_draft(o);
    cb_speculation *x;

    if ((!most && !cb_session_draft_mtp(e->session)) || cb_speculation_why_not(e->session))
        return CB_OK;
    TRY(cb_speculation_new(e->session, most, &x));
    cb_speculation_free(x);
    return CB_OK;
}

/* The draft model's session, if there is one, for the same text as far as it holds it. 1: there is
 */
static int plan_draft(const struct opts *o, struct engine *e, int n_prompt, int n_gen,
                      struct cb_memory *m)
{
    int n_ctx;

    TRY(cb_engine_draft_session(o, e, e->n_ctx));
    if (!e->draft)
        return 0;
    n_ctx = cb_session_n_ctx(e->draft);
    if (n_prompt > n_ctx)
        n_prompt = n_ctx;
    if (n_gen > n_ctx - n_prompt)
        n_gen = n_ctx - n_prompt;
    TRY(cb_session_plan(e->draft, n_prompt, n_gen, m));
    return 1;
}

int cb_print_plan(const struct opts *o, struct engine *e, int n_prompt, int n_gen)
{
    const int piece = n_prompt < e->n_ctx ? n_prompt : e->n_ctx; /* of a prompt that is longer */
    struct cb_memory m, draft;
    int drafts;

    TRY(expect_drafts(o, e));
    TRY(cb_session_plan(e->session, piece, n_gen, &m));
    drafts = plan_draft(o, e, n_prompt, n_gen, &draft);
    TRY(drafts);
    if (cb_opt_flag(o, ARG_JSON)) {
        json_t *j = cb_json_memory(&m);
        json_object_del(j, "rss_peak_bytes"); /* nothing has run yet */
        cb_json_set(&j, "kv_at_most", json_boolean(m.at_most));
        if (drafts)
            cb_json_set(&j, "draft_model", json_draft(&draft));
        return cb_json_print(json_pack("{s:i, s:i, s:i, s:o}", "n_ctx", e->n_ctx, "prompt_tokens",
                                       n_prompt, "max_tokens", n_gen, "memory", j));
    }
    printf("prompt %d tokens, answer up to %d, context %d\n", n_prompt, n_gen, e->n_ctx);
    cb_print_memory(&e->info, &m, drafts ? &draft : NULL);
    return cb_out_flush();
}

/* " (99.0/s)", or nothing where there is no rate */
static const char *rate(int n, double s, char text[32])
{
    *text = '\0';
    if (per_s(n, s) > 0)
        snprintf(text, 32, " (%.1f/s)", per_s(n, s));
    return text;
}

/* " (by the draft model 9 and 5)", or by the model's own head, or nothing without them */
static const char *by_model(const struct cb_speculation_counts *c, char text[80])
{
    *text = '\0';
    if (c->model_drafted)
        snprintf(text, 80, " (by the draft model %" PRId64 " and %" PRId64 ")", c->model_drafted,
                 c->model_accepted);
    else if (c->mtp_drafted)
        snprintf(text, 80, " (by the model's own head %" PRId64 " and %" PRId64 ")", c->mtp_drafted,
                 c->mtp_accepted);
    return text;
}

void cb_note_timings(const struct engine *e, const struct generation *g)
{
    char prompt[32], answer[32], decoded[48] = "", beside[80], model[80];
    struct cb_memory m;

    if (g->n_step != g->n) /* the prompt gives the first token */
        snprintf(decoded, sizeof decoded, ", %d of them decoded", g->n_step);

    cb_session_memory(e->session, &m);
    cb_log_note("prompt %d tokens in %.2f s%s, answer %d tokens%s in %.2f s%s, bank %.1f MiB "
                "(%skeys and values %.0f %% of the full cache at f16)",
                g->n_prompt, g->prompt_s, rate(g->n_prompt, g->prompt_s, prompt), g->n, decoded,
                g->predicted_s, rate(g->n_step, g->predicted_s, answer), cb_mib(m.kv_bytes),
                beside_text(&m, beside),
                100 * (double)(m.kv_bytes - m.kv_beside_bytes) /
                    (double)(m.kv_full_bytes ? m.kv_full_bytes : 1));
    if (g->drafts.drafted)
        cb_log_note("drafts: %" PRId64 " tokens, %" PRId64 " of them accepted%s", g->drafts.drafted,
                    g->drafts.accepted, by_model(&g->drafts, model));
    cb_log_detail("load %.2f s, weights %.1f MiB, scratch %.1f MiB, peak of the bank %.1f MiB, "
                  "peak of the process %.1f MiB, slots a layer %d to %d",
                  e->load_s, (double)m.weights_bytes / 1048576, (double)m.scratch_bytes / 1048576,
                  (double)m.kv_peak_bytes / 1048576, (double)cb_rss_peak_bytes() / 1048576,
                  m.kept_min, m.kept_max);
    if (m.prompt_density > 0 && m.prompt_density < 1)
        cb_log_note("prompt density %.1f %% of the pairs of query and token",
                    100 * m.prompt_density);
    if (m.device_limit_bytes)
        cb_log_detail("working set: %.1f MiB at most of %.1f MiB, %.1f MiB to the device, %.1f MiB "
                      "back, %llu rows read there and %llu on the CPU",
                      (double)m.device_peak_bytes / 1048576, (double)m.device_limit_bytes / 1048576,
                      (double)m.device_in_bytes / 1048576, (double)m.device_out_bytes / 1048576,
                      (unsigned long long)m.device_rows, (unsigned long long)m.host_rows);
}
