/* cuda_device.h - one CUDA device as the backend sees it: its stream, its memory, its first error.
 *
 * Included by .cu files alone. Each of them compiles twice: with nvcc, and as C++ against the shim
 * in tests/kernels/shim; so a kernel is launched through cuda_launch, never with <<<>>>. Every call
 * returns 0 or an enum tt_status and leaves words in `message`. The first error of the runtime is
 * kept: all later calls return it, and only cuda_device_close is of use. Internal to kernels/.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include "kernels/trimtab.h"

#include <cuda_runtime.h>

#define CUDA_ALLOCATIONS_MAX 64

struct cuda_device {
    int ordinal;
    cudaStream_t stream;                /* the handle's own; synchronous calls run on it */
    char isa[24];                       /* "cuda:sm_90" */
    char message[192];                  /* the last error in words */
    int failed;                         /* status of the first error of the runtime, or 0 */
    void *memory[CUDA_ALLOCATIONS_MAX]; /* (allocations) freed by cuda_device_close */
    unsigned allocations;
};

/* The device of a handle opened with backend "cuda"; NULL for another backend. */
extern "C" struct cuda_device *cuda_device_of(tt *handle);

/* Take device `ordinal`. TT_ENOTSUP: no driver, no such device, or one below compute capability
 * 8.0. cuda_device_close it in any case. */
int cuda_device_open(struct cuda_device *device, int ordinal);
void cuda_device_close(struct cuda_device *device);

/* Make it the current device of the calling thread: the first thing a call does. */
int cuda_enter(struct cuda_device *device);

/* 0, or the status that an error of the runtime becomes; `what` was being done. */
int cuda_check(struct cuda_device *device, cudaError_t error, const char *what);

/* (count) elements of `size` bytes on the device, zeroed, freed at close. At open only: a call
 * allocates nothing. TT_ENOMEM, TT_ELIMIT when the product overflows. */
int cuda_allocate(struct cuda_device *device, void **out, size_t count, size_t size);

template <typename T> int cuda_allocate(struct cuda_device *device, T **out, size_t count)
{
    return cuda_allocate(device, reinterpret_cast<void **>(out), count, sizeof(T));
}

/* Copies and waits on the device's own stream. download waits; upload may return before the copy,
 * with `from` already read. */
int cuda_upload(struct cuda_device *device, void *to, const void *from, size_t bytes);
int cuda_download(struct cuda_device *device, void *to, const void *from, size_t bytes);
int cuda_synchronize(struct cuda_device *device);

/* 1 when a kernel may read the pointer: device or managed memory. */
int cuda_is_device_memory(const void *pointer);

/* Launch kernel(task) on (blocks, rows) blocks of `threads`; asynchronous, nothing is allocated. */
template <typename Task>
int cuda_launch(struct cuda_device *device, cudaStream_t stream, void (*kernel)(Task), dim3 blocks,
                unsigned threads, Task task, const char *what)
{
    void *arguments[] = {&task};
    if (device->failed) return device->failed;
    return cuda_check(device, cudaLaunchKernel(kernel, blocks, dim3(threads), arguments, 0, stream),
                      what);
}

#endif
