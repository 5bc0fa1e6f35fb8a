# Manual pages, what writes parts of them from the option table, and completion for shells
dist_man_MANS += \
	man/ctxbank-bank.1 \
	man/ctxbank-bank.5 \
	man/ctxbank-bench.1 \
	man/ctxbank-calibrate.1 \
	man/ctxbank-chat.1 \
	man/ctxbank-embed.1 \
	man/ctxbank-eval.1 \
	man/ctxbank-grammar.7 \
	man/ctxbank-info.1 \
	man/ctxbank-policies.7 \
	man/ctxbank-quantize.1 \
	man/ctxbank-run.1 \
	man/ctxbank-serve.1 \
	man/ctxbank-tokenize.1 \
	man/ctxbank.1 \
	man/ctxbank.3

bash_completiondir = $(datadir)/bash-completion/completions
dist_bash_completion_DATA = completions/bash/ctxbank
zsh_completiondir = $(datadir)/zsh/site-functions
dist_zsh_completion_DATA = completions/zsh/_ctxbank
fish_completiondir = $(datadir)/fish/vendor_completions.d
dist_fish_completion_DATA = completions/fish/ctxbank.fish

EXTRA_DIST += tools/update-docs
.PHONY: update-docs
update-docs: ctxbank$(EXEEXT)
	$(srcdir)/tools/update-docs ./ctxbank$(EXEEXT)
