// shim_threads.cc - the threads of a block as real threads, for the thread sanitizer.
//
// A barrier orders memory, as __syncthreads and __syncwarp do. A shuffle moves a register and
// orders nothing: the sanitizer is told to ignore the synchronisation inside it, so that shared
// memory handed over by a shuffle alone is reported as the race it is. A barrier or exchange that
// some thread never reaches ends the process after a while.
#include "tests/kernels/shim/shim_block.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <vector>

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreSyncBegin(const char *file, int line);
extern "C" void AnnotateIgnoreSyncEnd(const char *file, int line);
extern "C" void AnnotateIgnoreReadsBegin(const char *file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char *file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

namespace shim
{

__thread thread *self;
uint32_t thread_order;

namespace
{

enum { WARP = 32, PATIENCE_S = 60 };

// What happens meanwhile is the shim's own business: it orders nothing, and is no race.
class unseen
{
  public:
#ifdef __SANITIZE_THREAD__
    unseen()
    {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~unseen()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
#else
    unseen() {}
    ~unseen() {}
#endif
    unseen(const unseen &) = delete;
};

// A barrier that gives up: the suite reports what a device would hang at.
class meeting
{
  public:
    explicit meeting(unsigned threads) : expected(threads) {}

    void wait()
    {
        pthread_mutex_lock(&mutex);
        const unsigned turn = generation;
        if (++arrived == expected) {
            arrived = 0;
            generation++;
            pthread_cond_broadcast(&moved);
        }
        struct timespec deadline;
        clock_gettime(CLOCK_REALTIME, &deadline);
        deadline.tv_sec += PATIENCE_S;
        while (generation == turn)
            if (pthread_cond_timedwait(&moved, &mutex, &deadline) != 0) {
                std::fprintf(stderr, "shim: divergent block: %u of %u threads have met\n", arrived,
                             expected);
                std::abort();
            }
        pthread_mutex_unlock(&mutex);
    }

  private:
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
    const unsigned expected;
    unsigned arrived = 0, generation = 0;
};

struct warp {
    meeting aligned{WARP};
    std::atomic<uint64_t> values[WARP];
};

struct block_run {
    std::unique_ptr<meeting> barrier;
    std::vector<std::unique_ptr<warp>> warps;
    const std::function<void()> *body;
};

block_run *current;

struct start {
    thread own;
};

void *enter(void *argument)
{
    self = &static_cast<start *>(argument)->own;
    (*current->body)();
    return nullptr;
}

} // namespace

uint64_t warp_exchange(exchange kind, unsigned mask, uint64_t value, unsigned operand)
{
    const unsigned lane = self->index.x % WARP;
    warp &own = *current->warps[self->index.x / WARP];
    uint64_t values[WARP];
    if (mask != 0xffffffffu) std::abort();
    if (kind == ALIGN) {
        own.aligned.wait();
        return 0;
    }
    const unseen meanwhile;
    own.values[lane].store(value, std::memory_order_relaxed);
    own.aligned.wait();
    for (unsigned t = 0; t < WARP; t++) values[t] = own.values[t].load(std::memory_order_relaxed);
    own.aligned.wait();
    return exchanged(kind, values, operand, lane);
}

void let_others_run()
{
    sched_yield();
}

void block_barrier(const char *file, int line)
{
    {
        const unseen meanwhile;
        if (barrier_is_seeded(file, line)) return;
    }
    current->barrier->wait();
}

bool run_grid(dim3 grid, dim3 block, const std::function<void()> &body)
{
    const unsigned blocks = grid.x * grid.y * grid.z, threads = block.x;
    std::vector<start> starts(threads);
    std::vector<pthread_t> ids(threads);
    for (unsigned b = 0; b < blocks; b++) {
        block_run run;
        run.barrier.reset(new meeting(threads));
        for (unsigned w = 0; w * WARP < threads; w++) run.warps.emplace_back(new warp);
        run.body = &body;
        current = &run;
        const dim3 at(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
        for (unsigned t = 0; t < threads; t++) {
            starts[t].own = {dim3(t, 0, 0), at, grid, block};
            if (pthread_create(&ids[t], nullptr, enter, &starts[t]) != 0) std::abort();
        }
        for (unsigned t = 0; t < threads; t++) pthread_join(ids[t], nullptr);
        current = nullptr;
    }
    return true;
}

} // namespace shim
