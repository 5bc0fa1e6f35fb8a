/* SPDX-License-Identifier: MIT */
/* cuda_api.c - finds the CUDA driver's calls. */
#include "cuda_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CALL(member, symbol)                                                                       \
    {                                                                                              \
        offsetof(struct cuda_api, member), symbol                                                  \
    }

static const struct {
    size_t at;
    const char *symbol;
} calls[] = {
    CALL(init, "cuInit"),
    CALL(error_string, "cuGetErrorString"),
    CALL(device_count, "cuDeviceGetCount"),
    CALL(device, "cuDeviceGet"),
    CALL(device_name, "cuDeviceGetName"),
    CALL(device_bytes, "cuDeviceTotalMem_v2"),
    CALL(retain, "cuDevicePrimaryCtxRetain"),
    CALL(release, "cuDevicePrimaryCtxRelease_v2"),
    CALL(push, "cuCtxPushCurrent_v2"),
    CALL(pop, "cuCtxPopCurrent_v2"),
    CALL(mem_info, "cuMemGetInfo_v2"),
    CALL(mem_alloc, "cuMemAlloc_v2"),
    CALL(mem_free, "cuMemFree_v2"),
    CALL(host_alloc, "cuMemHostAlloc"),
    CALL(host_free, "cuMemFreeHost"),
    CALL(host_register, "cuMemHostRegister_v2"),
    CALL(host_unregister, "cuMemHostUnregister"),
    CALL(host_address, "cuMemHostGetDevicePointer_v2"),
    CALL(copy_async, "cuMemcpyAsync"),
    CALL(stream_create, "cuStreamCreate"),
    CALL(stream_destroy, "cuStreamDestroy_v2"),
    CALL(stream_wait, "cuStreamSynchronize"),
    CALL(event_create, "cuEventCreate"),
    CALL(event_destroy, "cuEventDestroy_v2"),
    CALL(event_record, "cuEventRecord"),
    CALL(stream_wait_event, "cuStreamWaitEvent"),
    CALL(module_load, "cuModuleLoadData"),
    CALL(module_unload, "cuModuleUnload"),
    CALL(module_function, "cuModuleGetFunction"),
    CALL(launch, "cuLaunchKernel"),
};

int cb_cuda_api(struct cuda_api *api, const char **why_not)
{
    /* a driver that has been started has threads, so it is never unloaded */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    *why_not = "no NVIDIA driver on this machine (libcuda.so.1)";
    if (!library)
        return 0;
    *why_not = "the NVIDIA driver (libcuda.so.1) is too old";
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *call = dlsym(library, calls[i].symbol);
        if (!call) {
            dlclose(library);
            return 0;
        }
        memcpy((char *)api + calls[i].at, &call, sizeof call);
    }
    dlclose(library); /* it stays: RTLD_NODELETE */
    *why_not = "the NVIDIA driver finds no device that it can use";
    return api->init(0) == CUDA_OK;
}

void cb_cuda_explain(const struct cuda_api *api, int status, char *text, size_t size)
{
    const char *what = NULL;

    if (api->error_string(status, &what) || !what)
        what = "unknown";
    snprintf(text, size, "CUDA status %d: %s", status, what);
}
