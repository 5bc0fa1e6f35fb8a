/* SPDX-License-Identifier: MIT */
/* info.c - ctxbank info: the model, the memory that a context will need, and what is built in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cmd.h"
#include "device/device.h"
#include "model/model.h"
#include "par/cpus.h"
#include "policy/policy.h"

/* ---- tables ---- */

static int backends(int json)
{
    json_t *list = json_array();
    const struct backend *b;

    for (int i = 0; (b = cb_backend_at(i)); i++) {
        const char *why = "";
        const int ok = b->available(&why);
        if (!json)
            printf("%-8s %-13s %s%s%s\n", b->name, ok ? "available" : "not available", b->text,
                   ok ? "" : ": ", ok ? "" : why);
        else
            json_array_append_new(list,
                                  json_pack("{s:s, s:s, s:b, s:s}", "name", b->name, "text",
                                            b->text, "available", ok, "why_not", ok ? "" : why));
    }
    if (json)
        return cb_json_print(list);
    json_decref(list);
    return CB_OK;
}

static const char *opt_kind(const struct method_opt *m)
{
    static const char *const name[] = {
        [OPT_NUM] = "number",    [OPT_INT] = "integer", [OPT_FLAG] = "0 or 1",
        [OPT_CHOICE] = "choice", [OPT_LIST] = "list",   [OPT_TEXT] = "text",
    };
    return name[m->kind];
}

static int numeric(const struct method_opt *m)
{
    return m->kind == OPT_NUM || m->kind == OPT_INT;
}

/* The choice that is taken when none is given, as a length from its start */
static const char *default_choice(const struct method_opt *m, int *len)
{
    const char *at = m->choices;

    for (int i = (int)m->def; i > 0; i--)
        at += strcspn(at, " ") + 1;
    *len = (int)strcspn(at, " ");
    return at;
}

static void print_opt(const struct method_opt *m)
{
    const char *first;
    int len;

    printf("    %-12s %s", m->name, m->text);
    if (m->unit && *m->unit)
        printf(", %s", m->unit);
    if (numeric(m))
        printf(" (default %g, %g to %g)\n", m->def, m->min, m->max);
    else if (m->kind == OPT_FLAG)
        printf(" (0 or 1, default %g)\n", m->def);
    else if (m->kind == OPT_CHOICE && (first = default_choice(m, &len)))
        printf(" (one of: %s; default %.*s)\n", m->choices, len, first);
    else if (m->choices)
        printf(" (default %s)\n", m->choices);
    else
        putchar('\n');
}

static json_t *opt_json(const struct method_opt *m)
{
    json_t *j = json_pack("{s:s, s:s, s:s}", "name", m->name, "kind", opt_kind(m), "text", m->text);
    int len;

    if (m->unit)
        json_object_set_new(j, "unit", json_string(m->unit));
    if (m->choices)
        json_object_set_new(j, m->kind == OPT_CHOICE ? "choices" : "default",
                            json_string(m->choices));
    if (m->kind == OPT_CHOICE) {
        const char *first = default_choice(m, &len);
        json_object_set_new(j, "default", json_stringn(first, (size_t)len));
    }
    if (numeric(m) || m->kind == OPT_FLAG)
        json_object_set_new(j, "default", json_real(m->def));
    if (numeric(m)) {
        json_object_set_new(j, "min", cb_json_real(m->min));
        json_object_set_new(j, "max", cb_json_real(m->max));
    }
    return j;
}

static int methods(const struct method *(*at)(int i), int json)
{
    json_t *list = json_array();
    const struct method *m;

    for (int i = 0; (m = at(i)); i++) {
        json_t *opts = json_array();
        if (!json)
            printf("%s%-12s %s%s%s%s\n", i ? "\n" : "", m->name, m->brief, m->cite ? " [" : "",
                   m->cite ? m->cite : "", m->cite ? "]" : "");
        for (const struct method_opt *p = m->opts; p && p->name; p++) {
            if (json)
                json_array_append_new(opts, opt_json(p));
            else
                print_opt(p);
        }
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:o}", "name", m->name, "brief", m->brief,
                                        "cite", m->cite ? m->cite : "", "options", opts));
    }
    if (json)
        return cb_json_print(list);
    json_decref(list);
    return CB_OK;
}

static int cpu(int json)
{
    struct device *d;
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    TRY(cb_device_open("cpu", 1, &d));
    if (!json)
        printf("isa              %s\nonline           %ld logical processors\n"
               "default threads  %d\n",
               d->isa, online, cb_cpus_default());
    else
        cb_json_print(json_pack("{s:s, s:i, s:i}", "isa", d->isa, "online", (int)online,
                                "default_threads", cb_cpus_default()));
    cb_device_close(d);
    return CB_OK;
}

/* ---- the model ---- */

struct mix {
    int n[DT_COUNT];
    uint64_t bytes[DT_COUNT];
};

static void count_types(const struct gguf *g, struct mix *mix)
{
    *mix = (struct mix){ .n = { 0 } };
    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        mix->n[t->type]++;
        mix->bytes[t->type] += t->size;
    }
}

static int model_json(const struct opts *o, const struct engine *e, const struct mix *mix,
                      const struct cb_memory *m)
{
    const struct cb_model_info *i = &e->info;
    json_t *tensors = json_object(), *j, *mem = cb_json_memory(m);

    for (int t = 0; t < DT_COUNT; t++)
        if (mix->n[t])
            json_object_set_new(
                tensors, cb_dtype[t].name,
                json_pack("{s:i, s:I}", "tensors", mix->n[t], "bytes", (json_int_t)mix->bytes[t]));
    json_object_del(mem, "rss_peak_bytes");
    j = json_pack(
        "{s:o, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:b, s:o, s:i, s:s, s:s, s:s, s:o}",
        "path", cb_json_text(e->path, strlen(e->path)), "arch", i->arch, "name", i->name, "quant",
        i->quant, "n_params", (json_int_t)i->n_params, "file_bytes", (json_int_t)i->file_bytes,
        "n_layer", i->n_layer, "n_embd", i->n_embd, "n_head", i->n_head, "n_kv", i->n_kv,
        "head_dim", i->head_dim, "n_ff", i->n_ff, "n_vocab", i->n_vocab, "n_ctx_train",
        i->n_ctx_train, "bos", i->bos, "eos", i->eos, "add_bos", i->add_bos, "tensors", tensors,
        "n_ctx", e->n_ctx, "policy", cb_opt_text(o, ARG_POLICY), "type_k",
        cb_opt_text(o, ARG_TYPE_K), "type_v", cb_opt_text(o, ARG_TYPE_V), "memory", mem);
    return cb_json_print(j);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

static void model_text(const struct opts *o, const struct engine *e, const struct mix *mix,
                       const struct cb_memory *m)
{
    const struct cb_model_info *i = &e->info;

    printf("model            %s\narchitecture     %s\nquantisation     %s\n", i->name, i->arch,
           i->quant);
    printf("parameters       %lld (%.1f M)\nfile             %llu bytes (%.1f MiB)\n",
           (long long)i->n_params, (double)i->n_params / 1e6, (unsigned long long)i->file_bytes,
           mib(i->file_bytes));
    printf(
        "layers           %d\nembedding        %d\nheads            %d, KV heads %d, head_dim %d\n"
        "feed-forward     %d\nvocabulary       %d\ntrained context  %d tokens\n",
        i->n_layer, i->n_embd, i->n_head, i->n_kv, i->head_dim, i->n_ff, i->n_vocab,
        i->n_ctx_train);
    printf("BOS, EOS         %d, %d%s\n", i->bos, i->eos, i->add_bos ? ", BOS in front" : "");
    for (int t = 0; t < DT_COUNT; t++)
        if (mix->n[t])
            printf("tensors %-8s %d, %.1f MiB\n", cb_dtype[t].name, mix->n[t], mib(mix->bytes[t]));
    printf("\nmemory with a full context of %d tokens, policy %s, keys %s, values %s:\n", e->n_ctx,
           cb_opt_text(o, ARG_POLICY), cb_opt_text(o, ARG_TYPE_K), cb_opt_text(o, ARG_TYPE_V));
    printf(
        "weights          %.1f MiB\nbank             %s%.1f MiB (peak %.1f MiB; full cache at f16 "
        "%.1f MiB)\nread a token     %.1f MiB\nwork space       %.1f MiB\n",
        mib(m->weights_bytes), m->at_most ? "at most " : "", mib(m->kv_bytes),
        mib(m->kv_peak_bytes), mib(m->kv_full_bytes), mib(m->kv_read_bytes_per_token),
        mib(m->scratch_bytes));
}

static int model(const struct opts *o)
{
    struct engine e;
    struct cb_memory m;
    struct mix mix;
    int rc = cb_engine_open(o, &e);

    if (!rc)
        rc = cb_engine_session(o, &e, cb_opt_text(o, ARG_POLICY), cb_opt_int(o, ARG_CTX));
    if (!rc)
        rc = cb_session_plan(e.session, e.n_ctx, 0, &m);
    if (!rc) {
        count_types(e.model->gguf, &mix);
        if (cb_opt_flag(o, ARG_JSON))
            rc = model_json(o, &e, &mix, &m);
        else
            model_text(o, &e, &mix, &m);
    }
    cb_engine_close(&e);
    return rc;
}

static int run(const struct opts *o)
{
    const int json = cb_opt_flag(o, ARG_JSON);

    if (cb_opt_flag(o, ARG_BACKENDS))
        return backends(json);
    if (cb_opt_flag(o, ARG_POLICY_LIST))
        return methods(cb_method_at, json);
    if (cb_opt_flag(o, ARG_PREFILL_LIST))
        return methods(cb_prompt_method_at, json);
    if (cb_opt_flag(o, ARG_CPU))
        return cpu(json);
    return model(o);
}

const struct cmd cb_cmd_info = {
    .name = "info",
    .operands = "",
    .brief = "show a model, the memory it needs, and what is built in",
    .sets = SET_OWN_INFO | SET_MODEL | SET_ENGINE | SET_CTX | SET_POLICY | SET_JSON | SET_GENERAL,
    .run = run,
};
