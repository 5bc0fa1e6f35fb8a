# backends/ref/ref.c is the oracle of every backend
libcore_la_SOURCES += \
	backends/ref/ref.c \
	backends/ref/ref.h \
	backends/ref/ref_attn.c
