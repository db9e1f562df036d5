# tests/controller/load.mk - the load benchmark over the synthetic model, and its rows.
if HAVE_CMOCKA
check_PROGRAMS += tests/storage/test_bench
TESTS += tests/storage/test_bench
tests_storage_test_bench_SOURCES = tests/storage/test_bench.c
tests_storage_test_bench_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_bench_LDADD = $(STORAGE_TEST_LIBS)
endif
