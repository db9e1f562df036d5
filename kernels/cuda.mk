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

cuda_sources = kernels/cuda_device.cu kernels/cuda_device.h
EXTRA_DIST += $(cuda_sources)

if HAVE_CUDA
noinst_LTLIBRARIES += kernels/libcuda_device.la
kernels_libcuda_device_la_SOURCES = $(cuda_sources)
-include kernels/$(DEPDIR)/cuda_device.cu.d
MOSTLYCLEANFILES += kernels/$(DEPDIR)/cuda_device.cu.d
endif
