/* SPDX-License-Identifier: MIT */
/* settings_check.c - checks the settings of a session as far as that needs no model. */
#include "bank/bank.h"
#include "base/err.h"
#include "ctxbank.h"
#include "device/device.h"
#include "policy/policy.h"

/* A file that the operator names is read. */
static int check_files(struct policy *p)
{
    for (int i = 0; p->m->opts[i].name; i++)
        if (p->m->opts[i].kind == OPT_FILE && p->val[i].set && !p->sh.guest)
            TRY(cb_preset_check(p, p->val[i].text));
    return CB_OK;
}

static int check_method(const char *spec, int guest,
                        int (*open)(const char *spec, const struct shape *, struct policy **))
{
    const struct shape sh = { .guest = guest };
    struct policy *p;
    int err;

    if (!spec)
        return CB_OK;
    TRY(open(spec, &sh, &p));
    err = check_files(p);
    cb_policy_close(p);
    return err;
}

int cb_settings_check(const struct cb_session_params *p, const char *device)
{
    if (device)
        TRY(cb_device_check(device));
    TRY(check_method(p->policy, p->guest, cb_policy_open));
    TRY(cb_bank_check_types(p->type_k, p->type_v));
    return check_method(p->prefill, p->guest, cb_prompt_open);
}
