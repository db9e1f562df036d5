# tests/controller/http.mk - the HTTP front against an echo node, through real sockets.
HTTP_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS) $(MHD_CFLAGS)
HTTP_TEST_LIBS = controller/libhttp.la controller/libclient.la storage/libstorage.la $(CURL_LIBS) $(JANSSON_LIBS)
ECHO_SOURCES = tests/controller/node_echo.c tests/controller/node_echo.h tests/controller/node_echo_lm.c

check_PROGRAMS += tests/controller/http_echo
tests_controller_http_echo_SOURCES = tests/controller/http_echo.c $(ECHO_SOURCES)
tests_controller_http_echo_CFLAGS = $(HTTP_TEST_CFLAGS)
tests_controller_http_echo_LDADD = $(HTTP_TEST_LIBS)

dist_check_SCRIPTS += tests/controller/http_wire.test
TESTS += tests/controller/http_wire.test
EXTRA_DIST += tests/controller/http_wire.py
