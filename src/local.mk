# The rooms of src from the ground up: a file includes its own room and those above it in this list,
# which tests/check-rules holds it to.
libcore_la_SOURCES += \
	include/ctxbank.h \
	src/base/array.c src/base/array.h \
	src/base/base64.c src/base/base64.h \
	src/base/buf.c src/base/buf.h \
	src/base/clock.h \
	src/base/eigen.c src/base/eigen.h \
	src/base/control_groups.c src/base/control_groups.h \
	src/base/err.c src/base/err.h src/base/shortage.h \
	src/base/file.c src/base/file.h \
	src/base/free_memory.c src/base/free_memory.h \
	src/base/ints.h \
	src/base/json.c src/base/json.h \
	src/base/json_lenient.c src/base/json_lenient.h \
	src/base/macos.h \
	src/base/new_file.c src/base/new_file.h \
	src/base/number.c src/base/number.h \
	src/base/linux_flags.h src/base/page_guard.c src/base/page_guard.h \
	src/base/plain_text.c src/base/plain_text.h \
	src/base/encoding.c src/base/encoding.h \
	src/base/random.c src/base/random.h \
	src/base/siphash.c src/base/siphash.h \
	src/base/splitmix.h \
	src/base/stop_text.c src/base/stop_text.h \
	src/base/suggest.c src/base/suggest.h \
	src/base/topk_heap.c src/base/topk_heap.h \
	src/base/utf8.c src/base/utf8.h \
	src/base/words.h

libcore_la_SOURCES += \
	src/par/affinity.c src/par/affinity.h \
	src/par/thread_counts.c src/par/thread_counts.h \
	src/par/backoff.c src/par/backoff.h \
	src/par/cpus.c src/par/cpus.h \
	src/par/fair_lock.c src/par/fair_lock.h \
	src/par/futex.h \
	src/par/par.c src/par/par.h \
	src/par/spin.h \
	src/par/team.h

# A library of its own: no other file is compiled with MPI's flags.
noinst_LTLIBRARIES += libranks.la
libranks_la_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
libranks_la_LIBADD = $(MPI_LIBS)
libranks_la_SOURCES = src/ranks/ranks.h src/ranks/rank_wait.c src/ranks/rank_wait.h
if HAVE_MPI
libranks_la_SOURCES += src/ranks/mpi_ranks.c src/ranks/pulse.c src/ranks/pulse.h \
	src/ranks/timer_slack.h
else
libranks_la_SOURCES += src/ranks/no_mpi.c
endif

if THREADS_OPENMP
libcore_la_SOURCES += src/par/team_openmp.c
else
libcore_la_SOURCES += src/par/team_own.c
endif

libcore_la_SOURCES += \
	src/gguf/dtype.c src/gguf/dtype.h \
	src/gguf/dtype_coded.c src/gguf/dtype_coded.h \
	src/gguf/samples.c src/gguf/samples.h \
	src/gguf/dtype_k.c src/gguf/dtype_k.h \
	src/gguf/dtype_lattice.c \
	src/gguf/gguf.h \
	src/gguf/gguf_file.h \
	src/gguf/gguf_find.c \
	src/gguf/gguf_open.c \
	src/gguf/gguf_parse.c \
	src/gguf/gguf_read.c \
	src/gguf/gguf_write.c src/gguf/gguf_write.h \
	src/gguf/imatrix.c src/gguf/imatrix.h \
	src/gguf/lattice.c src/gguf/lattice.h \
	src/gguf/half.c src/gguf/half.h \
	src/gguf/requantize.c src/gguf/requantize.h

libcore_la_SOURCES += \
	src/jinja/ast.h \
	src/jinja/exec.c \
	src/jinja/expression.c src/jinja/expression.h \
	src/jinja/filters.c src/jinja/filters.h \
	src/jinja/filters_list.c \
	src/jinja/globals.c \
	src/jinja/is_tests.c \
	src/jinja/jcase.c src/jinja/jcase.h \
	src/jinja/jchars.c \
	src/jinja/jformat.c src/jinja/jformat.h \
	src/jinja/jinja.h \
	src/jinja/jnum.c src/jinja/jnum.h \
	src/jinja/jprint.c src/jinja/jprint.h \
	src/jinja/jrun.c src/jinja/jrun.h \
	src/jinja/json_read.c src/jinja/json_read.h \
	src/jinja/jsort.c src/jinja/jsort.h \
	src/jinja/jvalue.c src/jinja/jvalue.h \
	src/jinja/lexer.c src/jinja/lexer.h \
	src/jinja/members.c src/jinja/members.h \
	src/jinja/native.c src/jinja/native.h \
	src/jinja/operators.c src/jinja/operators.h \
	src/jinja/parse_expr.c src/jinja/parse_expr.h \
	src/jinja/parser.c \
	src/jinja/str_methods.c src/jinja/str_methods.h

libcore_la_SOURCES += \
	src/text/conversation_text.c src/text/conversation_text.h \
	src/text/template.c src/text/template.h \
	src/text/tok.h \
	src/text/tok_bpe.c \
	src/text/tok_impl.c src/text/tok_impl.h \
	src/text/tok_merge.c src/text/tok_pairs.c \
	src/text/tok_nfc.c \
	src/text/tok_open.c \
	src/text/tok_pre.c src/text/tok_pre.h \
	src/text/tok_spm.c

libcore_la_SOURCES += \
	src/grammar/grammar_budget.c src/grammar/grammar_budget.h \
	src/grammar/constraint.c src/grammar/constraint.h \
	src/grammar/decimal.c src/grammar/decimal.h \
	src/grammar/gbnf.c \
	src/grammar/grammar.c src/grammar/grammar.h \
	src/grammar/ids.c src/grammar/ids.h \
	src/grammar/letters.c src/grammar/letters.h \
	src/grammar/matcher.c src/grammar/matcher.h \
	src/grammar/number_digits.c src/grammar/number_digits.h \
	src/grammar/program.c src/grammar/program.h \
	src/grammar/program_check.c \
	src/grammar/read_char.c \
	src/grammar/re.c src/grammar/re.h \
	src/grammar/re_expr.c src/grammar/re_expr.h \
	src/grammar/re_walk.c \
	src/grammar/readers.h \
	src/grammar/regex.c src/grammar/regex.h \
	src/grammar/rules.c src/grammar/rules.h \
	src/grammar/schema.c src/grammar/schema.h \
	src/grammar/schema_array.c \
	src/grammar/schema_choice.c \
	src/grammar/schema_doc.c src/grammar/schema_doc.h \
	src/grammar/schema_fits.c \
	src/grammar/schema_kit.c \
	src/grammar/schema_not.c \
	src/grammar/schema_number.c \
	src/grammar/schema_object.c \
	src/grammar/schema_props.c src/grammar/schema_props.h \
	src/grammar/schema_set.c \
	src/grammar/schema_string.c \
	src/grammar/schema_values.c \
	src/grammar/schema_words.c \
	src/grammar/token_trie.c src/grammar/token_trie.h

libcore_la_SOURCES += \
	src/device/prompt_blocks.h \
	src/device/recurrence.h \
	src/device/device.c src/device/device.h \
	src/device/limits.h \
	src/device/pick.c src/device/pick.h \
	src/device/prepacked.c src/device/prepacked.h \
	src/device/kivi.c src/device/kivi.h \
	src/device/planes.c src/device/planes.h \
	src/device/index_strips.c src/device/index_strips.h \
	src/device/sketch.c src/device/sketch.h \
	src/device/node_weights.c src/device/node_weights.h \
	src/device/split_rows.c src/device/split_rows.h

libcore_la_SOURCES += \
	src/model/binder.c src/model/binder.h \
	src/model/altup.c \
	src/model/families.c src/model/latent.c src/model/ngrams.c src/model/stream_mix.c \
	src/model/adapted_product.c src/model/adapted_product.h \
	src/model/compressed.c \
	src/model/adapters.c src/model/adapters.h \
	src/model/head_prune.c src/model/head_prune.h \
	src/model/health.c src/model/health.h \
	src/model/hparams.c src/model/hparams.h src/model/layers.c src/model/recurrent.c \
	src/model/experts.c src/model/experts.h src/model/layer_input.c src/model/layer_input.h \
	src/model/model.h \
	src/model/mtp_head.c src/model/mtp_head.h \
	src/model/assistant.c src/model/assistant.h \
	src/model/model_log.c \
	src/model/model_open.c src/model/model_over.h src/model/layer_share.c src/model/layer_share.h \
	src/model/rope.c src/model/rope.h src/model/xielu.c src/model/xielu.h \
	src/model/selector.c src/model/selector.h \
	src/model/trained_blocks.c src/model/trained_blocks.h \
	src/model/weights.c src/model/weights.h src/model/weights_hash.c

libcore_la_SOURCES += \
	src/bank/bank.c src/bank/bank.h \
	src/bank/evict.c src/bank/evict.h \
	src/bank/nearest_key.c src/bank/nearest_key.h \
	src/bank/pages.c src/bank/pages.h \
	src/bank/checkpoint.c src/bank/checkpoint.h \
	src/bank/states.c src/bank/states.h src/bank/store.c src/bank/store.h \
	src/bank/bank_file.c src/bank/bank_file.h \
	src/bank/mapped_files.c src/bank/mapped_files.h \
	src/bank/store_areas.c src/bank/store_areas.h \
	src/bank/store_prefetch.c src/bank/store_prefetch.h \
	src/bank/store_kivi.c src/bank/store_kivi.h \
	src/bank/store_pair.c src/bank/store_pair.h \
	src/bank/store_planes.c src/bank/store_planes.h \
	src/bank/store_hold.c src/bank/store_hold.h \
	src/bank/store_prepack.c src/bank/store_prepack.h \
	src/bank/store_rows.c src/bank/store_rows.h \
	src/bank/store_sketch.c src/bank/store_sketch.h \
	src/bank/store_state.h \
	src/bank/store_touch.c src/bank/store_touch.h

libcore_la_SOURCES += \
	src/policy/budget.c \
	src/policy/keep.c \
	src/policy/method/d2o.c src/policy/method/d2o.h \
	src/policy/method/d2o_merge.c \
	src/policy/method/full.c \
	src/policy/method/h2o.c \
	src/policy/method/duo.c \
	src/policy/method/expected.c \
	src/policy/method/infinigen.c \
	src/policy/method/infllm.c \
	src/policy/method/keydiff.c \
	src/policy/method/kvzip.c \
	src/policy/method/lm_infinite.c \
	src/policy/method/minference.c \
	src/policy/method/minicache.c \
	src/policy/method/omnikv.c \
	src/policy/method/omnikv_prefill.c \
	src/policy/method/own.c \
	src/policy/method/pod.c \
	src/policy/method/pyramidinfer.c \
	src/policy/method/pyramidkv.c \
	src/policy/method/quest.c \
	src/policy/method/roco.c \
	src/policy/method/sieve.c \
	src/policy/method/sieve_prefill.c \
	src/policy/method/simlayerkv.c \
	src/policy/method/snapkv.c \
	src/policy/method/streamingllm.c \
	src/policy/method/tova.c \
	src/policy/method/window.c \
	src/policy/method/xattention.c \
	src/policy/paper_settings.c \
	src/policy/policy.c src/policy/policy.h \
	src/policy/own_layers.c \
	src/policy/preset.c \
	src/policy/view.c \
	src/policy/votes.c

libcore_la_SOURCES += \
	src/attention/attend.c src/attention/attend.h \
	src/attention/attend_open.c \
	src/attention/attention.h \
	src/attention/context_pieces.h src/attention/context_share.c \
	src/attention/context_split.c src/attention/context_split.h \
	src/attention/rank_choice.c src/attention/rank_choice.h \
	src/attention/split_refusals.c \
	src/attention/draft_rows.c src/attention/draft_rows.h \
	src/attention/entry_maker.c src/attention/entry_maker.h \
	src/attention/gram.c src/attention/gram.h \
	src/attention/index_choice.c src/attention/index_choice.h \
	src/attention/index_keys.c src/attention/index_keys.h \
	src/attention/parts.c src/attention/parts.h src/attention/parts_attend.c \
	src/attention/prompt_rounds.c src/attention/prompt_rounds.h \
	src/attention/prefill.h \
	src/attention/prefill_table.c src/attention/prefill_table.h \
	src/attention/reader.h src/attention/reader_hooks.c \
	src/attention/reader_table.c src/attention/reader_table.h \
	src/attention/reads.c src/attention/reads.h \
	src/attention/rows_ahead.c \
	src/attention/token_pruning.c src/attention/token_pruning.h \
	src/attention/turned_queries.c src/attention/turned_queries.h \
	src/attention/prefill/block_patterns.c src/attention/prefill/block_patterns.h \
	src/attention/prefill/block_prefill.c src/attention/prefill/block_prefill.h \
	src/attention/prefill/packed_copy.c src/attention/prefill/packed_copy.h \
	src/attention/prefill/sparse_prefill.c \
	src/attention/readers/chooser.c src/attention/readers/chooser.h \
	src/attention/readers/chosen.c \
	src/attention/readers/clamped_positions.c \
	src/attention/readers/compact_positions.c \
	src/attention/readers/cross_layer.c \
	src/attention/readers/entries.c \
	src/attention/readers/far_blocks.c \
	src/attention/readers/key_pages.c \
	src/attention/readers/mixer.c \
	src/attention/readers/own_slots.c \
	src/attention/readers/pairs.c \
	src/attention/readers/partial_keys.c \
	src/attention/readers/rolling.c \
	src/attention/readers/block_means.c \
	src/attention/readers/selected_blocks.c \
	src/attention/readers/selected_tokens.c \
	src/attention/readers/sketched_keys.c \
	src/attention/readers/skew.c src/attention/readers/skew.h \
	src/attention/readers/slot_lists.c src/attention/readers/slot_lists.h \
	src/attention/readers/whole.c src/attention/readers/whole.h \
	src/attention/scoring.h src/attention/scoring_table.c src/attention/scoring_table.h \
	src/attention/state_memory.c src/attention/state_memory.h \
	src/attention/scoring/every_query.c src/attention/scoring/expected_scores.c \
	src/attention/scoring/last_queries.c src/attention/scoring/last_share.c \
	src/attention/scoring/repeat_scores.c src/attention/scoring/squares.c \
	src/attention/scoring/scores.c src/attention/scoring/scores.h

libcore_la_SOURCES += \
	src/engine/catalogue.c \
	src/engine/cut.c \
	src/engine/compressed_rows.c src/engine/compressed_rows.h \
	src/engine/conversation.c \
	src/engine/detokenizer.c \
	src/engine/drafter.c src/engine/drafter.h \
	src/engine/embedding.c src/engine/embedding.h \
	src/engine/feed.c \
	src/engine/ffn.c src/engine/ffn.h \
	src/engine/gate_limit.c src/engine/gate_limit.h \
	src/engine/follow.c \
	src/engine/fork.c \
	src/engine/forward.c \
	src/engine/adopted_rows.c src/engine/adopted_rows.h \
	src/engine/attention_block.c src/engine/attention_block.h \
	src/engine/layer_pass.c src/engine/layer_pass.h \
	src/engine/logits.c src/engine/logits.h \
	src/engine/batch.c src/engine/feed_call.h \
	src/engine/in_step.c src/engine/in_step.h \
	src/engine/layer_ring.c src/engine/layer_ring.h \
	src/engine/session_open.c \
	src/engine/expanded_latents.c src/engine/expanded_latents.h \
	src/engine/latent_rows.c src/engine/latent_rows.h \
	src/engine/selector_rows.c src/engine/selector_rows.h \
	src/engine/layer_ahead.c src/engine/layer_ahead.h \
	src/engine/generation.c \
	src/engine/memory_held.c src/engine/memory_held.h src/engine/memory_plan.c \
	src/engine/model_drafter.c src/engine/model_drafter.h src/engine/likeliest.h \
	src/engine/assistant_drafter.c src/engine/assistant_drafter.h \
	src/engine/moe_work.c src/engine/moe_work.h \
	src/engine/mtp_drafter.c src/engine/mtp_drafter.h \
	src/engine/norm_rows.c src/engine/norm_rows.h \
	src/engine/orders.h \
	src/engine/product.c src/engine/product.h \
	src/engine/prompt_repeat.c src/engine/prompt_repeat.h \
	src/engine/repetition.c src/engine/repetition.h \
	src/engine/rows.c src/engine/rows.h \
	src/engine/sampler.c \
	src/engine/bank_dir.c \
	src/engine/bank_index.c src/engine/bank_index.h \
	src/engine/bank_room.c src/engine/bank_room.h \
	src/engine/saved_bank.c src/engine/saved_bank.h \
	src/engine/saved_about.c src/engine/saved_about.h \
	src/engine/saved_head.c src/engine/saved_head.h \
	src/engine/saved_writer.c src/engine/saved_writer.h \
	src/engine/rank_fill.c src/engine/rank_fill.h \
	src/engine/whole_bank.c src/engine/whole_bank.h \
	src/engine/session.c src/engine/session.h \
	src/engine/session_state.c src/engine/session_state.h \
	src/engine/snapshot.c src/engine/snapshot.h \
	src/engine/shared_prefill.c \
	src/engine/settings_check.c \
	src/engine/speculation.c \
	src/engine/stream_work.c src/engine/stream_work.h \
	src/engine/streams.c src/engine/streams.h \
	src/engine/alternating.c src/engine/alternating.h \
	src/engine/stream_blend.c src/engine/stream_blend.h \
	src/engine/token_experts.c src/engine/token_experts.h \
	src/engine/vocabulary.c

# Tasks, their scores and analyses: for the program and the tests, not part of the installed
# library.
noinst_LTLIBRARIES += libeval.la
libeval_la_LIBADD = $(JANSSON_LIBS)
libeval_la_SOURCES = \
	src/eval/answer.c src/eval/answer.h \
	src/eval/ask.c src/eval/ask.h \
	src/eval/ask_bank.c src/eval/ask_bank.h \
	src/eval/ask_all.c src/eval/ask_all.h \
	src/eval/data.c src/eval/data.h \
	src/eval/gen.c src/eval/gen.h \
	src/eval/gen_2stage.c \
	src/eval/gen_needle.c \
	src/eval/gen_ruler.c src/eval/gen_ruler.h \
	src/eval/gen_ruler_more.c \
	src/eval/gen_ruler_niah.c \
	src/eval/gen_ruler_qa.c \
	src/eval/haystack.c \
	src/eval/item.c src/eval/item.h \
	src/eval/item_read.c \
	src/eval/metric.c src/eval/metric.h \
	src/eval/published.c src/eval/published.h \
	src/calibrate/auto_table.c src/calibrate/auto_table.h \
	src/calibrate/coverage.c src/calibrate/coverage.h \
	src/calibrate/filter.c src/calibrate/filter.h \
	src/calibrate/layer_similarity.c src/calibrate/layer_similarity.h \
	src/calibrate/probe.c src/calibrate/probe.h \
	src/calibrate/row_stats.c src/calibrate/row_stats.h \
	src/calibrate/sample.c src/calibrate/sample.h \
	src/calibrate/trial.c src/calibrate/trial.h \
	src/bench/thread_choice.c src/bench/thread_choice.h \
	src/bench/time_threads.c \
	src/cli/output/csv.c src/cli/output/csv.h \
	src/cli/output/plot.c src/cli/output/plot.h \
	src/cli/output/score_table.c src/cli/output/score_table.h \
	src/cli/output/svg.c src/cli/output/svg.h

# The server; without libmicrohttpd its command says so, and the scheduler is tested all the same.
noinst_LTLIBRARIES += libserve.la
libserve_la_CFLAGS = $(AM_CFLAGS) $(MICROHTTPD_CFLAGS)
libserve_la_LIBADD = $(JANSSON_LIBS) $(MICROHTTPD_LIBS)
libserve_la_SOURCES = \
	src/serve/api.h \
	src/serve/api_banks.c \
	src/serve/api_chat.c \
	src/serve/api_completions.c \
	src/serve/api_embeddings.c \
	src/serve/api_llama.c \
	src/serve/api_messages.c \
	src/serve/api_models.c \
	src/serve/api_ollama.c \
	src/serve/api_page.c \
	src/serve/api_rerank.c \
	src/serve/api_responses.c \
	src/serve/api_state.c \
	src/serve/api_text.c \
	src/serve/chat_messages.c src/serve/chat_messages.h \
	src/serve/chat_tools.c src/serve/chat_tools.h \
	src/serve/dialects.c \
	src/serve/dialect_requests.c src/serve/dialect_requests.h \
	src/serve/loaded_model.c \
	src/serve/model_shelf.c src/serve/model_shelf.h \
	src/serve/ollama_request.c src/serve/ollama_request.h \
	src/serve/own_reading.c src/serve/own_reading.h \
	src/serve/messages_request.c src/serve/responses_request.c \
	src/serve/content.c src/serve/content.h \
	src/serve/notes.c src/serve/notes.h \
	src/serve/template_fit.c src/serve/template_fit.h \
	src/serve/answer_form.c src/serve/answer_form.h \
	src/serve/call_head.c src/serve/call_head.h \
	src/serve/call_heads.c src/serve/call_params.c src/serve/call_python.c \
	src/serve/call_text.c src/serve/call_text.h \
	src/serve/calls.c src/serve/calls.h \
	src/serve/json_scan.c src/serve/json_scan.h \
	src/serve/prefix_store.c src/serve/prefix_store.h \
	src/serve/chat_prompt.c src/serve/chat_prompt.h \
	src/serve/exchange.c src/serve/exchange.h \
	src/serve/fields.c src/serve/fields.h \
	src/serve/token_bias.c src/serve/token_bias.h \
	src/serve/job.c src/serve/job.h \
	src/serve/listener.c src/serve/listener.h \
	src/serve/own_host.c src/serve/own_host.h \
	src/serve/patience.c src/serve/patience.h \
	src/serve/logprobs.c src/serve/logprobs.h \
	src/serve/marks.c src/serve/marks.h \
	src/serve/fill_in.c src/serve/fill_in.h \
	src/serve/prompt_logprobs.c src/serve/prompt_logprobs.h \
	src/serve/reply.c src/serve/reply.h \
	src/serve/routes.c \
	src/serve/scheduler.h \
	src/serve/scheduler_admission.c src/serve/scheduler_clients.c \
	src/serve/scheduler_rounds.c src/serve/scheduler_state.h \
	src/serve/serve.h \
	src/serve/session_pool.c src/serve/session_pool.h \
	src/serve/token_history.c src/serve/token_history.h \
	src/serve/choice.c \
	src/serve/completion.c src/serve/completion.h src/serve/completion_figures.c
nodist_libserve_la_SOURCES = src/serve/page_texts.h

# What browsers and tools are given, as strings
serve_texts = src/serve/openapi.json src/serve/page.html src/serve/page_files.js
src/serve/page_texts.h: $(serve_texts)
	$(AM_V_GEN)$(MKDIR_P) src/serve && for f in $^; do \
		name=$$(basename $$f); echo "static const char $${name%.*}_text[] ="; \
		sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' $$f; echo '    ;'; \
	done > $@.tmp && mv $@.tmp $@
$(libserve_la_OBJECTS): src/serve/page_texts.h
BUILT_SOURCES += src/serve/page_texts.h
CLEANFILES += src/serve/page_texts.h
EXTRA_DIST += $(serve_texts)
if HAVE_MICROHTTPD
libserve_la_SOURCES += src/serve/http.c src/serve/http_access.c src/serve/http_access.h \
	src/serve/http_framing.c src/serve/http_framing.h
else
libserve_la_SOURCES += src/serve/http_none.c
endif

# The commands, for the program and for the tool that writes the manual
noinst_LIBRARIES = libcli.a
libcli_a_SOURCES = \
	src/bench/run_ops.c src/bench/run_ops.h \
	src/bench/time_attn.c \
	src/bench/time_bank.c src/bench/time_bank.h \
	src/bench/time_gather.c \
	src/bench/time_matmul.c \
	src/bench/time_ops.c src/bench/time_ops.h \
	src/bench/time_search.c \
	src/bench/time_index.c \
	src/bench/time_recurrence.c \
	src/bench/time_small.c \
	src/cli/commands/banks.c src/cli/commands/bench.c \
	src/cli/commands/bench_ops.c src/cli/commands/bench_ops.h \
	src/cli/commands/bench_ranks.c src/cli/commands/bench_ranks.h \
	src/cli/calibrate/calibrate.c src/cli/calibrate/calibrate.h \
	src/cli/calibrate/calibrate_filter.c \
	src/cli/calibrate/calibrate_layers.c \
	src/cli/calibrate/calibrate_lazy.c \
	src/cli/calibrate/calibrate_similarity.c \
	src/cli/calibrate/calibrate_trial.c src/cli/calibrate/calibrate_trial.h \
	src/cli/output/chart.c src/cli/output/chart.h \
	src/cli/chat/chat.c src/cli/chat/chat.h \
	src/cli/chat/chat_commands.c \
	src/cli/commands/complete.c \
	src/cli/cmd.c src/cli/cmd.h src/cli/cmd_table.c src/cli/context.c \
	src/cli/default_threads.c src/cli/default_threads.h \
	src/cli/commands/embed.c \
	src/cli/app.c src/cli/auto_policy.c src/cli/user_cache.c \
	src/cli/eval/eval.c src/cli/eval/eval.h \
	src/cli/eval/eval_attention.c \
	src/cli/eval/eval_continuation.c \
	src/cli/eval/eval_kld.c \
	src/cli/eval/eval_perplexity.c \
	src/cli/eval/eval_needle.c src/cli/eval/eval_passkey.c src/cli/eval/eval_ruler.c \
	src/cli/eval/eval_2stage.c src/cli/eval/eval_longbench.c src/cli/eval/eval_file.c \
	src/cli/eval/item_files.c src/cli/eval/made_up_items.c \
	src/cli/eval/task_run.c src/cli/eval/task_run.h \
	src/cli/generate.c \
	src/cli/chat/history.c src/cli/chat/history.h \
	src/cli/commands/info.c \
	src/cli/commands/info_backends.c src/cli/commands/info_backends.h \
	src/cli/commands/info_cpu.c src/cli/commands/info_cpu.h \
	src/cli/commands/info_plans.c src/cli/commands/info_plans.h \
	src/cli/interrupt.c \
	src/cli/chat/line.c src/cli/chat/line.h \
	src/cli/output/log.c src/cli/output/log.h \
	src/cli/options/matrix.c src/cli/options/matrix.h \
	src/cli/messages.c \
	src/cli/options/opts.c src/cli/options/opts.h \
	src/cli/options/opts_doc.c src/cli/options/opts_doc.h \
	src/cli/options/opts_files.c src/cli/options/opts_files.h \
	src/cli/options/opts_foreign.c src/cli/options/opts_foreign.h \
	src/cli/options/opts_table.c \
	src/cli/output/out.c \
	src/cli/output/progress.c src/cli/output/progress.h \
	src/cli/prompt.c src/cli/prompt.h \
	src/cli/ranked.c src/cli/ranked.h \
	src/cli/commands/quantize.c \
	src/cli/output/report.c \
	src/cli/output/row_writer.c src/cli/output/row_writer.h \
	src/cli/commands/run.c \
	src/cli/commands/serve.c \
	src/cli/commands/served_models.c src/cli/commands/served_models.h \
	src/cli/sampling.c \
	src/cli/chat/chat_conversation.c \
	src/cli/chat/chat_save.c \
	src/cli/chat/terminal.c src/cli/chat/terminal.h \
	src/cli/text.c \
	src/cli/chat/timeline.c \
	src/cli/commands/tokenize.c \
	src/cli/chat/wrap.c src/cli/chat/wrap.h
cli_libs = libcli.a libserve.la libeval.la libcore.la $(JANSSON_LIBS) $(UTF8PROC_LIBS)
if HAVE_LIBEDIT
libcli_a_SOURCES += src/cli/chat/line_edit.c
AM_CFLAGS += $(LIBEDIT_CFLAGS)
cli_libs += $(LIBEDIT_LIBS)
else
libcli_a_SOURCES += src/cli/chat/line_no_edit.c
endif

# The program
bin_PROGRAMS += ctxbank
ctxbank_SOURCES = src/cli/main.c
ctxbank_LDADD = $(cli_libs)

# Writes sections of the manual out of the program's tables (make update-docs)
check_PROGRAMS += tools/make-manual
tools_make_manual_SOURCES = src/cli/manual/make_manual.c \
	src/cli/manual/methods_doc.c src/cli/manual/methods_doc.h \
	src/cli/manual/opts_man.c src/cli/manual/opts_man.h
tools_make_manual_LDADD = $(cli_libs)
