# kernels/local.mk - libtrimtab: the shared library, and the convenience libraries it is made of.
# The row loops are compiled once per instruction set; nothing may contract a multiplication and an addition, so that all
# of them give the same bits. -fno-trapping-math changes no value: it lets a comparison become a mask.
kernels_cflags = $(AM_CFLAGS) -fvisibility=hidden -ffp-contract=off -fno-trapping-math -fno-math-errno -fopenmp-simd
kernels_cppflags = $(AM_CPPFLAGS)

noinst_LTLIBRARIES += kernels/librows_baseline.la kernels/libtrimtab_base.la kernels/libtrimtab_core.la
row_isa_objects = kernels/librows_baseline.la
row_isa_sources = kernels/rows_cpu.c kernels/row_ops.h kernels/row_body.h kernels/race_body.h kernels/lanes.h kernels/maths.h kernels/philox.h

kernels_librows_baseline_la_SOURCES = $(row_isa_sources)
kernels_librows_baseline_la_CPPFLAGS = $(kernels_cppflags) -DROW_OPS=row_ops_baseline -DROW_ISA='"baseline"'
kernels_librows_baseline_la_CFLAGS = $(kernels_cflags) $(ROW_CFLAGS)

if HOST_X86_64
kernels_cppflags += -DROW_OPS_X86=1
noinst_LTLIBRARIES += kernels/librows_avx2.la kernels/librows_avx512.la
row_isa_objects += kernels/librows_avx2.la kernels/librows_avx512.la

kernels_librows_avx2_la_SOURCES = $(row_isa_sources)
kernels_librows_avx2_la_CPPFLAGS = $(kernels_cppflags) -DROW_OPS=row_ops_avx2 -DROW_ISA='"avx2"'
kernels_librows_avx2_la_CFLAGS = $(kernels_cflags) $(ROW_CFLAGS) -march=x86-64-v3

kernels_librows_avx512_la_SOURCES = $(row_isa_sources)
kernels_librows_avx512_la_CPPFLAGS = $(kernels_cppflags) -DROW_OPS=row_ops_avx512 -DROW_ISA='"avx512"'
kernels_librows_avx512_la_CFLAGS = $(kernels_cflags) $(ROW_CFLAGS) -march=x86-64-v4 -mprefer-vector-width=512
endif

# All but backend cuda: tests/kernels/cuda.mk puts the shim's beside it.
kernels_libtrimtab_base_la_SOURCES = \
	kernels/choice.h kernels/choice_body.h kernels/law_body.h kernels/transform_body.h kernels/verify_body.h \
	kernels/cuda_backend.h \
	kernels/handle.c kernels/handle.h \
	kernels/philox.c \
	kernels/race.c kernels/race.h \
	kernels/rows.c kernels/rows.h \
	kernels/sample.c kernels/sample.h \
	kernels/select.c kernels/select.h \
	kernels/transform.c kernels/transform.h \
	kernels/trimtab.h \
	kernels/verify.c kernels/verify_rows.h \
	kernels/verify_core.c kernels/verify_core.h \
	kernels/verify_tables.c
kernels_libtrimtab_base_la_CPPFLAGS = $(kernels_cppflags)
kernels_libtrimtab_base_la_CFLAGS = $(kernels_cflags)
kernels_libtrimtab_base_la_LIBADD = $(row_isa_objects) kernels/libestimator.la

include kernels/cuda.mk

lib_LTLIBRARIES += libtrimtab.la
libtrimtab_la_SOURCES =
libtrimtab_la_LIBADD = kernels/libtrimtab_core.la
libtrimtab_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined -Wl,--version-script=$(top_srcdir)/kernels/libtrimtab.map
libtrimtab_la_DEPENDENCIES = kernels/libtrimtab_core.la $(top_srcdir)/kernels/libtrimtab.map
include_HEADERS += kernels/trimtab.h kernels/trimtab_cuda.h
pkgconfig_DATA += kernels/trimtab.pc
EXTRA_DIST += kernels/libtrimtab.map

include kernels/estimator.mk
