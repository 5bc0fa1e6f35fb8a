/* SPDX-License-Identifier: MIT */
/* catalogue.c - the public lists of built-in devices, model families, stored types, methods and
 * chat forms. */
#include <string.h>

#include "base/err.h"
#include "config.h"
#include "device/kivi.h"
#include "device/sketch.h"
#include "model/model.h"
#include "par/cpus.h"
#include "policy/policy.h"
#include "text/template.h"

const char *cb_version(void)
{
    return PACKAGE_VERSION;
}

int cb_version_number(void)
{
    return CTXBANK_VERSION_NUMBER;
}

int cb_default_threads(void)
{
    return cb_cpus_default();
}

static int past(const char *what, int i)
{
    return cb_fail(CB_EARG, "%s %d: there is none", what, i);
}

static const char *text(const char *s)
{
    return s ? s : "";
}

int cb_device_at(int i, struct cb_device_info *out)
{
    const struct backend *b = cb_backend_at(i);
    const char *why = "";

    *out = (struct cb_device_info){ .name = "", .text = "", .why_not = "" };
    if (!b)
        return past("device", i);
    out->name = b->name;
    out->text = b->text;
    out->available = b->available(&why);
    out->why_not = out->available ? "" : why;
    return CB_OK;
}

int cb_device_unit_at(int i, int j, char *text, size_t size, uint64_t *bytes)
{
    const struct backend *b = cb_backend_at(i);

    *bytes = 0;
    if (size)
        *text = 0;
    if (!b)
        return past("device", i);
    return b->unit_at && b->unit_at(j, text, size, bytes) ? CB_OK : past(b->name, j);
}

int cb_family_at(int i, struct cb_family_info *out)
{
    const struct arch *a = cb_arch_at(i);

    *out = a ? (struct cb_family_info){ a->name, a->text } : (struct cb_family_info){ "", "" };
    return a ? CB_OK : past("family", i);
}

/* ---- stored forms ---- */

static const char *const row_text[KV_TYPE_COUNT] = {
    [KV_F32] = "32-bit floats",
    [KV_F16] = "16-bit floats",
    [KV_BF16] = "bfloat16",
    [KV_Q8_0] = "8 bits a number, a scale a block",
};

/* Types beyond the plain rows: f16 rows, of which all but the newest are quantised. */
static const struct cb_kv_type_info kivi[] = {
    { "kivi4", "4 bits a number, keys by channel and values by token; the newest tokens are f16",
      KIVI_GROUP, 4 + KIVI_GROUP * 4 / 8 },
    { "kivi2", "2 bits a number, keys by channel and values by token; the newest tokens are f16",
      KIVI_GROUP, 4 + KIVI_GROUP * 2 / 8 },
    { "planes", "of keys: 8 bits a number by channel, of which policy sieve searches the first",
      SKETCH_BLOCK, 4 + SKETCH_BLOCK },
};

int cb_kv_type_at(int i, struct cb_kv_type_info *out)
{
    const int n_kivi = (int)(sizeof kivi / sizeof *kivi);

    *out = (struct cb_kv_type_info){ .name = "", .text = "" };
    if (i < 0 || i >= KV_TYPE_COUNT + n_kivi)
        return past("type of keys and values", i);
    if (i >= KV_TYPE_COUNT)
        *out = kivi[i - KV_TYPE_COUNT];
    else
        *out = (struct cb_kv_type_info){ cb_kv_type[i].name, row_text[i], cb_kv_type[i].block,
                                         cb_kv_type[i].block_bytes };
    return CB_OK;
}

/* ---- methods ---- */

static int n_option(const struct method *m)
{
    int n = 0;

    while (m->opts[n].name)
        n++;
    return n;
}

static int method(const struct method *m, const char *what, int i, struct cb_method_info *out)
{
    *out = (struct cb_method_info){ .name = "", .text = "", .paper = "" };
    if (!m)
        return past(what, i);
    *out = (struct cb_method_info){ m->name, m->brief, text(m->cite), n_option(m) };
    return CB_OK;
}

static int option(const struct method *m, const char *what, int j, struct cb_option_info *out)
{
    static const enum cb_option_type type[] = {
        [OPT_NUM] = CB_OPTION_NUMBER,    [OPT_INT] = CB_OPTION_INTEGER, [OPT_FLAG] = CB_OPTION_FLAG,
        [OPT_CHOICE] = CB_OPTION_CHOICE, [OPT_LIST] = CB_OPTION_LIST,   [OPT_TEXT] = CB_OPTION_TEXT,
        [OPT_FILE] = CB_OPTION_TEXT,
    };
    const struct method_opt *o;

    *out = (struct cb_option_info){ .name = "" };
    if (!m || j < 0 || j >= n_option(m))
        return past(what, j);
    o = &m->opts[j];
    *out = (struct cb_option_info){ .name = o->name,
                                    .unit = text(o->unit),
                                    .text = o->text,
                                    .type = type[o->kind],
                                    .def = o->def,
                                    .min = o->min,
                                    .max = o->kind == OPT_FLAG ? 1 : o->max,
                                    .choices = cb_opt_has_text(o) ? "" : text(o->choices),
                                    .def_text = cb_opt_has_text(o) ? text(o->choices) : "" };
    return CB_OK;
}

int cb_policy_at(int i, struct cb_method_info *out)
{
    return method(cb_method_at(i), "policy", i, out);
}

int cb_policy_option_at(int i, int j, struct cb_option_info *out)
{
    return option(cb_method_at(i), "option of a policy", j, out);
}

int cb_prefill_at(int i, struct cb_method_info *out)
{
    return method(cb_prompt_method_at(i), "form of prefill", i, out);
}

int cb_prefill_option_at(int i, int j, struct cb_option_info *out)
{
    return option(cb_prompt_method_at(i), "option of a form of prefill", j, out);
}

const char *cb_chat_form_at(int i)
{
    const struct chat_form *f = cb_chat_form_row(i);

    return f ? cb_chat_form_name(f) : NULL;
}
