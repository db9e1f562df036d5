# controller/http.mk - the HTTP front (libhttp) and what a client of the control API links (libclient).
noinst_LTLIBRARIES += controller/libhttp.la controller/libclient.la

controller_libclient_la_SOURCES = controller/buffer.c controller/buffer.h controller/cause.c controller/cause.h \
	controller/output.c controller/output.h \
	controller/client.c controller/client.h controller/nearest.c controller/nearest.h \
	controller/number.c controller/number.h \
	controller/secret.c controller/secret.h controller/sse.c controller/sse.h \
	controller/snapshot.c controller/snapshot.h
controller_libclient_la_CFLAGS = $(AM_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS)
controller_libclient_la_LIBADD = $(CURL_LIBS) $(JANSSON_LIBS)

# Uses storage/reader.h and a language model's text functions: programs link storage/libstorage.la and an lm beside it.
controller_libhttp_la_SOURCES = \
	controller/access.c controller/access.h \
	controller/api.c controller/api.h controller/api_common.h controller/api_history.c controller/api_past.c \
	controller/buffer.c controller/buffer.h \
	controller/cause.c controller/cause.h \
	controller/output.c controller/output.h \
	controller/exchange.c controller/exchange.h \
	controller/generate.c controller/generate.h \
	controller/json_number.h \
	controller/ratio.h \
	controller/listen.c controller/listen.h \
	controller/metrics.c controller/metrics.h \
	controller/number.c controller/number.h \
	controller/openai.h controller/openai_read.c controller/openai_write.c \
	controller/reply.c controller/reply.h \
	controller/request.c controller/request.h controller/request_node.h \
	controller/routes.c controller/routes.h \
	controller/secret.c controller/secret.h \
	controller/server.c controller/server.h \
	controller/snapshot.c controller/snapshot.h \
	controller/traffic.c controller/traffic.h \
	controller/watch.c controller/watch.h \
	controller/work.c controller/work.h
controller_libhttp_la_CFLAGS = $(AM_CFLAGS) $(MHD_CFLAGS) $(JANSSON_CFLAGS)
controller_libhttp_la_LIBADD = $(MHD_LIBS) $(JANSSON_LIBS)

include controller/vllm.mk
include controller/vllm_rpc.mk
