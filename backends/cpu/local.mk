libcore_la_SOURCES += \
	backends/cpu/attn.c \
	backends/cpu/attn.h \
	backends/cpu/attn_tile.c \
	backends/cpu/cpu.c \
	backends/cpu/cpuid.c \
	backends/cpu/cpuid.h \
	backends/cpu/kern.h \
	backends/cpu/kern_vec.h \
	backends/cpu/matmul.c \
	backends/cpu/score.c \
	backends/cpu/topk.c \
	backends/cpu/vec_ops.c

# One convenience library an ISA, each with its own flags, over the same sources.
cpu_vec_sources = \
	backends/cpu/attn_kern.c \
	backends/cpu/vec.h \
	backends/cpu/vec_kern.c

noinst_LTLIBRARIES += libcpu_scalar.la
libcpu_scalar_la_SOURCES = $(cpu_vec_sources) backends/cpu/vec_scalar.h
libcpu_scalar_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=scalar
libcore_la_LIBADD += libcpu_scalar.la

if ISA_AVX2
noinst_LTLIBRARIES += libcpu_avx2.la
libcpu_avx2_la_SOURCES = $(cpu_vec_sources) backends/cpu/vec_avx2.h
libcpu_avx2_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=avx2
libcpu_avx2_la_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -mf16c
libcore_la_LIBADD += libcpu_avx2.la
endif

if ISA_AVX512
noinst_LTLIBRARIES += libcpu_avx512.la
libcpu_avx512_la_SOURCES = $(cpu_vec_sources) backends/cpu/vec_avx512.h
libcpu_avx512_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=avx512
libcpu_avx512_la_CFLAGS = $(AM_CFLAGS) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni \
	-mavx512bf16 -mfma -mf16c
libcore_la_LIBADD += libcpu_avx512.la
endif

if ISA_NEON
noinst_LTLIBRARIES += libcpu_neon.la
libcpu_neon_la_SOURCES = $(cpu_vec_sources) backends/cpu/vec_neon.h
libcpu_neon_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=neon
libcpu_neon_la_CFLAGS = $(AM_CFLAGS) -march=armv8.2-a+dotprod
libcore_la_LIBADD += libcpu_neon.la
endif
