# tests/storage/local.mk
if HAVE_CMOCKA
check_LTLIBRARIES += tests/storage/libplace.la
tests_storage_libplace_la_SOURCES = tests/storage/place.h tests/storage/place.c
tests_storage_libplace_la_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
STORAGE_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
STORAGE_TEST_LIBS = tests/storage/libplace.la storage/libstorage.la $(CMOCKA_LIBS)

storage_tests = tests/storage/test_store tests/storage/test_fault
check_PROGRAMS += $(storage_tests)
TESTS += $(storage_tests)

tests_storage_test_store_SOURCES = tests/storage/test_store.c
tests_storage_test_store_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_store_LDADD = $(STORAGE_TEST_LIBS)

tests_storage_test_fault_SOURCES = tests/storage/test_fault.c tests/storage/io_fault.h tests/storage/io_fault.c
tests_storage_test_fault_CFLAGS = $(STORAGE_TEST_CFLAGS)
tests_storage_test_fault_LDADD = $(STORAGE_TEST_LIBS)
endif
