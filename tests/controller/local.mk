# tests/controller/local.mk - the loop and the daemon over the synthetic model (tests/support/lm_synthetic.c).
SYNTHETIC = tests/support/lm_synthetic.c tests/support/lm_synthetic.h
NODE_TEST_LIBS = controller/libnode.la controller/libhttp.la controller/libplan.la libtrimtab.la storage/libstorage.la \
	$(MHD_LIBS) $(JANSSON_LIBS) $(SQLITE_LIBS) $(INIH_LIBS) $(CURL_LIBS)

# The daemon itself with the synthetic engine in place of libllama.
check_PROGRAMS += tests/support/trimtabd_synthetic
tests_support_trimtabd_synthetic_SOURCES = controller/main.c $(SYNTHETIC)
tests_support_trimtabd_synthetic_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_support_trimtabd_synthetic_LDADD = $(NODE_TEST_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/controller/test_loop
TESTS += tests/controller/test_loop
tests_controller_test_loop_SOURCES = tests/controller/test_loop.c $(SYNTHETIC)
tests_controller_test_loop_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_controller_test_loop_LDADD = $(NODE_TEST_LIBS) $(CMOCKA_LIBS)
endif

# The promise on real models.
if HAVE_LLAMA
check_PROGRAMS += tests/e2e/lossless
tests_e2e_lossless_SOURCES = tests/e2e/lossless.c
tests_e2e_lossless_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_e2e_lossless_LDADD = controller/liblm.la $(NODE_TEST_LIBS) $(LLAMA_LIBS)
SUITE_E2E += tests/e2e/lossless
endif
EXTRA_DIST += tests/e2e/lossless.c

dist_check_SCRIPTS += tests/controller/daemon.test
TESTS += tests/controller/daemon.test
