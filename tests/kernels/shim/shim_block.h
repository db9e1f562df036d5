// shim_block.h - the device half of the shim: runs the threads of a block, and lends device memory.
#ifndef TESTS_KERNELS_SHIM_SHIM_BLOCK_H
#define TESTS_KERNELS_SHIM_SHIM_BLOCK_H

#include "tests/kernels/shim/cuda_runtime.h"

namespace shim
{

extern uint32_t thread_order; // 0 forward, 1 reverse, otherwise a seed

// Whether the barrier at this place is to be left out.
bool barrier_is_seeded(const char *file, int line);

// Run every block of the grid; false when a block failed at a barrier or an exchange.
bool run_grid(dim3 grid, dim3 block, const std::function<void()> &body);

// The word every thread of a warp gets from one exchange. values (32), operands (32).
uint64_t exchanged(exchange kind, const uint64_t *values, unsigned operand, unsigned lane);

// Device memory, at 256 bytes. Without a sanitizer, and with the address sanitizer, a region can be
// closed: whoever touches it then is caught.
void *region_new(size_t bytes, size_t *mapped);
void region_free(void *memory, size_t mapped);
void region_access(uintptr_t at, size_t bytes, bool allowed);

} // namespace shim

#endif
