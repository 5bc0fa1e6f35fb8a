libcore_la_SOURCES += \
	backends/cpu/attention/attn.c \
	backends/cpu/attention/attn_i16.h \
	backends/cpu/attention/attn_tile.c backends/cpu/attention/attn_tile.h \
	backends/cpu/attention/block_mass.c \
	backends/cpu/attention/index_cascade.c backends/cpu/attention/index_line.c \
	backends/cpu/attention/index_scan.c backends/cpu/attention/index_scan.h \
	backends/cpu/attention/kivi_block.c backends/cpu/attention/kivi_block.h \
	backends/cpu/attention/line_sums.c \
	backends/cpu/attention/nearest.c \
	backends/cpu/attention/page_scores.c \
	backends/cpu/attention/prepack.c \
	backends/cpu/attention/score.c \
	backends/cpu/attention/sketch_form.h \
	backends/cpu/attention/sketch_mass.c \
	backends/cpu/attention/sketch_tile.h \
	backends/cpu/attention/sketch_topk.c \
	backends/cpu/attention/topk.c \
	backends/cpu/cpu.c \
	backends/cpu/cpuid.c backends/cpu/cpuid.h backends/cpu/tiers.h \
	backends/cpu/kern.h \
	backends/cpu/matmul/activations.c \
	backends/cpu/matmul/kern_mm.h \
	backends/cpu/matmul/load.c \
	backends/cpu/matmul/many_check.c \
	backends/cpu/matmul/matmul.c \
	backends/cpu/matmul/mm_act16.h \
	backends/cpu/matmul/mm_table.h \
	backends/cpu/matmul/pack.c \
	backends/cpu/matmul/panels.c \
	backends/cpu/matmul/pass.h \
	backends/cpu/matmul/shares.c \
	backends/cpu/matmul/provider.c backends/cpu/matmul/provider.h \
	backends/cpu/peak/kern_peak.h \
	backends/cpu/peak/peak.c backends/cpu/peak/peak.h \
	backends/cpu/peak/peak_read.h \
	backends/cpu/recurrence/recurrence.c \
	backends/cpu/slab.c backends/cpu/slab.h \
	backends/cpu/vector/kern_vec.h \
	backends/cpu/vector/vec_ops.c

# One convenience library for each set of flags. Its sources need no other instructions; those of
# several libraries are built once for each.
cpu_cflags = $(AM_CFLAGS) $(SAN_KERNEL_CFLAGS)
cpu_vec_sources = \
	backends/cpu/attention/attn_kern.c \
	backends/cpu/attention/attn_kivi.c \
	backends/cpu/recurrence/recurrence_kern.c \
	backends/cpu/vector/vec.h \
	backends/cpu/vector/vec_kern.c \
	backends/cpu/vector/vec_rows.c backends/cpu/vector/vec_rows.h

noinst_LTLIBRARIES += libcpu_scalar.la
libcpu_scalar_la_SOURCES = $(cpu_vec_sources) backends/cpu/vector/vec_scalar.h \
	backends/cpu/attention/sketch_plain.c \
	backends/cpu/matmul/mm_scalar.c \
	backends/cpu/peak/peak_scalar.c
libcpu_scalar_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=scalar
libcpu_scalar_la_CFLAGS = $(cpu_cflags)
libcore_la_LIBADD += libcpu_scalar.la

if ISA_AVX2
noinst_LTLIBRARIES += libcpu_avx2.la
cpu_avx2_dots = \
	backends/cpu/attention/attn_half.c backends/cpu/attention/attn_half_avx2.h \
	backends/cpu/attention/attn_values_avx2.c \
	backends/cpu/attention/dots_avx2.c \
	backends/cpu/attention/index_scan_avx2.c \
	backends/cpu/attention/sketch_avx2.c \
	backends/cpu/matmul/mm_avx2.c backends/cpu/matmul/mm_dot_avx2.h backends/cpu/matmul/mm_runs.h \
	backends/cpu/matmul/mm_code_sums.h backends/cpu/matmul/mm_quantize_avx2.h \
	backends/cpu/peak/peak_avx2.c \
	backends/cpu/vector/dot_avx2.h backends/cpu/vector/vec_avx2.h
cpu_avx2_cflags = $(cpu_cflags) -mavx2 -mfma -mf16c
libcpu_avx2_la_SOURCES = $(cpu_vec_sources) $(cpu_avx2_dots) \
	backends/cpu/attention/attn_kivi_avx2.c \
	backends/cpu/attention/attn_q8_avx2.c
libcpu_avx2_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=avx2
libcpu_avx2_la_CFLAGS = $(cpu_avx2_cflags)
libcore_la_LIBADD += libcpu_avx2.la
endif

if ISA_AVXVNNI
noinst_LTLIBRARIES += libcpu_avxvnni.la
# Tests on machines with AVX-512 VNNI alone: make AVXVNNI_CFLAGS='-mavx512vl -mavx512vnni'
AVXVNNI_CFLAGS = -mavxvnni
libcpu_avxvnni_la_SOURCES = $(cpu_avx2_dots)
libcpu_avxvnni_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=avx2 -DDOT_ISA=avxvnni
libcpu_avxvnni_la_CFLAGS = $(cpu_avx2_cflags) $(AVXVNNI_CFLAGS)
libcore_la_LIBADD += libcpu_avxvnni.la
endif

if ISA_AVX512
noinst_LTLIBRARIES += libcpu_avx512.la
cpu_avx512_dots = \
	backends/cpu/attention/attn_half.c backends/cpu/attention/attn_half_avx512.h \
	backends/cpu/attention/attn_q8_avx512.c \
	backends/cpu/attention/attn_values_avx512.c \
	backends/cpu/attention/dots_avx512.c \
	backends/cpu/attention/index_scan_avx512.c \
	backends/cpu/attention/sketch_avx512.c \
	backends/cpu/matmul/mm_avx512.c backends/cpu/matmul/mm_dot_avx512.h \
	backends/cpu/matmul/mm_block_avx512.h \
	backends/cpu/matmul/mm_code_sums.h backends/cpu/matmul/mm_quantize_avx512.h \
	backends/cpu/matmul/mm_runs.h \
	backends/cpu/peak/peak_avx512.c \
	backends/cpu/vector/dot_avx512.h backends/cpu/vector/vec_avx512.h
cpu_avx512_cflags = $(cpu_cflags) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
libcpu_avx512_la_SOURCES = $(cpu_vec_sources) $(cpu_avx512_dots) \
	backends/cpu/attention/attn_kivi_avx512.c
libcpu_avx512_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=avx512
libcpu_avx512_la_CFLAGS = $(cpu_avx512_cflags)
libcore_la_LIBADD += libcpu_avx512.la
endif

if ISA_AVX512VNNI
noinst_LTLIBRARIES += libcpu_avx512vnni.la
libcpu_avx512vnni_la_SOURCES = $(cpu_avx512_dots)
libcpu_avx512vnni_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=avx512 -DDOT_ISA=avx512vnni
libcpu_avx512vnni_la_CFLAGS = $(cpu_avx512_cflags) -mavx512vnni
libcore_la_LIBADD += libcpu_avx512vnni.la
endif

if ISA_AVX512VBMI
noinst_LTLIBRARIES += libcpu_avx512vbmi.la
libcpu_avx512vbmi_la_SOURCES = backends/cpu/attention/attn_kivi_i8_avx512.c
libcpu_avx512vbmi_la_CFLAGS = $(cpu_avx512_cflags) -mavx512vnni -mavx512vbmi
libcore_la_LIBADD += libcpu_avx512vbmi.la
endif

if ISA_AMX
noinst_LTLIBRARIES += libcpu_amx.la
cpu_amx_sources = \
	backends/cpu/matmul/mm_amx.c backends/cpu/matmul/mm_block_avx512.h \
	backends/cpu/matmul/mm_dot_avx512.h backends/cpu/matmul/mm_runs.h \
	backends/cpu/peak/peak_amx.c
libcpu_amx_la_SOURCES = $(cpu_amx_sources) backends/cpu/matmul/tile_amx.h
libcpu_amx_la_CFLAGS = $(cpu_avx512_cflags) -mavx512vnni -mamx-tile -mamx-int8
libcore_la_LIBADD += libcpu_amx.la
endif

if ISA_AVX512BF16
noinst_LTLIBRARIES += libcpu_avx512bf16.la
libcpu_avx512bf16_la_SOURCES = backends/cpu/peak/peak_bf16_avx512.c
libcpu_avx512bf16_la_CFLAGS = $(cpu_avx512_cflags) -mavx512bf16
libcore_la_LIBADD += libcpu_avx512bf16.la
endif

if ISA_NEON
noinst_LTLIBRARIES += libcpu_neon.la
libcpu_neon_la_SOURCES = $(cpu_vec_sources) \
	backends/cpu/vector/dot_neon.h backends/cpu/vector/vec_neon.h \
	backends/cpu/attention/attn_q8_neon.c \
	backends/cpu/attention/sketch_neon.c \
	backends/cpu/matmul/mm_neon.c \
	backends/cpu/peak/peak_neon.c
libcpu_neon_la_CPPFLAGS = $(AM_CPPFLAGS) -DVEC_ISA=neon
libcpu_neon_la_CFLAGS = $(cpu_cflags) -march=armv8.2-a+dotprod
libcore_la_LIBADD += libcpu_neon.la
endif

if ISA_I8MM
noinst_LTLIBRARIES += libcpu_i8mm.la
libcpu_i8mm_la_SOURCES = backends/cpu/matmul/mm_neon.c backends/cpu/peak/peak_neon.c
libcpu_i8mm_la_CFLAGS = $(cpu_cflags) -march=armv8.2-a+dotprod+i8mm
libcore_la_LIBADD += libcpu_i8mm.la
endif

if ISA_BF16
noinst_LTLIBRARIES += libcpu_bf16.la
libcpu_bf16_la_SOURCES = backends/cpu/matmul/mm_neon.c backends/cpu/matmul/mm_bf16_neon.h \
	backends/cpu/peak/peak_neon.c
libcpu_bf16_la_CFLAGS = $(cpu_cflags) -march=armv8.2-a+dotprod+i8mm+bf16
libcore_la_LIBADD += libcpu_bf16.la
endif

# Products of many tokens can be left to these.
if HAVE_DNNL
libcore_la_SOURCES += backends/cpu/matmul/dnnl.c
libcore_la_LIBADD += $(DNNL_LIBS)
endif

if HAVE_OPENBLAS
noinst_LTLIBRARIES += libcpu_blas.la
libcore_la_LIBADD += libcpu_blas.la $(OPENBLAS_LIBS)
libcpu_blas_la_SOURCES = backends/cpu/matmul/blas.c
libcpu_blas_la_CFLAGS = $(AM_CFLAGS) $(OPENBLAS_CFLAGS)
endif
