// lm_synthetic_device.cc - device memory for the synthetic model's logits, through the CUDA runtime
// that the program is linked with.
#include "tests/support/lm_synthetic.h"

#include <cuda_runtime.h>

static float *device_allocate(size_t count)
{
    void *rows = nullptr;
    return cudaMalloc(&rows, count * sizeof(float)) == cudaSuccess ? static_cast<float *>(rows)
                                                                   : nullptr;
}

static void device_release(float *rows)
{
    (void)cudaFree(rows);
}

static bool device_upload(float *to, const float *from, size_t count)
{
    return cudaMemcpy(to, from, count * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess;
}

static const struct lm_synthetic_device device = {device_allocate, device_release, device_upload};

[[maybe_unused]] static const bool is_set = (lm_synthetic_device = &device) != nullptr;
