libcore_la_SOURCES += \
	include/ctxbank.h \
	src/arch.c \
	src/attend.c src/attend.h \
	src/backend.c src/backend.h \
	src/clock.h \
	src/cpus.c src/cpus.h \
	src/data.c src/data.h \
	src/dtype.c src/dtype.h \
	src/dtype_k.c src/dtype_k.h \
	src/distant.c src/distant.h \
	src/edit.c src/edit.h \
	src/err.c src/err.h \
	src/first.c src/first.h \
	src/follow.c \
	src/forward.c \
	src/futex.h \
	src/gguf.c src/gguf.h \
	src/gguf_file.h \
	src/gguf_parse.c \
	src/gguf_read.c \
	src/gguf_write.c src/gguf_write.h \
	src/ints.h \
	src/keep.c \
	src/kivi.c src/kivi.h \
	src/leave.c src/leave.h \
	src/measure.c src/measure.h \
	src/method/d2o.c src/method/d2o.h \
	src/method/d2o_merge.c \
	src/method/full.c \
	src/method/h2o.c \
	src/method/omnikv.c \
	src/method/omnikv_prefill.c \
	src/method/pod.c \
	src/method/pyramidkv.c \
	src/method/simlayerkv.c \
	src/method/snapkv.c \
	src/method/streamingllm.c \
	src/method/tova.c \
	src/method/window.c \
	src/memory.c \
	src/model.c src/model.h \
	src/nearest.c src/nearest.h \
	src/par_omp.c src/par.h \
	src/place.c src/place.h \
	src/policy.c src/policy.h \
	src/prefill.c src/prefill.h \
	src/preset.c \
	src/preview.c src/preview.h \
	src/quantize.c src/quantize.h \
	src/reading.c src/reading.h \
	src/rolled.c src/rolled.h \
	src/sample.c \
	src/select.c src/select.h \
	src/session.c src/session.h \
	src/share.c \
	src/similar.c src/similar.h \
	src/store.c src/store.h \
	src/store_kivi.c src/store_kivi.h \
	src/store_rows.c \
	src/store_seal.c \
	src/store_touch.c \
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
	src/calibrate/alike.c src/calibrate/alike.h \
	src/calibrate/chart.c src/calibrate/chart.h \
	src/calibrate/filter.c src/calibrate/filter.h \
	src/calibrate/probe.c src/calibrate/probe.h \
	src/calibrate/rows.c src/calibrate/rows.h \
	src/calibrate/sample.c src/calibrate/sample.h \
	src/calibrate/trial.c src/calibrate/trial.h \
	src/eval/answer.c src/eval/answer.h \
	src/eval/ask.c src/eval/ask.h \
	src/eval/buf.c src/eval/buf.h \
	src/eval/gen.c src/eval/gen.h \
	src/eval/gen_2stage.c \
	src/eval/gen_needle.c \
	src/eval/gen_ruler.c src/eval/gen_ruler.h \
	src/eval/gen_ruler_more.c \
	src/eval/gen_ruler_qa.c \
	src/eval/haystack.c \
	src/eval/item.c src/eval/item.h \
	src/eval/item_read.c \
	src/eval/metric.c src/eval/metric.h \
	src/eval/plot.c src/eval/plot.h \
	src/eval/run.c src/eval/run.h \
	src/eval/table.c src/eval/table.h \
	src/eval/published.c src/eval/published.h

# The program
bin_PROGRAMS += ctxbank
ctxbank_LDADD = libeval.la libcore.la $(JANSSON_LIBS)
ctxbank_SOURCES = \
	src/bench/attn.c \
	src/bench/gather.c \
	src/bench/matmul.c \
	src/bench/ops.c src/bench/ops.h \
	src/bench/small.c \
	src/cmd/bench.c \
	src/cmd/bench_ops.c src/cmd/bench_ops.h \
	src/cmd/calibrate.c src/cmd/calibrate.h \
	src/cmd/calibrate_filter.c \
	src/cmd/calibrate_layers.c \
	src/cmd/calibrate_lazy.c \
	src/cmd/calibrate_similarity.c \
	src/cmd/calibrate_trial.c src/cmd/calibrate_trial.h \
	src/cmd/chat.c \
	src/cmd/cmd.c src/cmd/cmd.h \
	src/cmd/dump.c \
	src/cmd/engine.c \
	src/cmd/eval.c src/cmd/eval.h \
	src/cmd/eval_continuation.c \
	src/cmd/eval_kld.c \
	src/cmd/eval_perplexity.c \
	src/cmd/eval_tasks.c \
	src/cmd/generate.c \
	src/cmd/info.c \
	src/cmd/interrupt.c \
	src/cmd/prompt.c src/cmd/prompt.h \
	src/cmd/quantize.c \
	src/cmd/report.c \
	src/cmd/rows.c src/cmd/rows.h \
	src/cmd/run.c \
	src/cmd/text.c \
	src/cmd/tokenize.c \
	src/log.c src/log.h \
	src/main.c \
	src/opts.c src/opts.h \
	src/opts_complete.c \
	src/opts_doc.c \
	src/opts_table.c \
	src/progress.c src/progress.h
