/* SPDX-License-Identifier: MIT */
/* cuda_api.h - the calls of the CUDA driver that are used. They are looked up in libcuda.so.1 when
 * a device is wanted, so the program needs neither CUDA's headers nor its libraries. */
#ifndef CB_CUDA_API_H
#define CB_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* Types of the driver, by their size */
typedef int cuda_device;
typedef uint64_t cuda_address;
typedef void *cuda_context, *cuda_stream, *cuda_event, *cuda_module, *cuda_function;

enum { CUDA_OK = 0, CUDA_NO_MEMORY = 2, CUDA_LAUNCH_RESOURCES = 701 };

/* Each returns CUDA_OK or a status. */
struct cuda_api {
    int (*init)(unsigned flags);
    int (*error_string)(int status, const char **text);
    int (*device_count)(int *n);
    int (*device)(cuda_device *d, int i);
    int (*device_name)(char *name, int size, cuda_device d);
    int (*device_bytes)(size_t *bytes, cuda_device d);
    int (*retain)(cuda_context *c, cuda_device d);
    int (*release)(cuda_device d);
    int (*push)(cuda_context c);
    int (*pop)(cuda_context *c);
    int (*mem_info)(size_t *free, size_t *all);
    int (*mem_alloc)(cuda_address *p, size_t bytes);
    int (*mem_free)(cuda_address p);
    int (*host_alloc)(void **p, size_t bytes, unsigned flags);
    int (*host_free)(void *p);
    int (*host_register)(void *p, size_t bytes, unsigned flags);
    int (*host_unregister)(void *p);
    int (*host_address)(cuda_address *p, void *host, unsigned flags);
    int (*copy_async)(cuda_address to, cuda_address from, size_t bytes, cuda_stream s);
    int (*stream_create)(cuda_stream *s, unsigned flags);
    int (*stream_destroy)(cuda_stream s);
    int (*stream_wait)(cuda_stream s);
    int (*event_create)(cuda_event *e, unsigned flags);
    int (*event_destroy)(cuda_event e);
    int (*event_record)(cuda_event e, cuda_stream s);
    int (*stream_wait_event)(cuda_stream s, cuda_event e, unsigned flags);
    int (*module_load)(cuda_module *m, const void *image);
    int (*module_unload)(cuda_module m);
    int (*module_function)(cuda_function *f, cuda_module m, const char *name);
    int (*launch)(cuda_function f, unsigned groups_x, unsigned groups_y, unsigned groups_z,
                  unsigned items_x, unsigned items_y, unsigned items_z, unsigned shared_bytes,
                  cuda_stream s, void **arg, void **extra);
};

/* Loads the driver and starts it. 0: *why_not says why there is none. The driver stays loaded. */
int cb_cuda_api(struct cuda_api *api, const char **why_not);
/* "CUDA status 2: out of memory" */
void cb_cuda_explain(const struct cuda_api *api, int status, char *text, size_t size);

#endif
