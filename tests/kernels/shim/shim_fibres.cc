// shim_fibres.cc - the threads of a block as fibres on one processor.
//
// A fibre runs until it meets a barrier or an exchange; when none can run, the ones that have all
// arrived go on. Whoever then still waits for threads that will never come is reported as divergent
// and the block is abandoned.
#include "tests/kernels/shim/shim_block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace shim
{

__thread thread *self;
uint32_t thread_order;

namespace
{

enum { STACK_BYTES = 256 * 1024, WARP = 32 };
enum state { RUNNING, EXCHANGING, AT_BARRIER, DONE };

// ---- switching stacks

#if defined(__x86_64__)
// The registers that a call preserves, on the stack that is left.
asm(".text\n"
    ".type shim_switch,@function\n"
    "shim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size shim_switch,.-shim_switch\n");
extern "C" void shim_switch(void **saved, void *next);
typedef void *context;

void context_switch(context *from, context *to)
{
    shim_switch(from, *to);
}

void context_new(context *fresh, char *stack, size_t bytes, void (*entry)())
{
    // As if `entry` had been called: a return address lies above 16-byte alignment.
    void **top = reinterpret_cast<void **>(stack + bytes) - 2;
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    *fresh = top;
}
#else
typedef ucontext_t context;

void context_switch(context *from, context *to)
{
    swapcontext(from, to);
}

void context_new(context *fresh, char *stack, size_t bytes, void (*entry)())
{
    getcontext(fresh);
    fresh->uc_stack.ss_sp = stack;
    fresh->uc_stack.ss_size = bytes;
    fresh->uc_link = nullptr;
    makecontext(fresh, entry, 0);
}
#endif

struct fibre {
    thread own;
    context at;
    std::unique_ptr<char[]> stack;
    state now;
    exchange kind;
    unsigned operand;
    uint64_t value;
};

std::vector<std::unique_ptr<fibre>> fibres; // grows to the largest block, stacks are kept
context scheduler;
fibre *running;
const std::function<void()> *body;

#ifdef __SANITIZE_ADDRESS__
const void *scheduler_stack;
size_t scheduler_bytes;
#endif

void yield(bool for_good)
{
    fibre *own = running;
#ifdef __SANITIZE_ADDRESS__
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, scheduler_stack, scheduler_bytes);
    context_switch(&own->at, &scheduler);
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_bytes);
#else
    (void)for_good;
    context_switch(&own->at, &scheduler);
#endif
}

void enter()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_bytes);
#endif
    (*body)();
    running->now = DONE;
    yield(true);
    std::abort();
}

void resume(fibre *next)
{
    running = next;
    self = &next->own;
#ifdef __SANITIZE_ADDRESS__
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, next->stack.get(), STACK_BYTES);
    context_switch(&scheduler, &next->at);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    context_switch(&scheduler, &next->at);
#endif
    self = nullptr;
}

void prepare(unsigned threads, dim3 grid, dim3 block, dim3 at)
{
    while (fibres.size() < threads) {
        fibres.emplace_back(new fibre);
        fibres.back()->stack.reset(new char[STACK_BYTES]);
    }
    for (unsigned t = 0; t < threads; t++) {
        fibre *f = fibres[t].get();
        f->own = {dim3(t, 0, 0), at, grid, block};
        f->now = RUNNING;
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(f->stack.get(), STACK_BYTES);
#endif
        context_new(&f->at, f->stack.get(), STACK_BYTES, enter);
    }
}

// ---- order

void shuffle(std::vector<unsigned> *turn, uint32_t *state)
{
    for (size_t i = turn->size() - 1; i > 0; i--) {
        *state = *state * 1664525u + 1013904223u;
        std::swap((*turn)[i], (*turn)[(*state >> 8) % (i + 1)]);
    }
}

std::vector<unsigned> first_turn(unsigned count)
{
    std::vector<unsigned> turn(count);
    for (unsigned t = 0; t < count; t++) turn[t] = thread_order == 1 ? count - 1 - t : t;
    return turn;
}

// ---- arrivals

bool same_exchange(const fibre *a, const fibre *b)
{
    return b->now == EXCHANGING && a->kind == b->kind &&
           (a->kind != XOR || a->operand == b->operand);
}

// Whether the warp from thread `first` has met at one exchange; its threads then go on.
bool finish_exchange(unsigned first, unsigned threads)
{
    uint64_t values[WARP];
    if (first + WARP > threads) return false;
    for (unsigned t = 0; t < WARP; t++) {
        if (!same_exchange(fibres[first].get(), fibres[first + t].get())) return false;
        values[t] = fibres[first + t]->value;
    }
    for (unsigned t = 0; t < WARP; t++) {
        fibre *f = fibres[first + t].get();
        f->value = exchanged(f->kind, values, f->operand, t);
        f->now = RUNNING;
    }
    return true;
}

bool finish_barrier(unsigned threads)
{
    for (unsigned t = 0; t < threads; t++)
        if (fibres[t]->now != AT_BARRIER) return false;
    for (unsigned t = 0; t < threads; t++) fibres[t]->now = RUNNING;
    return true;
}

void report_divergence(unsigned threads)
{
    unsigned counts[4] = {0, 0, 0, 0};
    for (unsigned t = 0; t < threads; t++) counts[fibres[t]->now]++;
    std::fprintf(stderr,
                 "shim: divergent block: %u threads wait at an exchange, %u at a barrier, %u have "
                 "ended\n",
                 counts[EXCHANGING], counts[AT_BARRIER], counts[DONE]);
}

bool run_block(unsigned threads, uint32_t *state)
{
    std::vector<unsigned> turn = first_turn(threads);
    for (;;) {
        unsigned ran = 0, done = 0;
        if (thread_order > 1) shuffle(&turn, state);
        for (const unsigned t : turn) {
            fibre *f = fibres[t].get();
            if (f->now == RUNNING) {
                resume(f);
                ran++;
            }
            done += f->now == DONE;
        }
        if (done == threads) return true;
        bool moved = finish_barrier(threads);
        for (unsigned first = 0; !moved && first < threads; first += WARP)
            moved |= fibres[first]->now == EXCHANGING && finish_exchange(first, threads);
        for (unsigned first = 0; first < threads; first += WARP)
            moved |= fibres[first]->now == EXCHANGING && finish_exchange(first, threads);
        if (!moved && ran == 0) {
            report_divergence(threads);
            return false;
        }
    }
}

} // namespace

uint64_t warp_exchange(exchange kind, unsigned mask, uint64_t value, unsigned operand)
{
    fibre *own = running;
    if (mask != 0xffffffffu) {
        std::fprintf(stderr, "shim: an exchange of part of a warp (mask %08x)\n", mask);
        std::abort();
    }
    own->kind = kind;
    own->value = value;
    own->operand = operand;
    own->now = EXCHANGING;
    yield(false);
    return own->value;
}

void let_others_run()
{
    yield(false);
}

void block_barrier(const char *file, int line)
{
    if (barrier_is_seeded(file, line)) return;
    running->now = AT_BARRIER;
    yield(false);
}

bool run_grid(dim3 grid, dim3 block, const std::function<void()> &threads_body)
{
    const unsigned blocks = grid.x * grid.y * grid.z;
    uint32_t state = thread_order;
    std::vector<unsigned> turn = first_turn(blocks);
    if (thread_order > 1) shuffle(&turn, &state);
    body = &threads_body;
    for (const unsigned b : turn) {
        const dim3 at(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
        prepare(block.x, grid, block, at);
        if (!run_block(block.x, &state)) return false;
    }
    return true;
}

} // namespace shim
