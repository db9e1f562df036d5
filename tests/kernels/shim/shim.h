/* shim.h - what tests may ask of the CUDA shim: thread orders, counters, faults. C and C++. */
#ifndef TESTS_KERNELS_SHIM_SHIM_H
#define TESTS_KERNELS_SHIM_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Order of the threads of a block, and of the blocks of a grid: 0 forward, 1 reverse, otherwise the
 * seed of a shuffle. Not heeded where threads are real. */
void shim_set_order(uint32_t order);
/* How many devices the machine has (1 at first), and their compute capability (90 at first). */
void shim_set_devices(int count, int capability);

/* Events since the start. */
struct shim_counters {
    uint64_t launches, copies, synchronisations, allocations, frees;
    uint64_t divergent;  /* launches that failed at a barrier or an exchange */
    uint64_t live_bytes; /* of device memory not freed */
};
struct shim_counters shim_count(void);

/* The n-th call of the runtime from now on fails with an error of its kind; 0 for none. Returns how
 * many calls were still to go when this was called. */
unsigned shim_fail(unsigned n);

/* Faults seeded into the kernels, for the suite to find. SHIM_RACE: an atomic operation reads, lets
 * the others run, and writes. SHIM_NO_BARRIER: the barrier at the site'th place where one is first
 * met (from 0) is left out. SHIM_SHORT_MEMORY: device memory ends a byte early. */
enum shim_seed { SHIM_SOUND = 0, SHIM_RACE, SHIM_NO_BARRIER, SHIM_SHORT_MEMORY };
void shim_seed(enum shim_seed seed, unsigned site);
/* Places where a barrier was met so far. */
unsigned shim_barrier_sites(void);

#ifdef __cplusplus
}
#endif
#endif
