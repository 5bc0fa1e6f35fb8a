# One convenience library an ISA, each with its own flags: libcpu_avx2.la, libcpu_avx512.la, ...
# with libcore_la_LIBADD += for each that configure found (ISA_AVX2, ISA_AVX512, ISA_NEON).
libcore_la_SOURCES += \
	backends/cpu/cpu.c \
	backends/cpu/cpuid.c \
	backends/cpu/cpuid.h \
	backends/cpu/kern.h \
	backends/cpu/matmul.c
