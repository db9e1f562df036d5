# controller/http.mk - the HTTP front (libhttp) and what a client of the control API links (libclient).
noinst_LTLIBRARIES += controller/libhttp.la controller/libclient.la

controller_libclient_la_SOURCES = controller/cause.c controller/cause.h controller/snapshot.c controller/snapshot.h
controller_libclient_la_CFLAGS = $(AM_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS)
controller_libclient_la_LIBADD = $(CURL_LIBS) $(JANSSON_LIBS)

controller_libhttp_la_SOURCES = controller/cause.c controller/cause.h controller/snapshot.c controller/snapshot.h \
	controller/request.c controller/request.h controller/request_node.h controller/node.h
controller_libhttp_la_CFLAGS = $(AM_CFLAGS) $(MHD_CFLAGS) $(JANSSON_CFLAGS)
controller_libhttp_la_LIBADD = $(MHD_LIBS) $(JANSSON_LIBS)
