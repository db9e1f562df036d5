// shim_memory.cc - device memory that its host must not touch, and the arithmetic of an exchange.
#include "tests/kernels/shim/shim_block.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace shim
{

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

void *region_new(size_t bytes, size_t *mapped)
{
    void *memory = nullptr;
    *mapped = bytes;
    return posix_memalign(&memory, 256, bytes) == 0 ? memory : nullptr;
}

void region_free(void *memory, size_t)
{
    std::free(memory);
}

void region_access(uintptr_t at, size_t bytes, bool allowed)
{
#ifdef __SANITIZE_ADDRESS__
    void *memory = reinterpret_cast<void *>(at);
    if (allowed)
        __asan_unpoison_memory_region(memory, bytes);
    else
        __asan_poison_memory_region(memory, bytes);
#else
    (void)at;
    (void)bytes;
    (void)allowed;
#endif
}

#else

static size_t whole_pages(size_t bytes)
{
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

void *region_new(size_t bytes, size_t *mapped)
{
    *mapped = whole_pages(bytes);
    void *memory = mmap(nullptr, *mapped, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

void region_free(void *memory, size_t mapped)
{
    munmap(memory, mapped);
}

void region_access(uintptr_t at, size_t bytes, bool allowed)
{
    mprotect(reinterpret_cast<void *>(at), whole_pages(bytes),
             allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
}

#endif

uint64_t exchanged(exchange kind, const uint64_t *values, unsigned operand, unsigned lane)
{
    uint64_t ballot = 0;
    switch (kind) {
    case XOR:
        return values[(lane ^ operand) & 31u];
    case FROM:
        return values[operand & 31u];
    case UP:
        return lane < operand ? values[lane] : values[lane - operand];
    case DOWN:
        return lane + operand > 31u ? values[lane] : values[lane + operand];
    case BALLOT:
        for (unsigned t = 0; t < 32; t++) ballot |= (values[t] ? UINT64_C(1) : 0) << t;
        return ballot;
    default:
        return 0;
    }
}

} // namespace shim
