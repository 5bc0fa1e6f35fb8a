/* SPDX-License-Identifier: MIT */
/* gpu_share.h - how weights, work space and operands share the working set. */
#ifndef GPU_SHARE_H
#define GPU_SHARE_H

#include "gpu.h"

enum { STREAM_TOKENS = 64 }; /* chunks for which a weight is copied in */

/* w->packed of an accelerator */
struct gpu_weight {
    struct gpu_program *program;
    void *on;              /* NULL: the weight is with the CPU */
    struct weight host;    /* as the CPU has loaded it; not loaded where it is on the device */
    const uint8_t *pinned; /* [pinned_bytes] whole pages of host.raw; NULL: none */
    size_t pinned_bytes;
    int pin_failed;
    int layer; /* of the prompt's, in gpu_share.c; -1: none */
};

static inline size_t cb_gpu_weight_bytes(const struct weight *w)
{
    return cb_row_bytes(w->type, w->n_in) * (size_t)w->n_out;
}

/* As much of the device's memory as it takes */
static inline size_t cb_gpu_weight_block(const struct weight *w)
{
    return cb_gpu_aligned(cb_gpu_weight_bytes(w));
}

/* Bytes that may be allocated without harm to weights and to the operands' share */
uint64_t cb_gpu_spare(const struct gpu *g);
/* Mirrored pages give way to `bytes` bytes; weights as well, unless they are for copies. Beside
 * work space there is room for what operands may still take. */
void cb_gpu_make_room(struct gpu *g, size_t bytes, enum gpu_use use);

/* A weight on the device stays there until work space needs its place. */
int cb_gpu_weight_load(struct gpu *g, struct gpu_weight *w);
void cb_gpu_weight_unload(struct gpu *g, struct gpu_weight *w);
void cb_gpu_weights_say(struct gpu *g); /* that some are with the CPU */
/* A weight that stays with the host is copied to the device, in the second queue with `ahead`. It
 * stays where it is until the queue is empty. */
void cb_gpu_weight_send(struct gpu *g, struct gpu_weight *w, void *to, int ahead);

/* Shares of a prompt that multiplies by the weights of these layers, in chunks of n_tok tokens,
 * beside `more` bytes of work space that are still to come. At most `rows` bytes stay for
 * mirrored rows. */
struct gpu_share {
    uint64_t weights; /* bytes of weights that stay on the device */
    size_t buffer;    /* bytes of each buffer for the other weights */
    int n_buffer;     /* 2, 1; 0: each product copies its own weight, for each chunk */
    int n_stay;       /* number of weights that stay, the first ones in the order of loading */
};
int cb_gpu_share_plan(struct gpu *g, const struct layer_weights *layer, int n_layer, int n_tok,
                      uint64_t rows, uint64_t more, struct gpu_share *out);
/* The weights after the first n_stay go to the CPU. */
void cb_gpu_share_keep(struct gpu *g, int n_stay);

#endif
