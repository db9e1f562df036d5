/* handle.h - the handle of libtrimtab: the chosen loops, the workspace and the last error.
 *
 * Everything a call needs is allocated by tt_open; the limits of the workspace are the limits of
 * the calls. Internal to kernels/.
 */
#ifndef KERNELS_HANDLE_H
#define KERNELS_HANDLE_H

#include "kernels/cuda_backend.h"
#include "kernels/row_ops.h"
#include "kernels/select.h"
#include "kernels/trimtab.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the last tt_row_statistics left: chunk partials of its rows, so that a draw from one of them
 * re-reads a single chunk. A row is found again by its address, its temperature and its statistics.
 */
struct row_memory {
    const char *data;
    enum tt_dtype dtype;
    size_t rows, vocab, stride;
    /* (max_rows, chunks of the handle's vocabulary); with backend cuda on the device */
    struct row_partial *partials;
    float *inverse_temperature; /* (max_rows) */
    struct tt_row_stats *stats; /* (max_rows) */
};

struct tt {
    struct cuda_backend *cuda; /* NULL: the CPU, and then the rest */
    const struct row_ops *ops;
    size_t vocab, max_rows;
    struct row_memory memory;
    struct row_partial *partials;       /* (chunks) of the row at hand */
    struct row_partial *draft_partials; /* (chunks) of the draft row beside it */
    float *masses;                      /* (chunks) */
    double *weights;                    /* (max(chunks, ROW_GROUP)) for one draw */
    float *chunk;                       /* (ROW_CHUNK) weights of one chunk */
    float *group_max;                   /* (groups) largest logits */
    float *group_bound;                 /* (groups) best conceivable scores of a race */
    float *group_first;                 /* (groups) earliest arrivals of a race, and who has them */
    uint32_t *group_place;              /* (groups) */
    struct candidate *candidates;       /* (vocab) of a transform's filters */
    char message[256];
};

/* Store the message and return the status, as in: return handle_error(handle, TT_EINVAL, "..."). */
int handle_error(tt *handle, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Check the shape of rows against themselves and the handle. 0 or a status with its message. */
int handle_check_rows(tt *handle, const struct tt_rows *rows);
/* 0, or a status: rows of `width` bytes an element must lie within the address space. */
int handle_check_span(tt *handle, size_t rows, size_t width, size_t stride, size_t vocab);
/* 0, or a status: an inverse temperature must be positive and finite. */
int handle_check_temperature(tt *handle, float inverse_temperature);

#ifdef __cplusplus
}
#endif

#endif
