/* cuda_device.cu - see cuda_device.h. */
#include "config.h"

#include "kernels/cuda_device.h"

#include <stdio.h>
#include <string.h>

#define LEAST_CAPABILITY 8 /* sm_80: the oldest code object of this build */

static int refuse(struct cuda_device *device, const char *words)
{
    snprintf(device->message, sizeof device->message, "backend cuda: %s", words);
    return TT_ENOTSUP;
}

int cuda_check(struct cuda_device *device, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return TT_OK;
    (void)cudaGetLastError(); /* the next check must not see it again */
    snprintf(device->message, sizeof device->message, "backend cuda: %s: %s", what,
             cudaGetErrorString(error));
    const int status = error == cudaErrorMemoryAllocation ? TT_ENOMEM : TT_EDEVICE;
    if (!device->failed) device->failed = status;
    return status;
}

int cuda_enter(struct cuda_device *device)
{
    if (device->failed) return device->failed;
    return cuda_check(device, cudaSetDevice(device->ordinal), "taking the device");
}

/* Whether the machine has the device; the reason otherwise. */
static int find_device(struct cuda_device *device, int *major, int *minor)
{
    char words[128];
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error != cudaSuccess || count < 1) {
        snprintf(words, sizeof words, "no device (%s)",
                 error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
        return refuse(device, words);
    }
    if (device->ordinal < 0 || device->ordinal >= count) {
        snprintf(words, sizeof words, "no device %d; this machine has %d, counted from 0",
                 device->ordinal, count);
        return refuse(device, words);
    }
    if (cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device->ordinal) !=
            cudaSuccess ||
        cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, device->ordinal) !=
            cudaSuccess)
        return refuse(device, "the device does not answer");
    if (*major < LEAST_CAPABILITY) {
        snprintf(words, sizeof words,
                 "device %d has compute capability %d.%d; this build needs %d.0 or later",
                 device->ordinal, *major, *minor, LEAST_CAPABILITY);
        return refuse(device, words);
    }
    return TT_OK;
}

int cuda_device_open(struct cuda_device *device, int ordinal)
{
    int major = 0, minor = 0;
    memset(device, 0, sizeof *device);
    device->ordinal = ordinal;
    int status = find_device(device, &major, &minor);
    if (status) return status;
    snprintf(device->isa, sizeof device->isa, "cuda:sm_%d%d", major, minor);
    status = cuda_enter(device);
    if (status) return status;
    return cuda_check(device, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking),
                      "making a stream");
}

void cuda_device_close(struct cuda_device *device)
{
    while (device->allocations > 0) (void)cudaFree(device->memory[--device->allocations]);
    if (device->stream) (void)cudaStreamDestroy(device->stream);
    device->stream = NULL;
    (void)cudaGetLastError();
}

int cuda_allocate(struct cuda_device *device, void **out, size_t count, size_t size)
{
    *out = NULL;
    if (device->failed) return device->failed;
    if (count > SIZE_MAX / size || device->allocations == CUDA_ALLOCATIONS_MAX) {
        snprintf(device->message, sizeof device->message,
                 "backend cuda: a workspace of %zu elements of %zu bytes is too large", count,
                 size);
        return TT_ELIMIT;
    }
    const size_t bytes = count > 0 ? count * size : size;
    int status = cuda_check(device, cudaMalloc(out, bytes), "allocating the workspace");
    if (status) return status;
    device->memory[device->allocations++] = *out;
    return cuda_check(device, cudaMemsetAsync(*out, 0, bytes, device->stream),
                      "clearing the workspace");
}

int cuda_upload(struct cuda_device *device, void *to, const void *from, size_t bytes)
{
    if (device->failed) return device->failed;
    if (bytes == 0) return TT_OK;
    return cuda_check(device,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device->stream),
                      "copying to the device");
}

int cuda_download(struct cuda_device *device, void *to, const void *from, size_t bytes)
{
    if (device->failed) return device->failed;
    if (bytes == 0) return cuda_synchronize(device);
    const int status =
        cuda_check(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device->stream),
                   "copying from the device");
    return status ? status : cuda_synchronize(device);
}

int cuda_synchronize(struct cuda_device *device)
{
    if (device->failed) return device->failed;
    return cuda_check(device, cudaStreamSynchronize(device->stream), "waiting for the device");
}

int cuda_is_device_memory(const void *pointer)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}
