# controller/node.mk - the loop, the llama node and the daemon.
noinst_LTLIBRARIES += controller/libnode.la controller/liblm.la

controller_libnode_la_SOURCES = \
	controller/given.c controller/given.h \
	controller/inprocess.c controller/inprocess.h \
	controller/admit.c \
	controller/cause.c controller/cause.h \
	controller/configuration.c controller/configuration.h \
	controller/draft.c \
	controller/library.c controller/library.h \
	controller/lm.h controller/lm_batch.c \
	controller/logprobs.c controller/logprobs.h \
	controller/loop.c controller/loop.h \
	controller/nearest.c controller/nearest.h \
	controller/node.h \
	controller/node_llama.c controller/node_llama.h \
	controller/node_llama_open.c controller/node_llama_open.h \
	controller/node_llama_snapshot.c controller/node_llama_state.h \
	controller/notify.c controller/notify.h \
	controller/number.c controller/number.h \
	controller/observe.c \
	controller/pair.c controller/pair.h \
	controller/policy.c controller/policy.h \
	controller/profile.c controller/profile.h \
	controller/queue.c controller/queue.h \
	controller/rates.c controller/rates.h \
	controller/record.c controller/record.h \
	controller/sampler.c \
	controller/slot.c controller/slot.h \
	controller/strata.c controller/strata.h \
	controller/tally.h \
	controller/text.c controller/text.h \
	controller/ticks.h \
	controller/verify.c \
	controller/watchdog.c controller/watchdog.h
controller_libnode_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(INIH_CFLAGS)

# The model engine: exactly one implementation of lm.h.
if HAVE_LLAMA
controller_liblm_la_SOURCES = controller/lm_llama.c
controller_liblm_la_CFLAGS = $(AM_CFLAGS) $(LLAMA_CFLAGS)
else
controller_liblm_la_SOURCES = controller/lm_none.c
endif
EXTRA_DIST += controller/lm_llama.c controller/lm_none.c

TRIMTABD_LIBS = controller/libnode.la controller/libhttp.la controller/libplan.la storage/libstorage.la libtrimtab.la \
	$(MHD_LIBS) $(JANSSON_LIBS) $(SQLITE_LIBS) $(INIH_LIBS) $(CURL_LIBS)

sbin_PROGRAMS += trimtabd
trimtabd_SOURCES = controller/main.c
trimtabd_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
trimtabd_LDADD = controller/liblm.la $(TRIMTABD_LIBS) $(LLAMA_LIBS)

pkglibexec_PROGRAMS += trimtab-bench
trimtab_bench_SOURCES = \
	controller/bench.h controller/bench_common.c controller/bench_convert.c controller/bench_loop.c \
	controller/bench_main.c controller/bench_traffic.c
trimtab_bench_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(CURL_CFLAGS)
trimtab_bench_LDADD = controller/liblm.la $(TRIMTABD_LIBS) $(LLAMA_LIBS)
