// cuda_runtime.h - the part of CUDA that kernels/*.cu use, on a CPU: the project's own shim.
//
// A .cu file compiles as plain C++ when this directory comes before the toolkit's on the include
// path and LANE_SHIM is defined; tests/kernels/shim/*.cc are those compilations. Every thread of a
// block is a fibre, run in forward, reverse or random order between two barriers, or a real thread
// under the thread sanitizer (SHIM_THREADS). Blocks run one after the other. Streams are queues: a
// launch or a copy happens when the host synchronises, not before, so that a result read too early
// is not there. A barrier or an exchange that some threads never reach is a failed launch. The
// knobs, counters and faults for tests are in shim.h.
#ifndef TESTS_KERNELS_SHIM_CUDA_RUNTIME_H
#define TESTS_KERNELS_SHIM_CUDA_RUNTIME_H

#ifndef LANE_SHIM
#error "compile with -DLANE_SHIM=1: kernels/lanes.h must choose the SPMD flavour"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define __host__
#define __device__
#define __global__
#define __constant__ static const
#define __shared__ static // blocks run one after the other
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;

// ---- device side

namespace shim
{

struct thread {
    dim3 index;  // threadIdx
    dim3 block;  // blockIdx
    dim3 blocks; // gridDim
    dim3 size;   // blockDim
};

extern __thread thread *self;

enum exchange { XOR, FROM, UP, DOWN, BALLOT, ALIGN };

// One warp-wide exchange of up to 64 bits a thread.
uint64_t warp_exchange(exchange kind, unsigned mask, uint64_t value, unsigned operand);
void block_barrier(const char *file, int line);

// A seeded race: atomics are not, and others run in between. See shim.h.
extern bool race_seeded;
void let_others_run();

template <typename T> T shuffle(exchange kind, unsigned mask, T value, unsigned operand)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves up to 64 bits");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = warp_exchange(kind, mask, bits, operand);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

void enqueue_grid(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> body);

} // namespace shim

#define threadIdx (shim::self->index)
#define blockIdx (shim::self->block)
#define gridDim (shim::self->blocks)
#define blockDim (shim::self->size)
#define warpSize 32

#define __syncthreads() shim::block_barrier(__FILE__, __LINE__)
#define __syncwarp(...) ((void)shim::warp_exchange(shim::ALIGN, 0xffffffffu, 0, 0))
#define __shfl_xor_sync(mask, value, hop)                                                          \
    shim::shuffle(shim::XOR, (mask), (value), static_cast<unsigned>(hop))
#define __shfl_sync(mask, value, from)                                                             \
    shim::shuffle(shim::FROM, (mask), (value), static_cast<unsigned>(from))
#define __shfl_up_sync(mask, value, by)                                                            \
    shim::shuffle(shim::UP, (mask), (value), static_cast<unsigned>(by))
#define __shfl_down_sync(mask, value, by)                                                          \
    shim::shuffle(shim::DOWN, (mask), (value), static_cast<unsigned>(by))
#define __ballot_sync(mask, predicate)                                                             \
    static_cast<unsigned>(shim::warp_exchange(shim::BALLOT, (mask), (predicate) ? 1 : 0, 0))
#define __any_sync(mask, predicate) (__ballot_sync((mask), (predicate)) != 0)
#define __all_sync(mask, predicate) (__ballot_sync((mask), (predicate)) == 0xffffffffu)

template <typename T> T __ldg(const T *pointer)
{
    return *pointer;
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace shim
{
// next(seen) becomes the value of *place, in one step unless a race is seeded.
template <typename T, typename F> T atomic_update(T *place, F next)
{
    if (race_seeded) {
        const T seen = *place;
        let_others_run();
        *place = next(seen);
        return seen;
    }
    T seen = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(place, &seen, next(seen), true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {}
    return seen;
}
} // namespace shim

template <typename T> T atomicAdd(T *place, T value)
{
    return shim::atomic_update(place, [value](T seen) { return static_cast<T>(seen + value); });
}
template <typename T> T atomicOr(T *place, T value)
{
    return shim::atomic_update(place, [value](T seen) { return static_cast<T>(seen | value); });
}
template <typename T> T atomicExch(T *place, T value)
{
    return shim::atomic_update(place, [value](T) { return value; });
}
template <typename T> T atomicCAS(T *place, T expected, T value)
{
    return shim::atomic_update(place, [=](T seen) { return seen == expected ? value : seen; });
}
template <typename T> T atomicMin(T *place, T value)
{
    return shim::atomic_update(place, [value](T seen) { return value < seen ? value : seen; });
}
template <typename T> T atomicMax(T *place, T value)
{
    return shim::atomic_update(place, [value](T seen) { return value > seen ? value : seen; });
}

// ---- host side

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };

#define cudaStreamNonBlocking 1u
#define cudaEventDisableTiming 2u
#define cudaHostAllocDefault 0u

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

namespace shim
{
cudaError_t check_launch(dim3 grid, dim3 block, size_t shared_bytes);

template <typename... P, size_t... I>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, void **args, cudaStream_t stream,
                   std::index_sequence<I...>)
{
    // By value, as at a real launch: the caller's copies may go.
    auto own = std::make_tuple(*static_cast<std::decay_t<P> *>(args[I])...);
    enqueue_grid(stream, grid, block, [kernel, own] { std::apply(kernel, own); });
    return cudaSuccess;
}
} // namespace shim

template <typename... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args,
                             size_t shared_bytes, cudaStream_t stream)
{
    const cudaError_t error = shim::check_launch(grid, block, shared_bytes);
    if (error != cudaSuccess) return error;
    return shim::launch(kernel, grid, block, args, stream, std::index_sequence_for<P...>());
}

#endif
