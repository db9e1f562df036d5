/* lm_synthetic.h - what tests may ask of the synthetic model beside lm.h. */
#ifndef TESTS_SUPPORT_LM_SYNTHETIC_H
#define TESTS_SUPPORT_LM_SYNTHETIC_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lm;

/* Where a synthetic model whose path ends in ":deviceN" leaves its logits: set by the start-up of
 * tests/support/lm_synthetic_device.cc in programs that are linked with it, else NULL. */
struct lm_synthetic_device {
    float *(*allocate)(size_t count); /* NULL when memory is out */
    void (*release)(float *rows);     /* NULL-safe */
    bool (*upload)(float *to, const float *from, size_t count);
};
extern const struct lm_synthetic_device *lm_synthetic_device;

long lm_synthetic_decodes(const struct lm *lm); /* forward passes so far */
int lm_synthetic_used(const struct lm *lm);     /* KV cells in use */
/* Rows that were read so far: from host memory, and from the device. */
struct synthetic_reads {
    long host, device;
};
struct synthetic_reads lm_synthetic_reads(const struct lm *lm);

#ifdef __cplusplus
}
#endif

#endif
