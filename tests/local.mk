# One program an area; each links the library's inside and the check runner.
if HAVE_CHECK
check_programs = \
	tests/check_calibrate \
	tests/check_continuation \
	tests/check_cpus \
	tests/check_eval \
	tests/check_follow \
	tests/check_gguf \
	tests/check_mask \
	tests/check_attn \
	tests/check_matmul \
	tests/check_hostile \
	tests/check_methods \
	tests/check_metric \
	tests/check_ops \
	tests/check_policy \
	tests/check_prefill \
	tests/check_model \
	tests/check_kivi \
	tests/check_kvpress \
	tests/check_omnikv \
	tests/check_pod \
	tests/check_par \
	tests/check_place \
	tests/check_quantize \
	tests/check_sample \
	tests/check_preview \
	tests/check_seal \
	tests/check_store \
	tests/check_template \
	tests/check_tok \
	tests/check_tok_file

check_PROGRAMS += $(check_programs) tests/make_tiny
TESTS += $(check_programs)

check_ldadd = libtest.la libcore.la $(CHECK_LIBS)
check_cflags = $(AM_CFLAGS) $(CHECK_CFLAGS)

# What tests share: files and models that they make.
check_LTLIBRARIES = libtest.la
libtest_la_SOURCES = \
	tests/folder.c tests/folder.h \
	tests/gguf_make.c tests/gguf_make.h \
	tests/isa.c tests/isa.h \
	tests/slow.c tests/slow.h \
	tests/tiny.c tests/tiny.h \
	tests/toy.c tests/toy.h

tests_check_calibrate_SOURCES = tests/check_calibrate.c
tests_check_calibrate_CFLAGS = $(check_cflags)
tests_check_calibrate_LDADD = libeval.la $(check_ldadd) $(JANSSON_LIBS)

tests_check_continuation_SOURCES = tests/check_continuation.c
tests_check_continuation_CFLAGS = $(check_cflags)
tests_check_continuation_LDADD = $(check_ldadd) $(JANSSON_LIBS)

tests_check_eval_SOURCES = tests/check_eval.c
tests_check_eval_CFLAGS = $(check_cflags)
tests_check_eval_LDADD = libeval.la $(check_ldadd) $(JANSSON_LIBS)

tests_check_cpus_SOURCES = tests/check_cpus.c
tests_check_cpus_CFLAGS = $(check_cflags)
tests_check_cpus_LDADD = $(check_ldadd)

tests_check_kvpress_SOURCES = tests/check_kvpress.c
tests_check_kvpress_CFLAGS = $(check_cflags)
tests_check_kvpress_LDADD = $(check_ldadd) $(JANSSON_LIBS)

tests_check_prefill_SOURCES = tests/check_prefill.c
tests_check_prefill_CFLAGS = $(check_cflags)
tests_check_prefill_LDADD = $(check_ldadd)

tests_check_follow_SOURCES = tests/check_follow.c
tests_check_follow_CFLAGS = $(check_cflags)
tests_check_follow_LDADD = $(check_ldadd)

tests_check_gguf_SOURCES = tests/check_gguf.c
tests_check_gguf_CFLAGS = $(check_cflags)
tests_check_gguf_LDADD = $(check_ldadd)

tests_check_mask_SOURCES = tests/check_mask.c
tests_check_mask_CFLAGS = $(check_cflags)
tests_check_mask_LDADD = $(check_ldadd)

tests_check_attn_SOURCES = tests/check_attn.c tests/against_ref.h
tests_check_attn_CFLAGS = $(check_cflags)
tests_check_attn_LDADD = $(check_ldadd)

tests_check_matmul_SOURCES = tests/check_matmul.c
tests_check_matmul_CFLAGS = $(check_cflags)
tests_check_matmul_LDADD = $(check_ldadd)
tests_check_hostile_SOURCES = tests/check_hostile.c
tests_check_hostile_CFLAGS = $(check_cflags)
tests_check_hostile_LDADD = $(check_ldadd)

tests_check_methods_SOURCES = tests/check_methods.c tests/vectors/methods.h
tests_check_methods_CFLAGS = $(check_cflags)
tests_check_methods_LDADD = $(check_ldadd)

tests_check_metric_SOURCES = tests/check_metric.c
tests_check_metric_CFLAGS = $(check_cflags)
tests_check_metric_LDADD = libeval.la $(check_ldadd)

tests_check_ops_SOURCES = tests/check_ops.c tests/against_ref.h
tests_check_ops_CFLAGS = $(check_cflags)
tests_check_ops_LDADD = $(check_ldadd)

tests_check_model_SOURCES = tests/check_model.c
tests_check_model_CFLAGS = $(check_cflags)
tests_check_model_LDADD = $(check_ldadd) $(JANSSON_LIBS)

tests_check_omnikv_SOURCES = tests/check_omnikv.c tests/vectors/selection.h
tests_check_omnikv_CFLAGS = $(check_cflags)
tests_check_omnikv_LDADD = $(check_ldadd)

tests_check_par_SOURCES = tests/check_par.c
tests_check_par_CFLAGS = $(check_cflags)
tests_check_par_LDADD = $(check_ldadd)

tests_check_place_SOURCES = tests/check_place.c
tests_check_place_CFLAGS = $(check_cflags)
tests_check_place_LDADD = $(check_ldadd)

tests_check_policy_SOURCES = tests/check_policy.c
tests_check_policy_CFLAGS = $(check_cflags)
tests_check_policy_LDADD = $(check_ldadd)

tests_check_pod_SOURCES = tests/check_pod.c
tests_check_pod_CFLAGS = $(check_cflags)
tests_check_pod_LDADD = $(check_ldadd)
tests_check_quantize_SOURCES = tests/check_quantize.c
tests_check_quantize_CFLAGS = $(check_cflags)
tests_check_quantize_LDADD = $(check_ldadd)

tests_check_kivi_SOURCES = tests/check_kivi.c
tests_check_kivi_CFLAGS = $(check_cflags)
tests_check_kivi_LDADD = $(check_ldadd)

tests_check_preview_SOURCES = tests/check_preview.c
tests_check_preview_CFLAGS = $(check_cflags)
tests_check_preview_LDADD = $(check_ldadd)

tests_check_seal_SOURCES = tests/check_seal.c
tests_check_seal_CFLAGS = $(check_cflags)
tests_check_seal_LDADD = $(check_ldadd)

tests_check_sample_SOURCES = tests/check_sample.c
tests_check_sample_CFLAGS = $(check_cflags)
tests_check_sample_LDADD = $(check_ldadd)

tests_check_store_SOURCES = tests/check_store.c
tests_check_store_CFLAGS = $(check_cflags)
tests_check_store_LDADD = $(check_ldadd)

tests_check_template_SOURCES = tests/check_template.c
tests_check_template_CFLAGS = $(check_cflags)
tests_check_template_LDADD = $(check_ldadd)

tests_check_tok_SOURCES = tests/check_tok.c
tests_check_tok_CFLAGS = $(check_cflags)
tests_check_tok_LDADD = $(check_ldadd) $(JANSSON_LIBS)

tests_check_tok_file_SOURCES = tests/check_tok_file.c
tests_check_tok_file_CFLAGS = $(check_cflags)
tests_check_tok_file_LDADD = $(check_ldadd)

tests_make_tiny_SOURCES = tests/make_tiny.c
tests_make_tiny_LDADD = libtest.la libcore.la
endif

EXTRA_DIST += \
	tests/vectors/continuation-qwen2.5-0.5b.json \
	tests/vectors/continuation-smollm2.json \
	tests/vectors/kvpress-smollm2.json \
	tests/vectors/make_continuation.py \
	tests/vectors/make_kvpress.py \
	tests/vectors/make_methods.py \
	tests/vectors/make_tokenizer.py \
	tests/vectors/tok-gemma-3-270m.json \
	tests/vectors/tok-gpt2.gguf tests/vectors/tok-gpt2.json \
	tests/vectors/tok-llama-bpe.gguf tests/vectors/tok-llama-bpe.json \
	tests/vectors/tok-qwen2.5-coder-0.5b-instruct.json \
	tests/vectors/tok-qwen2.gguf tests/vectors/tok-qwen2.json \
	tests/vectors/tok-smollm.gguf tests/vectors/tok-smollm.json \
	tests/vectors/tok-smollm2-135m-instruct.json \
	tests/vectors/tok-spm-plain.gguf tests/vectors/tok-spm-plain.json \
	tests/vectors/tok-spm.gguf tests/vectors/tok-spm.json \
	tests/vectors/make_tiny_models.py \
	tests/vectors/tiny-linear.gguf \
	tests/vectors/tiny-linear.json \
	tests/vectors/tiny-llama.gguf \
	tests/vectors/tiny-llama.json \
	tests/vectors/tiny-llama3.1.gguf \
	tests/vectors/tiny-llama3.1.json \
	tests/vectors/tiny-mistral.gguf \
	tests/vectors/tiny-mistral.json \
	tests/vectors/tiny-qwen2.gguf \
	tests/vectors/tiny-qwen2.json \
	tests/vectors/tiny-qwen2tied.gguf \
	tests/vectors/tiny-qwen2tied.json \
	tests/vectors/make_selection.py

# Scripts: they count their own checks and end with "N passed, N failed".
dist_check_SCRIPTS = \
	tests/check-calibrate \
	tests/check-cli \
	tests/check-eval \
	tests/check-rules
if HAVE_CHECK
TESTS += $(dist_check_SCRIPTS)
endif
EXTRA_DIST += tests/tally
