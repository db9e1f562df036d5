// shim.cc - the host half of the CUDA shim: streams as queues, device memory behind a guard,
// graphs, counters and faults. See cuda_runtime.h.
#include "tests/kernels/shim/shim.h"
#include "tests/kernels/shim/shim_block.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

using work = std::function<void()>;

struct CUstream_st {
    std::vector<work> queue;
    bool capturing = false;
    std::vector<work> captured;
};
struct CUevent_st {
    CUstream_st *stream = nullptr;
};
struct CUgraph_st {
    std::vector<work> nodes;
};
struct CUgraphExec_st {
    std::vector<work> nodes;
};

namespace
{

shim_counters counters;
unsigned calls_to_failure;
int device_count = 1, device_capability = 90, current_device;
cudaError_t sticky = cudaSuccess, last = cudaSuccess;
bool memory_is_short;
CUstream_st default_stream;
std::set<CUstream_st *> streams = {&default_stream};

// ---- device memory: a host that touches it faults, a kernel that leaves it is reported

struct region {
    size_t bytes, mapped;
};
std::map<uintptr_t, region> regions;

void device_memory_access(bool allowed)
{
    for (const auto &entry : regions) shim::region_access(entry.first, entry.second.bytes, allowed);
}

struct device_access {
    device_access() { device_memory_access(true); }
    ~device_access() { device_memory_access(false); }
};

// ---- errors

cudaError_t note(cudaError_t error)
{
    if (error != cudaSuccess) last = error;
    return error;
}

// The injected fault, or the error that a failed kernel has left behind for good.
cudaError_t begin(cudaError_t kind)
{
    if (sticky != cudaSuccess) return note(sticky);
    if (calls_to_failure > 0 && --calls_to_failure == 0) return note(kind);
    return cudaSuccess;
}

CUstream_st *stream_of(cudaStream_t stream)
{
    return stream ? stream : &default_stream;
}

cudaError_t enqueue(cudaStream_t stream, work item)
{
    CUstream_st *queue = stream_of(stream);
    (queue->capturing ? queue->captured : queue->queue).push_back(std::move(item));
    return cudaSuccess;
}

void drain(CUstream_st *stream)
{
    std::vector<work> items;
    items.swap(stream->queue);
    if (items.empty()) return;
    const device_access access;
    for (const work &item : items)
        if (sticky == cudaSuccess) item();
}

cudaError_t drain_all()
{
    for (CUstream_st *stream : streams) {
        if (stream->capturing) return note(cudaErrorStreamCaptureUnsupported);
        drain(stream);
    }
    return note(sticky);
}

bool on_device(const void *pointer)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
    auto entry = regions.upper_bound(at);
    if (entry == regions.begin()) return false;
    --entry;
    return at < entry->first + entry->second.bytes;
}

// Host memory is read when the copy is called, as the runtime does for pageable memory.
work copy_of(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
             size_t height)
{
    if (on_device(from))
        return [=] {
            for (size_t y = 0; y < height; y++)
                std::memcpy(static_cast<char *>(to) + y * to_pitch,
                            static_cast<const char *>(from) + y * from_pitch, width);
        };
    auto held = std::make_shared<std::vector<char>>(width * height);
    for (size_t y = 0; y < height && width > 0; y++)
        std::memcpy(held->data() + y * width, static_cast<const char *>(from) + y * from_pitch,
                    width);
    return [=] {
        for (size_t y = 0; y < height && width > 0; y++)
            std::memcpy(static_cast<char *>(to) + y * to_pitch, held->data() + y * width, width);
    };
}

} // namespace

// ---- knobs

extern "C" void shim_set_order(uint32_t order)
{
    shim::thread_order = order;
}

extern "C" void shim_set_devices(int count, int capability)
{
    device_count = count;
    device_capability = capability;
}

extern "C" struct shim_counters shim_count(void)
{
    return counters;
}

extern "C" unsigned shim_fail(unsigned n)
{
    const unsigned left = calls_to_failure;
    calls_to_failure = n;
    sticky = last = cudaSuccess;
    return left;
}

// ---- seeded faults

namespace
{
unsigned seeded_site = UINT_MAX;
std::mutex sites_lock; // guards sites: threads of a block may be real
std::vector<std::pair<const char *, int>> sites;
} // namespace

bool shim::race_seeded;

bool shim::barrier_is_seeded(const char *file, int line)
{
    const std::lock_guard<std::mutex> guard(sites_lock);
    const std::pair<const char *, int> place(file, line);
    const auto found = std::find(sites.begin(), sites.end(), place);
    const auto site = static_cast<unsigned>(found - sites.begin());
    if (found == sites.end()) sites.push_back(place);
    if (site == seeded_site && found == sites.end())
        std::fprintf(stderr, "shim: no barrier at %s:%d\n", file, line);
    return site == seeded_site;
}

extern "C" void shim_seed(enum shim_seed seed, unsigned site)
{
    shim::race_seeded = seed == SHIM_RACE;
    memory_is_short = seed == SHIM_SHORT_MEMORY;
    seeded_site = seed == SHIM_NO_BARRIER ? site : UINT_MAX;
}

extern "C" unsigned shim_barrier_sites(void)
{
    return static_cast<unsigned>(sites.size());
}

// ---- launches

cudaError_t shim::check_launch(dim3 grid, dim3 block, size_t shared_bytes)
{
    const cudaError_t error = begin(cudaErrorLaunchFailure);
    if (error != cudaSuccess) return error;
    const unsigned threads = block.x * block.y * block.z;
    if (threads < 1 || threads > 1024 || block.y != 1 || block.z != 1 || grid.x < 1 ||
        grid.x > 0x7fffffffu || grid.y < 1 || grid.y > 65535 || grid.z < 1 || grid.z > 65535 ||
        shared_bytes > 0)
        return note(cudaErrorInvalidConfiguration);
    counters.launches++;
    return cudaSuccess;
}

void shim::enqueue_grid(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> body)
{
    (void)enqueue(stream, [grid, block, body] {
        if (shim::run_grid(grid, block, body)) return;
        counters.divergent++;
        sticky = cudaErrorLaunchFailure;
    });
}

// ---- errors and devices

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    default:
        return "another error";
    }
}

const char *cudaGetErrorName(cudaError_t error)
{
    return cudaGetErrorString(error);
}

cudaError_t cudaPeekAtLastError()
{
    return last;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = last;
    last = sticky;
    return error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count;
    if (device_count < 1) return note(cudaErrorNoDevice);
    return begin(cudaErrorInsufficientDriver);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count) return note(cudaErrorInvalidDevice);
    current_device = device;
    return begin(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (device < 0 || device >= device_count) return note(cudaErrorInvalidDevice);
    *value = attribute == cudaDevAttrComputeCapabilityMajor   ? device_capability / 10
             : attribute == cudaDevAttrComputeCapabilityMinor ? device_capability % 10
                                                              : 4;
    return begin(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize()
{
    const cudaError_t error = begin(cudaErrorLaunchFailure);
    if (error != cudaSuccess) return error;
    counters.synchronisations++;
    return drain_all();
}

// ---- memory

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    const cudaError_t error = begin(cudaErrorMemoryAllocation);
    if (error != cudaSuccess) return error;
    for (CUstream_st *stream : streams)
        if (stream->capturing) return note(cudaErrorStreamCaptureUnsupported);
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    size_t mapped;
    if (memory_is_short) bytes--;
    void *memory = shim::region_new(bytes > 0 ? bytes : 1, &mapped);
    if (!memory) return note(cudaErrorMemoryAllocation);
    std::memset(memory, 0xa5, bytes); // nobody may count on zeros
    regions[reinterpret_cast<uintptr_t>(memory)] = {bytes, mapped};
    shim::region_access(reinterpret_cast<uintptr_t>(memory), bytes, false);
    counters.allocations++;
    counters.live_bytes += bytes;
    *pointer = memory;
    return cudaSuccess;
}

// Works after a failure too: a handle must be closable.
cudaError_t cudaFree(void *pointer)
{
    if (!pointer) return cudaSuccess;
    (void)drain_all();
    const auto entry = regions.find(reinterpret_cast<uintptr_t>(pointer));
    if (entry == regions.end()) return note(cudaErrorInvalidValue);
    shim::region_access(entry->first, entry->second.bytes, true);
    shim::region_free(pointer, entry->second.mapped);
    counters.frees++;
    counters.live_bytes -= entry->second.bytes;
    regions.erase(entry);
    return note(sticky);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    const cudaError_t error = begin(cudaErrorMemoryAllocation);
    if (error != cudaSuccess) return error;
    *pointer = std::malloc(bytes);
    return *pointer ? cudaSuccess : note(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *pointer)
{
    std::free(pointer);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    if (error != cudaSuccess) return error;
    counters.synchronisations++;
    return drain_all();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    const cudaError_t error = begin(cudaErrorIllegalAddress);
    if (error != cudaSuccess) return error;
    const bool to_device = on_device(to), from_device = on_device(from);
    if (width * height > 0 && ((kind == cudaMemcpyHostToDevice && (from_device || !to_device)) ||
                               (kind == cudaMemcpyDeviceToHost && (!from_device || to_device)) ||
                               (kind == cudaMemcpyDeviceToDevice && !(from_device && to_device)) ||
                               (height > 1 && (width > to_pitch || width > from_pitch))))
        return note(cudaErrorInvalidValue);
    counters.copies++;
    return enqueue(stream, copy_of(to, to_pitch, from, from_pitch, width, height));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    const cudaError_t error = cudaMemsetAsync(to, value, bytes, nullptr);
    return error != cudaSuccess ? error : drain_all();
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    const cudaError_t error = begin(cudaErrorIllegalAddress);
    if (error != cudaSuccess) return error;
    if (bytes > 0 && !on_device(to)) return note(cudaErrorInvalidValue);
    return enqueue(stream, [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    const cudaError_t error = begin(cudaErrorInvalidValue);
    if (error != cudaSuccess) return error;
    const bool device = on_device(pointer);
    attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->device = device ? current_device : -1;
    attributes->devicePointer = device ? const_cast<void *>(pointer) : nullptr;
    attributes->hostPointer = device ? nullptr : const_cast<void *>(pointer);
    return cudaSuccess;
}

// ---- streams, events, graphs

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    const cudaError_t error = begin(cudaErrorMemoryAllocation);
    if (error != cudaSuccess) return error;
    *stream = new CUstream_st;
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream) return note(cudaErrorInvalidValue);
    drain(stream);
    streams.erase(stream);
    delete stream;
    return note(sticky);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const cudaError_t error = begin(cudaErrorLaunchFailure);
    if (error != cudaSuccess) return error;
    if (stream_of(stream)->capturing) return note(cudaErrorStreamCaptureUnsupported);
    counters.synchronisations++;
    drain(stream_of(stream));
    return note(sticky);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    *status =
        stream_of(stream)->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

// An event stands for everything queued before it; waiting for it runs that stream dry.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const cudaError_t error = begin(cudaErrorInvalidValue);
    if (error != cudaSuccess) return error;
    CUstream_st *other = event->stream;
    if (!other || other == stream_of(stream)) return cudaSuccess;
    return enqueue(stream, [other] {
        std::vector<work> items;
        items.swap(other->queue);
        for (const work &item : items)
            if (sticky == cudaSuccess) item();
    });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    const cudaError_t error = begin(cudaErrorMemoryAllocation);
    if (error != cudaSuccess) return error;
    *event = new CUevent_st;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const cudaError_t error = begin(cudaErrorInvalidValue);
    if (error == cudaSuccess) event->stream = stream_of(stream);
    return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return event->stream ? cudaStreamSynchronize(event->stream) : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    CUstream_st *own = stream_of(stream);
    if (own->capturing) return note(cudaErrorInvalidValue);
    drain(own);
    own->capturing = true;
    own->captured.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    CUstream_st *own = stream_of(stream);
    if (!own->capturing) return note(cudaErrorInvalidValue);
    own->capturing = false;
    *graph = new CUgraph_st{std::move(own->captured)};
    own->captured.clear();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const cudaError_t error = begin(cudaErrorLaunchFailure);
    if (error != cudaSuccess) return error;
    for (const work &node : exec->nodes) (void)enqueue(stream, node);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
