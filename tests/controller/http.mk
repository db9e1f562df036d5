# tests/controller/http.mk - the HTTP front against an echo node, through real sockets.
HTTP_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS) $(MHD_CFLAGS)
HTTP_TEST_LIBS = controller/libhttp.la controller/libclient.la storage/libstorage.la \
	$(CURL_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS)
# the plain driver of every fuzz target
FUZZ_REPLAY = tests/support/fuzz_replay.c tests/support/fuzz_replay.h
ECHO_SOURCES = tests/controller/node_echo.c tests/controller/node_echo.h tests/controller/node_echo_lm.c

check_PROGRAMS += tests/controller/http_echo tests/controller/fuzz_openai
tests_controller_http_echo_SOURCES = tests/controller/http_echo.c $(ECHO_SOURCES)
tests_controller_http_echo_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_http_echo_LDADD = controller/libhttp.la storage/libstorage.la $(JANSSON_LIBS)

tests_controller_fuzz_openai_SOURCES = tests/controller/fuzz_openai.c $(FUZZ_REPLAY)
tests_controller_fuzz_openai_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_fuzz_openai_LDADD = controller/libhttp.la $(JANSSON_LIBS)

dist_check_SCRIPTS += tests/controller/http_wire.test
TESTS += tests/controller/http_wire.test tests/controller/fuzz_openai
EXTRA_DIST += tests/controller/http_wire.py tests/controller/corpus/openai

if HAVE_CMOCKA
HTTP_TESTS = tests/controller/test_snapshot tests/controller/test_request tests/controller/test_client \
	tests/controller/test_history
check_PROGRAMS += $(HTTP_TESTS)
TESTS += $(HTTP_TESTS)
endif
tests_controller_test_snapshot_SOURCES = tests/controller/test_snapshot.c
tests_controller_test_snapshot_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_test_snapshot_LDADD = $(HTTP_TEST_LIBS)
tests_controller_test_request_SOURCES = tests/controller/test_request.c
tests_controller_test_request_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_test_request_LDADD = $(HTTP_TEST_LIBS)
tests_controller_test_client_SOURCES = tests/controller/test_client.c $(ECHO_SOURCES)
tests_controller_test_client_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_test_client_LDADD = $(HTTP_TEST_LIBS)
tests_controller_test_history_SOURCES = tests/controller/test_history.c $(ECHO_SOURCES)
tests_controller_test_history_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_test_history_LDADD = $(HTTP_TEST_LIBS)

include tests/controller/vllm.mk
include tests/controller/rpc.mk
