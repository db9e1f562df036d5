# tests/storage/local.mk
if HAVE_CMOCKA
check_LTLIBRARIES += tests/storage/libplace.la
tests_storage_libplace_la_SOURCES = tests/storage/place.h tests/storage/place.c
tests_storage_libplace_la_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
STORAGE_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
STORAGE_TEST_LIBS = tests/storage/libplace.la storage/libstorage.la $(CMOCKA_LIBS)

storage_tests = tests/storage/test_store tests/storage/test_fault tests/storage/test_crash tests/storage/test_schema \
	tests/storage/test_rollup tests/storage/test_reader tests/storage/test_series tests/storage/test_export tests/storage/test_docs
check_PROGRAMS += $(storage_tests)
TESTS += $(storage_tests)

tests_storage_test_store_SOURCES = tests/storage/test_store.c
tests_storage_test_store_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_store_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_fault_SOURCES = tests/storage/test_fault.c tests/storage/io_fault.h tests/storage/io_fault.c
tests_storage_test_fault_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_fault_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_crash_SOURCES = tests/storage/test_crash.c
tests_storage_test_crash_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_crash_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_schema_SOURCES = tests/storage/test_schema.c
tests_storage_test_schema_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_schema_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_rollup_SOURCES = tests/storage/test_rollup.c
tests_storage_test_rollup_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_rollup_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_reader_SOURCES = tests/storage/test_reader.c
tests_storage_test_reader_CFLAGS = $(STORAGE_TEST_CFLAGS) $(JANSSON_CFLAGS)
tests_storage_test_reader_LDADD = $(STORAGE_TEST_LIBS) $(JANSSON_LIBS)

tests_storage_test_series_SOURCES = tests/storage/test_series.c
tests_storage_test_series_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_series_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_export_SOURCES = tests/storage/test_export.c
tests_storage_test_export_CFLAGS = $(STORAGE_TEST_CFLAGS) $(JANSSON_CFLAGS)
tests_storage_test_export_LDADD = $(STORAGE_TEST_LIBS) $(JANSSON_LIBS)

tests_storage_test_docs_SOURCES = tests/storage/test_docs.c
tests_storage_test_docs_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_docs_LDADD = $(STORAGE_TEST_LIBS)
endif
