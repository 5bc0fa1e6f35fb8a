/* SPDX-License-Identifier: MIT */
/* cl_status.c - names of OpenCL's statuses. */
#include <stdio.h>

#include "cl.h"

void cb_cl_explain(const struct gpu *g, int status, char *text, size_t size)
{
    static const struct {
        int status;
        const char *name;
    } names[] = {
        { CL_DEVICE_NOT_FOUND, "device not found" },
        { CL_DEVICE_NOT_AVAILABLE, "device not available" },
        { CL_COMPILER_NOT_AVAILABLE, "compiler not available" },
        { CL_MEM_OBJECT_ALLOCATION_FAILURE, "no memory of the device" },
        { CL_OUT_OF_RESOURCES, "out of resources" },
        { CL_OUT_OF_HOST_MEMORY, "no memory of the host" },
        { CL_BUILD_PROGRAM_FAILURE, "a text does not compile" },
        { CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
          "a command failed that this one waits for" },
        { CL_INVALID_VALUE, "invalid value" },
        { CL_INVALID_DEVICE, "invalid device" },
        { CL_INVALID_CONTEXT, "invalid context" },
        { CL_INVALID_COMMAND_QUEUE, "invalid command queue" },
        { CL_INVALID_PROGRAM_EXECUTABLE, "no program for this device" },
        { CL_INVALID_KERNEL_NAME, "no kernel of this name" },
        { CL_INVALID_KERNEL, "invalid kernel" },
        { CL_INVALID_ARG_VALUE, "invalid argument" },
        { CL_INVALID_ARG_SIZE, "argument of a wrong size" },
        { CL_INVALID_KERNEL_ARGS, "arguments are missing" },
        { CL_INVALID_WORK_GROUP_SIZE, "invalid size of groups" },
        { CL_INVALID_WORK_ITEM_SIZE, "too many items in a group" },
        { CL_INVALID_OPERATION, "invalid operation" },
        { CL_INVALID_GLOBAL_WORK_SIZE, "invalid number of items" },
    };
    const char *name = "unknown";

    (void)g;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status)
            name = names[i].name;
    snprintf(text, size, "OpenCL status %d: %s", status, name);
}
