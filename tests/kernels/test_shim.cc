// test_shim.cc - the CUDA shim itself: what it computes, what it must notice. TAP.
#include "config.h"

#include "kernels/cuda_device.h"
#include "tests/kernels/shim/shim.h"

#include <cstdio>
#include <cstdlib>

static int count, failed;

static void report(bool fine, const char *what)
{
    failed += !fine;
    std::printf("%s %d - %s\n", fine ? "ok" : "not ok", ++count, what);
}

struct sum_task {
    const int *in; // (blocks, 64)
    int *out;      // (blocks)
};

static __global__ void sum_kernel(sum_task task)
{
    __shared__ int sums[2];
    const int *own = task.in + blockIdx.x * blockDim.x;
    int sum = own[threadIdx.x];
    for (int hop = 16; hop > 0; hop /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, hop);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) task.out[blockIdx.x] = sums[0] + sums[1];
}

struct stray_task {
    int kind; // 0: one thread skips the barrier; 1: one skips the exchange; 2: exchanges differ
};

static __global__ void stray_kernel(stray_task task)
{
    const int lane = static_cast<int>(threadIdx.x);
    int sum = lane;
    if (task.kind == 0 && lane != 17) __syncthreads();
    if (task.kind == 1 && lane != 17) sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (task.kind == 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane == 17 ? 2 : 1);
}

static void check_sums(struct cuda_device *device, uint32_t order)
{
    enum { BLOCKS = 5, THREADS = 64 };
    int in[BLOCKS * THREADS], out[BLOCKS] = {0}, *device_in, *device_out;
    bool fine = true;
    for (int i = 0; i < BLOCKS * THREADS; i++) in[i] = i;
    shim_set_order(order);
    fine = cuda_allocate(device, &device_in, BLOCKS * THREADS) == 0 &&
           cuda_allocate(device, &device_out, BLOCKS) == 0 &&
           cuda_upload(device, device_in, in, sizeof in) == 0 &&
           cuda_launch(device, device->stream, sum_kernel, dim3(BLOCKS), THREADS,
                       sum_task{device_in, device_out}, "summing") == 0 &&
           cuda_download(device, out, device_out, sizeof out) == 0;
    for (int b = 0; b < BLOCKS; b++) fine = fine && out[b] == 64 * (64 * b) + 63 * 32;
    report(fine, order == 0   ? "threads in order"
                 : order == 1 ? "threads in reverse"
                              : "threads in random order");
}

static void check_stray(int kind, const char *what)
{
    struct cuda_device device;
    const uint64_t before = shim_count().divergent;
    bool fine = cuda_device_open(&device, 0) == 0;
    fine = fine && cuda_launch(&device, device.stream, stray_kernel, dim3(1), 32, stray_task{kind},
                               "straying") == 0;
    fine = fine && cuda_synchronize(&device) == TT_EDEVICE && device.message[0] &&
           shim_count().divergent == before + 1;
    // The error stays, and the device can be closed.
    fine = fine && cuda_synchronize(&device) == TT_EDEVICE;
    cuda_device_close(&device);
    shim_fail(0);
    report(fine, what);
}

static void check_refusals()
{
    struct cuda_device device;
    shim_set_devices(0, 90);
    report(cuda_device_open(&device, 0) == TT_ENOTSUP &&
               std::strstr(device.message, "no CUDA-capable device") != nullptr,
           "a machine without a device says so");
    shim_set_devices(1, 75);
    report(cuda_device_open(&device, 0) == TT_ENOTSUP &&
               std::strstr(device.message, "compute capability 7.5") != nullptr,
           "a device that is too old says so");
    shim_set_devices(1, 90);
    report(cuda_device_open(&device, 3) == TT_ENOTSUP &&
               std::strstr(device.message, "no device 3") != nullptr,
           "a device that is not there says so");
}

int main()
{
    struct cuda_device device;
    std::printf("1..10\n");
    report(cuda_device_open(&device, 0) == 0 && std::strcmp(device.isa, "cuda:sm_90") == 0,
           "a device opens");
    for (uint32_t order = 0; order < 3; order++) check_sums(&device, order);
    cuda_device_close(&device);
    shim_set_order(0);
    check_stray(0, "a barrier that one thread skips is noticed");
    check_stray(1, "an exchange that one thread skips is noticed");
    check_stray(2, "an exchange with different hops is noticed");
    check_refusals();
    return failed || shim_count().live_bytes > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
