# kernels/cuda.mk - the CUDA backend; included by kernels/local.mk.
# A .cu file compiles twice. Here with nvcc: one code object a GPU generation, and PTX for later ones; -fmad=false, so that
# the bits are those of the CPU objects. And in tests/kernels/cuda.mk as C++ against the shim: a file
# tests/kernels/shim/cuda_NAME.cc that includes kernels/cuda_NAME.cu.
# The runtime is linked statically: the library loads, and trimtabd starts, on machines without a driver.
SUFFIXES += .cu .lo
nvcc_flags = -std=c++17 -O2 -fmad=false \
	-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
	-gencode arch=compute_100,code=sm_100 -gencode arch=compute_100,code=compute_100
.cu.lo:
	$(AM_V_GEN)$(MKDIR_P) $(@D)/$(DEPDIR) && $(LIBTOOL) $(AM_V_lt) --tag=CC --mode=compile $(NVCC) $(nvcc_flags) \
		$(DEFS) $(DEFAULT_INCLUDES) -I$(top_srcdir) $(NVCCFLAGS) --compiler-options=-fPIC,-fvisibility=hidden \
		-MMD -MF $(@D)/$(DEPDIR)/$(*F).cu.d -prefer-non-pic -c -o $@ $<

cuda_headers = kernels/cuda_body.h kernels/cuda_device.h kernels/cuda_step.h kernels/cuda_workspace.h
cuda_sources = \
	kernels/cuda_api.cu \
	kernels/cuda_backend.cu \
	kernels/cuda_device.cu \
	kernels/cuda_rows.cu \
	kernels/cuda_transform.cu \
	kernels/cuda_verify.cu
EXTRA_DIST += $(cuda_sources) $(cuda_headers) kernels/cuda_none.c docs/cuda.md

kernels_libtrimtab_core_la_SOURCES =
kernels_libtrimtab_core_la_LIBADD = kernels/libtrimtab_base.la
if HAVE_CUDA
noinst_LTLIBRARIES += kernels/libcuda.la
kernels_libcuda_la_SOURCES = $(cuda_sources) $(cuda_headers)
kernels_libtrimtab_core_la_LIBADD += kernels/libcuda.la kernels/libestimator_cuda.la $(CUDA_LIBS)
-include kernels/$(DEPDIR)/cuda_api.cu.d
-include kernels/$(DEPDIR)/cuda_backend.cu.d
-include kernels/$(DEPDIR)/cuda_device.cu.d
-include kernels/$(DEPDIR)/cuda_rows.cu.d
-include kernels/$(DEPDIR)/cuda_transform.cu.d
-include kernels/$(DEPDIR)/cuda_verify.cu.d
MOSTLYCLEANFILES += kernels/$(DEPDIR)/cuda_*.cu.d
else
kernels_libtrimtab_core_la_SOURCES += kernels/cuda_none.c
kernels_libtrimtab_core_la_CFLAGS = $(kernels_cflags)
endif
