/* SPDX-License-Identifier: MIT */
/* thread_choice.h - how many threads generate and read prompts the fastest: measured once a
 * machine, and kept. */
#ifndef THREAD_CHOICE_H
#define THREAD_CHOICE_H

#include "par/thread_counts.h"

/* Tokens a second of a model of our own */
struct thread_speed {
    double token, prompt; /* generated; of a prompt */
};

/* Measures n_threads for about `seconds` of each kind -> *out. */
typedef int (*thread_timer)(void *arg, int n_threads, double seconds, struct thread_speed *out);

enum thread_origin {
    THREADS_GIVEN,    /* the machine leaves no choice */
    THREADS_MEASURED, /* now */
    THREADS_KEPT,     /* earlier, and read back */
    THREADS_UNSURE    /* the machine was too busy to tell, or could not be measured */
};

struct thread_choice {
    int token, prompt; /* threads that generate, that read prompts */
    enum thread_origin origin;
    int n; /* numbers that were compared; 0: none */
    int count[CB_THREAD_COUNTS];
    struct thread_speed speed[CB_THREAD_COUNTS]; /* [n] the best of each */
    double seconds;                              /* that measuring took */
    int unkept;                                  /* 1: measured, but it could not be kept */
};

/* key: what the speeds depend on (cb_machine_describe() and more); folder: where they are kept, or
 * NULL. A file that is missing, damaged or of another machine is measured again. A measurement that
 * fails leaves the usual number; this itself cannot fail. */
void cb_thread_choose(const struct thread_counts *c, const char *key, const char *folder,
                      thread_timer timer, void *arg, struct thread_choice *out);

/* time_threads.c: the timer of matrix products on the CPU device; its arg. */
struct thread_rig;
struct thread_bench {
    int most;               /* threads */
    const char *isa;        /* NULL: the best */
    uint64_t most_bytes;    /* of memory, for large caches; 0: 64 MiB */
    struct thread_rig *rig; /* made at the first call */
};
int cb_thread_bench_time(void *bench, int n_threads, double seconds, struct thread_speed *out);
void cb_thread_bench_close(struct thread_bench *b);

#endif
