libcore_la_SOURCES += \
	include/ctxbank.h \
	src/arch.c \
	src/attend.c src/attend.h \
	src/backend.c src/backend.h \
	src/dtype.c src/dtype.h \
	src/dtype_k.c src/dtype_k.h \
	src/edit.c src/edit.h \
	src/err.c src/err.h \
	src/forward.c \
	src/gguf.c src/gguf.h \
	src/gguf_file.h \
	src/gguf_parse.c \
	src/gguf_read.c \
	src/keep.c \
	src/measure.c src/measure.h \
	src/method/full.c \
	src/model.c src/model.h \
	src/nearest.c src/nearest.h \
	src/par_omp.c src/par.h \
	src/policy.c src/policy.h \
	src/sample.c \
	src/session.c src/session.h \
	src/store.c src/store.h \
	src/template.c src/template.h \
	src/tok.c src/tok.h \
	src/tok_bpe.c \
	src/tok_impl.h \
	src/tok_merge.c \
	src/tok_nfc.c \
	src/tok_spm.c \
	src/utf8.c

# Tasks and their scores: for the command line and the tests, not part of the installed library.
noinst_LTLIBRARIES += libeval.la
libeval_la_LIBADD = $(JANSSON_LIBS)
libeval_la_SOURCES = \
	src/eval/metric.c src/eval/metric.h
