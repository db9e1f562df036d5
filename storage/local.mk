# storage/local.mk - what trimtab remembers: the SQLite store, its writer and its readers.
noinst_LTLIBRARIES += storage/libstorage.la
storage_libstorage_la_SOURCES = \
	storage/store.h storage/store.c storage/reader.h \
	storage/writer.h storage/writer.c storage/queue.h storage/queue.c \
	storage/rows.h storage/rows.c storage/rollup.h storage/rollup.c storage/retention.h storage/retention.c \
	storage/schema.h storage/schema.c storage/views.h storage/views.c \
	storage/file.h storage/file.c storage/sql.h storage/sql.c \
	storage/reader_internal.h storage/reader.c storage/print.c \
	storage/bench.h storage/bench.c \
	storage/export.c storage/series.c
storage_libstorage_la_CFLAGS = $(AM_CFLAGS) $(SQLITE_CFLAGS)
storage_libstorage_la_LIBADD = $(SQLITE_LIBS)
EXTRA_DIST += docs/sql.md
