# tests/controller/device.mk - the loop over logits on a device: tests/controller/test_loop.c once more, with the CUDA shim of
# tests/kernels/cuda.mk behind backend "cuda" and under the synthetic model.
if HAVE_CMOCKA
check_PROGRAMS += tests/controller/shim_loop
TESTS += tests/controller/shim_loop
tests_controller_shim_loop_SOURCES = $(tests_controller_test_loop_SOURCES) tests/support/lm_synthetic_device.cc
tests_controller_shim_loop_CPPFLAGS = $(shim_cppflags) -DTEST_PLACE='":device0"'
tests_controller_shim_loop_CFLAGS = $(tests_controller_test_loop_CFLAGS)
tests_controller_shim_loop_CXXFLAGS = $(shim_cxxflags)
tests_controller_shim_loop_LDADD = controller/libnode.la controller/libhttp.la controller/libplan.la \
	tests/kernels/libtrimtab_shim.la storage/libstorage.la \
	$(MHD_LIBS) $(JANSSON_LIBS) $(SQLITE_LIBS) $(INIH_LIBS) $(CURL_LIBS) $(CMOCKA_LIBS)
endif
