# docs/local.mk - man pages, documents, completions and the systemd unit.
dist_man_MANS += docs/trimtab.1 docs/trimtabd.8 docs/trimtab.conf.5 docs/libtrimtab.3
dist_doc_DATA = README.md docs/architecture.md docs/api.md docs/benchmarks.md docs/comparison.md docs/estimator.md docs/planner.md docs/kernels.md docs/replay.md docs/style.md docs/vllm.md docs/trimtab.conf.example
EXTRA_DIST += docs/completion/trimtab.bash docs/trimtabd.service.in

exampledir = $(docdir)/examples
dist_example_DATA = docs/examples/trim.c

zshcompletiondir = $(datadir)/zsh/site-functions
dist_zshcompletion_DATA = docs/completion/_trimtab

# bash looks a completion up by the command's name: one file serves both.
bashcompletiondir = $(datadir)/bash-completion/completions
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(bashcompletiondir)'
	for name in trimtab trimtabd; do \
	    $(INSTALL_DATA) '$(srcdir)/docs/completion/trimtab.bash' '$(DESTDIR)$(bashcompletiondir)'/$$name || exit 1; \
	done
uninstall-local:
	for name in trimtab trimtabd; do rm -f '$(DESTDIR)$(bashcompletiondir)'/$$name; done

if INSTALL_UNIT
systemdsystemunit_DATA = docs/trimtabd.service
endif
docs/trimtabd.service: docs/trimtabd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) docs && \
	sed -e 's|@sbindir[@]|$(sbindir)|g; s|@sysconfdir[@]|$(sysconfdir)|g' '$(srcdir)/docs/trimtabd.service.in' > $@.part && \
	mv $@.part $@
CLEANFILES += docs/trimtabd.service docs/trimtabd.service.part
