# tests/controller/vllm.mk - remote engines: their metrics from captures, and nodes over stand-in servers.
ENGINE_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(CURL_CFLAGS)

check_PROGRAMS += tests/controller/fuzz_metrics
TESTS += tests/controller/fuzz_metrics
tests_controller_fuzz_metrics_SOURCES = tests/controller/fuzz_metrics.c $(FUZZ_REPLAY)
tests_controller_fuzz_metrics_CFLAGS = $(ENGINE_TEST_CFLAGS)
tests_controller_fuzz_metrics_LDADD = controller/libengine.la
EXTRA_DIST += tests/controller/corpus/metrics tests/controller/data/vllm

if HAVE_CMOCKA
check_PROGRAMS += tests/controller/test_engine
TESTS += tests/controller/test_engine
tests_controller_test_engine_SOURCES = tests/controller/test_engine.c
tests_controller_test_engine_CFLAGS = $(ENGINE_TEST_CFLAGS)
tests_controller_test_engine_LDADD = controller/libengine.la $(CMOCKA_LIBS)
endif

# trimtabd over stand-ins for engines, good and bad, one and many
dist_check_SCRIPTS += tests/controller/fleet.test
TESTS += tests/controller/fleet.test
EXTRA_DIST += tests/controller/fleet.py tests/controller/engine_server.py

# trimtab over the same stand-ins, without a daemon
dist_check_SCRIPTS += tests/tui/attach.test
TESTS += tests/tui/attach.test
