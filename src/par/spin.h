/* SPDX-License-Identifier: MIT */
/* spin.h - how long a thread looks for work before it sleeps. */
#ifndef SPIN_H
#define SPIN_H

enum { SPIN = 4000 }; /* checks; about 0.1 ms */

#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define cpu_relax() __asm__ volatile("yield")
#else
#define cpu_relax() ((void)0)
#endif

#endif
