/* lm_synthetic.h - what tests may ask of the synthetic model beside lm.h. */
#ifndef TESTS_SUPPORT_LM_SYNTHETIC_H
#define TESTS_SUPPORT_LM_SYNTHETIC_H

struct lm;

long lm_synthetic_decodes(const struct lm *lm); /* forward passes so far */
int lm_synthetic_used(const struct lm *lm);     /* KV cells in use */

#endif
