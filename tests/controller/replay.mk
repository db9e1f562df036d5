# tests/controller/replay.mk - traces, their replay, and the benchmarks and the node over them.
dist_check_SCRIPTS += tests/controller/replay.test tests/controller/bench_trace.test tests/controller/replay_node.test
TESTS += tests/controller/replay.test tests/controller/bench_trace.test tests/controller/replay_node.test
EXTRA_DIST += \
	tests/controller/data/README.md \
	tests/controller/data/costs/mi355x-vllm-52362.txt \
	tests/controller/data/traces/chat-t0.txt.gz tests/controller/data/traces/chat-t1.0.txt.gz \
	tests/controller/data/traces/code-t0.txt.gz tests/controller/data/traces/code-t1.0.txt.gz \
	tests/controller/data/traces/json-t0.txt.gz tests/controller/data/traces/json-t1.0.txt.gz \
	tests/controller/data/traces/cost-bf16.txt tests/controller/data/traces/cost-flat.txt \
	tests/controller/data/traces/cost-q4_0.txt tests/controller/data/traces/cost-q8_0.txt

check_PROGRAMS += tests/controller/fuzz_trace
TESTS += tests/controller/fuzz_trace
tests_controller_fuzz_trace_SOURCES = tests/controller/fuzz_trace.c $(FUZZ_REPLAY)
tests_controller_fuzz_trace_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS)
tests_controller_fuzz_trace_LDADD = $(NODE_TEST_LIBS) $(ZLIB_LIBS)
EXTRA_DIST += tests/controller/corpus/trace

if HAVE_CMOCKA
check_PROGRAMS += tests/controller/test_trace
TESTS += tests/controller/test_trace
tests_controller_test_trace_SOURCES = tests/controller/test_trace.c
tests_controller_test_trace_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS)
tests_controller_test_trace_LDADD = $(NODE_TEST_LIBS) $(CMOCKA_LIBS)
endif
