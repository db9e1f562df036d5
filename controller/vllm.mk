# controller/vllm.mk - the vllm node: remote engines, their metrics, and who asks them.
noinst_LTLIBRARIES += controller/libengine.la

# What a page of metrics says, and how to get one. Links into trimtabd's node and into `trimtab inspect`.
controller_libengine_la_SOURCES = \
	controller/buffer.c controller/buffer.h \
	controller/cause.c controller/cause.h \
	controller/engine_table.c controller/engine_table.h \
	controller/engine_watch.c controller/engine_watch.h \
	controller/exposition.c controller/exposition.h \
	controller/fetch.c controller/fetch.h \
	controller/http_answer.c controller/http_answer.h \
	controller/scrape.c controller/scrape.h \
	controller/secret.c controller/secret.h
controller_libengine_la_CFLAGS = $(AM_CFLAGS) $(CURL_CFLAGS)
controller_libengine_la_LIBADD = $(CURL_LIBS) -lm

# The node and the fleet of them.
controller_libnode_la_SOURCES += \
	controller/fleet.c controller/fleet.h \
	controller/node_vllm.c controller/node_vllm.h controller/node_vllm_read.c controller/node_vllm_state.h
controller_libnode_la_CFLAGS += $(CURL_CFLAGS)
controller_libnode_la_LIBADD += controller/libvllmrpc.la
