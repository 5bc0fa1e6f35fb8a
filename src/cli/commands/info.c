/* SPDX-License-Identifier: MIT */
/* info.c - ctxbank info: the model, the memory that a context will need, and what is built in. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/number.h"
#include "cli/cmd.h"
#include "cli/options/matrix.h"
#include "device/device.h"
#include "gguf/gguf.h"
#include "info_backends.h"
#include "info_cpu.h"
#include "info_plans.h"
#include "policy/policy.h"

/* ---- tables ---- */

static int families(int json)
{
    json_t *list = json_array();
    struct cb_family_info f;

    for (int i = 0; !cb_family_at(i, &f); i++) {
        if (!json)
            printf("%-16s %s\n", f.name, f.text);
        cb_json_add(&list, json_pack("{s:s, s:s}", "name", f.name, "text", f.text));
    }
    if (json)
        return cb_json_print(list);
    json_decref(list);
    return CB_OK;
}

static const char *option_type(const struct cb_option_info *p)
{
    static const char *const name[] = {
        [CB_OPTION_NUMBER] = "number", [CB_OPTION_INTEGER] = "integer", [CB_OPTION_FLAG] = "0 or 1",
        [CB_OPTION_CHOICE] = "choice", [CB_OPTION_LIST] = "list",       [CB_OPTION_TEXT] = "text",
    };
    return name[p->type];
}

static int numeric(const struct cb_option_info *p)
{
    return p->type == CB_OPTION_NUMBER || p->type == CB_OPTION_INTEGER;
}

/* The default choice; *len: its length */
static const char *default_choice(const struct cb_option_info *p, int *len)
{
    const char *at = p->choices;

    for (int i = (int)p->def; i > 0; i--)
        at += strcspn(at, " ") + 1;
    *len = (int)strcspn(at, " ");
    return at;
}

static void print_option(const struct cb_option_info *p)
{
    char def[32], min[32], max[32], head[48];
    const char *first;
    int len;

    snprintf(head, sizeof head, "%s%s%s", p->name, *p->unit ? "=" : "", p->unit);
    printf("    %-14s %s", head, p->text);
    if (numeric(p))
        printf(" (default %s, %s to %s%s%s)\n", cb_number_text(p->def, def),
               cb_number_text(p->min, min), cb_number_text(p->max, max), *p->choices ? ", or " : "",
               p->choices);
    else if (p->type == CB_OPTION_FLAG)
        printf(" (0 or 1, default %g)\n", p->def);
    else if (p->type == CB_OPTION_CHOICE && (first = default_choice(p, &len)))
        printf(" (one of: %s; default %.*s)\n", p->choices, len, first);
    else if (*p->def_text)
        printf(" (default %s)\n", p->def_text);
    else
        putchar('\n');
}

static json_t *number_json(const struct cb_option_info *p, double v)
{
    return p->type == CB_OPTION_NUMBER ? cb_json_real(v) : json_integer((json_int_t)v);
}

static json_t *option_json(const struct cb_option_info *p)
{
    json_t *j =
        json_pack("{s:s, s:s, s:s}", "name", p->name, "kind", option_type(p), "text", p->text);
    int len;

    if (*p->unit)
        cb_json_set(&j, "unit", json_string(p->unit));
    if (*p->def_text)
        cb_json_set(&j, "default", json_string(p->def_text));
    if (p->type == CB_OPTION_CHOICE) {
        const char *first = default_choice(p, &len);
        cb_json_set(&j, "choices", json_string(p->choices));
        cb_json_set(&j, "default", json_stringn(first, (size_t)len));
    }
    if (numeric(p) || p->type == CB_OPTION_FLAG)
        cb_json_set(&j, "default", number_json(p, p->def));
    if (numeric(p)) {
        cb_json_set(&j, "min", number_json(p, p->min));
        cb_json_set(&j, "max", number_json(p, p->max));
    }
    if (numeric(p) && *p->choices)
        cb_json_set(&j, "choices", json_string(p->choices));
    return j;
}

/* A list of methods and their options. */
struct methods {
    int (*at)(int i, struct cb_method_info *out);
    int (*option_at)(int i, int j, struct cb_option_info *out);
};
static const struct methods policies = { cb_policy_at, cb_policy_option_at };
static const struct methods prefills = { cb_prefill_at, cb_prefill_option_at };

/* The forms of prefill that policy i does not go with */
static json_t *refused(int i)
{
    json_t *list = json_array();
    struct matrix_row x;

    for (int at = i, j = 0; cb_matrix_next(&at, &j, &x) && at == i;)
        for (int f = 0; cb_prompt_method_at(f); f++)
            if (x.why[f])
                cb_json_add(&list, json_pack("{s:s, s:s, s:s}", "policy", x.policy, "prefill",
                                             cb_prompt_method_at(f)->name, "why", x.why[f]));
    return list;
}

static void print_matrix(void)
{
    struct matrix_row x;
    const struct method *m;

    puts("\nEach policy goes with every type of keys and values, and with these forms of prefill");
    printf("    %-34s", "");
    for (int f = 0; (m = cb_prompt_method_at(f)); f++)
        printf(" %-10s", m->name);
    putchar('\n');
    for (int i = 0, j = 0; cb_matrix_next(&i, &j, &x);) {
        const char *why = NULL;
        printf("    %-34s", x.policy);
        for (int f = 0; cb_prompt_method_at(f); f++) {
            printf(" %-10s", x.why[f] ? "no" : "yes");
            why = x.why[f] ? x.why[f] : why;
        }
        puts(why ? why : "");
    }
}

static int print_methods(const struct methods *of, int json)
{
    json_t *list = json_array();
    struct cb_method_info m;
    struct cb_option_info p;

    for (int i = 0; !of->at(i, &m); i++) {
        json_t *opts = json_array();
        if (!json)
            printf("%s%-12s %s%s%s%s\n", i ? "\n" : "", m.name, m.text, *m.paper ? " [" : "",
                   m.paper, *m.paper ? "]" : "");
        for (int j = 0; !of->option_at(i, j, &p); j++) {
            if (json)
                cb_json_add(&opts, option_json(&p));
            else
                print_option(&p);
        }
        cb_json_add(&list, json_pack("{s:s, s:s, s:s, s:o, s:o}", "name", m.name, "brief", m.text,
                                     "cite", m.paper, "options", opts, "refused",
                                     of == &policies ? refused(i) : json_array()));
    }
    if (json)
        return cb_json_print(list);
    json_decref(list);
    return CB_OK;
}

static int print_policies(int json)
{
    const struct paper_setting *x;

    TRY(print_methods(&policies, json));
    if (!json)
        puts("\nSettings of papers (NAME:as=SETTING, or a setting alone for its paper's method)");
    for (int i = 0; !json && (x = cb_paper_setting_at(i)); i++)
        printf("    %-12s %s:%s\n", x->name, x->method, x->options);
    if (!json)
        print_matrix();
    return CB_OK;
}

/* ---- the model ---- */

struct mix {
    int n[DT_COUNT + 1];
    uint64_t bytes[DT_COUNT + 1];
};

static int count_types(const char *path, struct mix *mix)
{
    struct gguf *g;

    TRY(cb_gguf_open(path, &g));
    *mix = (struct mix){ .n = { 0 } };
    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        mix->n[t->type]++;
        mix->bytes[t->type] += t->size;
    }
    cb_gguf_close(g);
    return CB_OK;
}

static int model_json(const struct engine *e, const struct mix *mix, const struct cb_memory *m)
{
    const struct cb_model_info *i = &e->info;
    json_t *tensors = json_object(), *j, *mem = cb_json_memory(m);

    for (int t = 0; t <= DT_I32; t++)
        if (mix->n[t])
            cb_json_set(
                &tensors, cb_dtype[t].name,
                json_pack("{s:i, s:I}", "tensors", mix->n[t], "bytes", (json_int_t)mix->bytes[t]));
    json_object_del(mem, "rss_peak_bytes");
    j = json_pack(
        "{s:o, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:b, s:o, s:i, s:i, s:i, s:I, s:I, s:i, s:o, s:s, s:s, s:o}",
        "path", cb_json_str(e->path), "arch", i->arch, "name", i->name, "quant", i->quant,
        "n_params", (json_int_t)i->n_params, "file_bytes", (json_int_t)i->file_bytes, "n_layer",
        i->n_layer, "n_embd", i->n_embd, "n_head", i->n_head, "n_kv", i->n_kv, "head_dim",
        i->head_dim, "n_ff", i->n_ff, "n_vocab", i->n_vocab, "n_ctx_train", i->n_ctx_train, "bos",
        i->bos, "eos", i->eos, "add_bos", i->add_bos, "tensors", tensors, "n_draft_layer",
        i->n_draft_layer, "n_target_embd", i->n_target_embd, "n_unused_layer", i->n_unused_layer,
        "unused_layer_bytes", (json_int_t)i->unused_layer_bytes, "unused_senses_bytes",
        (json_int_t)i->unused_senses_bytes, "n_ctx", e->n_ctx, "policy",
        cb_json_str(e->chosen.policy), "type_k", e->chosen.type_k, "type_v", e->chosen.type_v,
        "memory", mem);
    return cb_json_print(j);
}

static void model_text(const struct engine *e, const struct mix *mix, const struct cb_memory *m)
{
    const struct cb_model_info *i = &e->info;

    printf("model            %s\narchitecture     %s\nquantisation     %s\n", i->name, i->arch,
           i->quant);
    printf("parameters       %lld (%.1f M)\nfile             %llu bytes (%.1f MiB)\n",
           (long long)i->n_params, (double)i->n_params / 1e6, (unsigned long long)i->file_bytes,
           cb_mib(i->file_bytes));
    printf(
        "layers           %d\nembedding        %d\nheads            %d, KV heads %d, head_dim %d\n"
        "feed-forward     %d\nvocabulary       %d\ntrained context  %d tokens\n",
        i->n_layer, i->n_embd, i->n_head, i->n_kv, i->head_dim, i->n_ff, i->n_vocab,
        i->n_ctx_train);
    printf("BOS, EOS         %d, %d%s\n", i->bos, i->eos, i->add_bos ? ", BOS in front" : "");
    if (i->n_target_embd)
        printf(
            "drafts           for a model with an embedding of %d (--draft-model), whose keys it "
            "reads\n",
            i->n_target_embd);
    if (i->n_draft_layer)
        printf("drafts           by a head for later tokens (--draft-mtp)\n");
    if (i->n_unused_layer)
        printf("left unused      %d layers that guess tokens after the next one, %.1f MiB\n",
               i->n_unused_layer, cb_mib(i->unused_layer_bytes));
    if (i->unused_senses_bytes)
        printf("left unused      what reads images or sound, %.1f MiB\n",
               cb_mib(i->unused_senses_bytes));
    for (int t = 0; t <= DT_I32; t++)
        if (mix->n[t])
            printf("tensors %-8s %d, %.1f MiB\n", cb_dtype[t].name, mix->n[t],
                   cb_mib(mix->bytes[t]));
    printf("\nmemory with a full context of %d tokens, policy %s, keys %s, values %s:\n", e->n_ctx,
           e->chosen.policy, e->chosen.type_k, e->chosen.type_v);
    cb_print_memory(i, m, NULL);
}

static int model(const struct opts *o)
{
    struct engine e;
    struct cb_memory m;
    struct mix mix;
    int rc = cb_engine_open(o, &e);

    if (!rc)
        rc = cb_engine_session(o, &e, cb_engine_policy(o, &e), cb_opt_int(o, ARG_CTX));
    if (!rc)
        cb_note_long_context(&e);
    if (!rc)
        rc = cb_session_plan(e.session, e.n_ctx, 0, &m);
    if (!rc)
        rc = count_types(e.path, &mix);
    if (!rc) {
        if (cb_opt_flag(o, ARG_JSON))
            rc = model_json(&e, &mix, &m);
        else
            model_text(&e, &mix, &m);
    }
    cb_engine_close(&e);
    return rc;
}

static int run(const struct opts *o)
{
    const int json = cb_opt_flag(o, ARG_JSON);

    if (cb_opt_flag(o, ARG_MEASURE) && !cb_opt_flag(o, ARG_CPU) && !cb_opt_flag(o, ARG_BACKENDS))
        return cb_usage("--measure: goes with --cpu or --backends");
    if (cb_opt_flag(o, ARG_BACKENDS))
        return cb_info_backends(o);
    if (cb_opt_flag(o, ARG_FAMILIES))
        return families(json);
    if (cb_opt_flag(o, ARG_POLICY_LIST))
        return print_policies(json);
    if (cb_opt_flag(o, ARG_PREFILL_LIST))
        return print_methods(&prefills, json);
    if (cb_opt_flag(o, ARG_CPU))
        return cb_info_cpu(o);
    if (cb_opt_flag(o, ARG_PLANS) || cb_opt_set(o, ARG_PLANS_FIT))
        return cb_info_plans(o);
    return model(o);
}

const struct cmd cb_cmd_info = {
    .name = "info",
    .operands = "",
    .example = "-m model.gguf -c 32768 --policy snapkv:budget=2048",
    .brief = "show a model, the memory it needs, and what is built in",
    .sets = SET_OWN_INFO | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX | SET_POLICY | SET_JSON |
            SET_GENERAL,
    .run = run,
    .no_split = "it computes nothing",
};
