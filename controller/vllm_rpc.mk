# controller/vllm_rpc.mk - steering a vLLM engine: the client of collective_rpc, and the worker extension that answers it.
noinst_LTLIBRARIES += controller/libvllmrpc.la

# Programs link controller/libhttp.la (snapshots) and libtrimtab beside it.
controller_libvllmrpc_la_SOURCES = \
	controller/vllm_fit.c controller/vllm_fit.h \
	controller/vllm_reply.c controller/vllm_reply.h \
	controller/vllm_rpc.c controller/vllm_rpc.h \
	controller/vllm_rpc_call.c controller/vllm_rpc_fit.c controller/vllm_rpc_internal.h controller/vllm_rpc_probe.c
controller_libvllmrpc_la_CFLAGS = $(AM_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS)
controller_libvllmrpc_la_LIBADD = controller/libengine.la $(CURL_LIBS) $(JANSSON_LIBS) -lm

# Installed for `pip install`, on the machine where vLLM runs.
vllmextensiondir = $(pkgdatadir)/vllm
dist_vllmextension_DATA = controller/vllm/pyproject.toml
vllmpackagedir = $(pkgdatadir)/vllm/trimtab_vllm
dist_vllmpackage_DATA = \
	controller/vllm/trimtab_vllm/__init__.py controller/vllm/trimtab_vllm/control.py \
	controller/vllm/trimtab_vllm/engine.py controller/vllm/trimtab_vllm/labels.py \
	controller/vllm/trimtab_vllm/worker.py
EXTRA_DIST += controller/vllm/test_worker.py
