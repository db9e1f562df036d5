# kernels/estimator.mk - estimators and allocation; included by kernels/local.mk.
# A convenience library: libtrimtab takes it whole, and the tests of these modules link it alone.
noinst_LTLIBRARIES += kernels/libestimator.la
kernels_libestimator_la_SOURCES = \
	kernels/allocate.c kernels/allocate_body.h \
	kernels/calibration.c kernels/calibration_body.h kernels/calibration.h \
	kernels/estimator.c kernels/estimator_body.h kernels/estimator_handle.h \
	kernels/estimator_blob.c \
	kernels/estimator_maths.h \
	kernels/online.c kernels/online_body.h kernels/online.h \
	kernels/parity.c kernels/parity_body.h kernels/parity.h
kernels_libestimator_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -fopenmp-simd

# The same on a device; tests/kernels/estimator.mk compiles it against the shim.
EXTRA_DIST += kernels/estimator.cu
if HAVE_CUDA
noinst_LTLIBRARIES += kernels/libestimator_cuda.la
kernels_libestimator_cuda_la_SOURCES = kernels/estimator.cu
-include kernels/$(DEPDIR)/estimator.cu.d
MOSTLYCLEANFILES += kernels/$(DEPDIR)/estimator.cu.d
endif
