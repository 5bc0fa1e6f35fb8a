# The reference device is the oracle of every backend.
libcore_la_SOURCES += \
	backends/ref/ref.c \
	backends/ref/ref_attn.c backends/ref/ref_attn.h \
	backends/ref/ref_blocks.c backends/ref/ref_blocks.h \
	backends/ref/ref_recurrence.c backends/ref/ref_recurrence.h \
	backends/ref/ref_rows.c backends/ref/ref_rows.h \
	backends/ref/ref_index.c \
	backends/ref/ref_sketch.c backends/ref/ref_sketch.h
