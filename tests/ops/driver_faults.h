/* SPDX-License-Identifier: MIT */
/* driver_faults.h - how an accelerator's driver is made to fail, and what the device says then: a
 * table for each driver, which check_driver.c goes through. */
#ifndef DRIVER_FAULTS_H
#define DRIVER_FAULTS_H

#include <check.h>
#include <stdint.h>

struct fault {
    const char *setting; /* for set() */
    int status;          /* CB_E…; 0: any */
    const char *says;    /* a part of cb_error() */
};

/* A session whose device is lost, in a prompt or in the first token after it */
struct loss {
    const char *setting;
    uint64_t working_set;
    int decoding;
};

struct driver_faults {
    /* From here on "fail=CALL:STATUS" has CALL return STATUS, and after "fault=KERNEL" the device
     * is lost with that kernel's next run; "" has the driver work again, unless the device is lost.
     */
    void (*set)(const char *setting);
    int (*live)(void);           /* things that the driver gave and has not got back */
    const struct fault *opening; /* no device is opened; they end with setting NULL */
    const struct fault *op;      /* an add fails; the device goes on */
    const struct loss *loss;
    /* said of a device that was lost: the copy after the kernel, memory, anything in a session */
    const char *lost_copy, *lost_memory, *lost;
    const char *no_kernel,
        *no_launch;          /* settings: no text loads; no kernel starts, for want of memory */
    void (*more)(TCase *tc); /* adds tests of this driver; may be NULL */
};
extern const struct driver_faults cb_driver_faults;

/* What tests of a driver share: cb_error() is one line with this text; a model of some layers, and
 * a session of it; all that the driver gave was given back */
void cb_driver_said(const char *what);
struct cb_model *cb_driver_model(uint64_t working_set);
struct cb_session *cb_driver_session(struct cb_model *m);
void cb_driver_nothing_left(void);
enum { DRIVER_TOKENS = 128 }; /* of a prompt that streams weights in little working sets */

#endif
