# tests/controller/rpc.mk - the client of collective_rpc, the worker extension, and what a real vLLM says to both.
RPC_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS)
RPC_TEST_LIBS = controller/libvllmrpc.la controller/libhttp.la libtrimtab.la $(CURL_LIBS) $(JANSSON_LIBS)

check_PROGRAMS += tests/controller/rpc_drive tests/controller/fuzz_rpc
tests_controller_rpc_drive_SOURCES = tests/controller/rpc_drive.c
tests_controller_rpc_drive_CFLAGS = $(RPC_TEST_CFLAGS)
tests_controller_rpc_drive_LDADD = $(RPC_TEST_LIBS)

tests_controller_fuzz_rpc_SOURCES = tests/controller/fuzz_rpc.c $(FUZZ_REPLAY)
tests_controller_fuzz_rpc_CFLAGS = $(RPC_TEST_CFLAGS)
tests_controller_fuzz_rpc_LDADD = $(RPC_TEST_LIBS)
TESTS += tests/controller/fuzz_rpc
EXTRA_DIST += tests/controller/corpus/rpc

dist_check_SCRIPTS += tests/vllm/extension.test tests/vllm/rpc.test
TESTS += tests/vllm/extension.test tests/vllm/rpc.test

# A real vLLM, on a CPU: heavy, run by ./bootstrap check-vllm, which sets it up. Naming the tests under a condition that is
# never true makes Automake write their rules.
SUITE_VLLM = tests/vllm/classes.test tests/vllm/server.test
dist_check_SCRIPTS += $(SUITE_VLLM)
if TESTS_INCLUDE_E2E
TESTS += $(SUITE_VLLM)
endif
check-vllm: all
	@$(MAKE) $(AM_MAKEFLAGS) -j1 check TESTS='$(SUITE_VLLM)'
.PHONY: check-vllm
EXTRA_DIST += tests/vllm/convert.py tests/vllm/requirements.txt
EXTRA_DIST += tests/vllm/fake_vllm.py tests/vllm/real_objects.py tests/vllm/unittest_tap.py
