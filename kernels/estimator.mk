# kernels/estimator.mk - estimators and allocation; included by kernels/local.mk.
# A convenience library: libtrimtab takes it whole, and the tests of these modules link it alone.
noinst_LTLIBRARIES += kernels/libestimator.la
kernels_libestimator_la_SOURCES = \
	kernels/allocate.c \
	kernels/calibration.c kernels/calibration.h \
	kernels/estimator.c kernels/estimator_handle.h \
	kernels/estimator_blob.c \
	kernels/host_math.h \
	kernels/online.c kernels/online.h \
	kernels/parity.c kernels/parity.h
kernels_libestimator_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
