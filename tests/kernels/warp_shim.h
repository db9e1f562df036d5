/* warp_shim.h - just enough CUDA to run the SPMD flavour of the row bodies on a CPU: one warp of 32
 * fibres.
 *
 * Every thread of the warp is a ucontext fibre that runs until it shuffles; the exchange happens
 * when all 32 have arrived at one with the same hop. Threads run in forward, reverse or shuffled
 * order between two exchanges. A thread that ends, or shuffles otherwise, while others wait is a
 * divergent exchange: on a device that hangs or reads garbage, here it is counted. Included before
 * kernels/lanes.h.
 */
#ifndef TESTS_KERNELS_WARP_SHIM_H
#define TESTS_KERNELS_WARP_SHIM_H

#include <cstdint>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define LANE_SHIM 1
#define __host__
#define __device__
#define __forceinline__ inline

namespace warp
{

enum { THREADS = 32, STACK_BYTES = 128 * 1024 };

struct fibre {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false, waiting = false;
    float value = 0.0f;
    int hop = 0;
};

struct index3 {
    unsigned x;
};

inline fibre fibres[THREADS];
inline index3 thread_index;
inline ucontext_t scheduler;
inline std::function<void(unsigned)> body;
inline unsigned divergent; // exchanges that not all threads took part in

#ifdef __SANITIZE_ADDRESS__
inline const void *scheduler_stack;
inline size_t scheduler_bytes;
inline void leave(void **fake, const void *stack, size_t bytes)
{
    __sanitizer_start_switch_fiber(fake, stack, bytes);
}
inline void arrive(void *fake, const void **stack, size_t *bytes)
{
    __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
#else
inline const void *scheduler_stack;
inline size_t scheduler_bytes;
inline void leave(void **, const void *, size_t) {}
inline void arrive(void *, const void **, size_t *) {}
#endif

inline void to_scheduler(bool for_good)
{
    fibre &self = fibres[thread_index.x];
    void *fake = nullptr;
    leave(for_good ? nullptr : &fake, scheduler_stack, scheduler_bytes);
    swapcontext(&self.context, &scheduler);
    arrive(fake, &scheduler_stack, &scheduler_bytes);
}

inline void enter()
{
    arrive(nullptr, &scheduler_stack, &scheduler_bytes);
    const unsigned self = thread_index.x;
    body(self);
    fibres[self].done = true;
    to_scheduler(true);
}

inline void resume(unsigned t)
{
    void *fake = nullptr;
    thread_index.x = t;
    leave(&fake, fibres[t].stack.data(), fibres[t].stack.size());
    swapcontext(&scheduler, &fibres[t].context);
    arrive(fake, nullptr, nullptr);
}

// The value of thread (own xor hop); called by all 32 threads.
inline float exchange(float value, int hop)
{
    fibre &self = fibres[thread_index.x];
    const unsigned t = thread_index.x;
    self.value = value;
    self.hop = hop;
    self.waiting = true;
    to_scheduler(false);
    return fibres[t].value;
}

inline void finish_exchange()
{
    float sent[THREADS];
    unsigned waiting = 0;
    bool same = true;
    for (unsigned t = 0; t < THREADS; t++) {
        waiting += fibres[t].waiting;
        same = same && fibres[t].hop == fibres[0].hop;
        sent[t] = fibres[t].value;
    }
    if (waiting == 0) return;
    if (waiting < THREADS || !same) divergent++;
    for (unsigned t = 0; t < THREADS; t++) {
        if (!fibres[t].waiting) continue;
        fibres[t].value = sent[t ^ (unsigned)fibres[t].hop];
        fibres[t].waiting = false;
    }
}

inline void prepare(fibre &f)
{
    f.stack.resize(STACK_BYTES);
    f.done = f.waiting = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
}

// Run one warp. order: 0 forward, 1 reverse, otherwise the seed of a shuffle before every exchange.
inline void run(std::function<void(unsigned)> function, uint32_t order)
{
    uint32_t state = order;
    unsigned turn[THREADS], alive = THREADS;
    body = function;
    divergent = 0;
    for (unsigned t = 0; t < THREADS; t++) {
        prepare(fibres[t]);
        turn[t] = order == 1 ? THREADS - 1 - t : t;
    }
    while (alive > 0) {
        for (unsigned i = THREADS - 1; order > 1 && i > 0; i--) {
            state = state * 1664525u + 1013904223u;
            std::swap(turn[i], turn[(state >> 8) % (i + 1)]);
        }
        alive = 0;
        for (unsigned i = 0; i < THREADS; i++) {
            if (!fibres[turn[i]].done) resume(turn[i]);
            alive += !fibres[turn[i]].done;
        }
        finish_exchange();
    }
}

} // namespace warp

#define threadIdx warp::thread_index
#define __shfl_xor_sync(mask, value, hop) warp::exchange((value), (hop))

#endif
