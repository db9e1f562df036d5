# tests/controller/load.mk - the load benchmark over the synthetic model, and its rows.
if HAVE_CMOCKA
check_PROGRAMS += tests/storage/test_bench
TESTS += tests/storage/test_bench
tests_storage_test_bench_SOURCES = tests/storage/test_bench.c
tests_storage_test_bench_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_bench_LDADD = $(STORAGE_TEST_LIBS)
endif

# trimtab-bench itself with the synthetic engine in place of libllama.
check_PROGRAMS += tests/support/trimtab_bench_synthetic
tests_support_trimtab_bench_synthetic_SOURCES = $(trimtab_bench_SOURCES) $(SYNTHETIC)
tests_support_trimtab_bench_synthetic_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(CURL_CFLAGS)
tests_support_trimtab_bench_synthetic_LDADD = $(NODE_TEST_LIBS) controller/libclient.la
dist_check_SCRIPTS += tests/controller/bench_load.test
TESTS += tests/controller/bench_load.test
