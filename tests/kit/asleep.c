/* SPDX-License-Identifier: MIT */
/* asleep.c - the state of a thread, as /proc has it. */
#include "asleep.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cb_asleep(int tid)
{
    char path[64], line[512] = "";
    const char *end;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    if (!fgets(line, sizeof line, f))
        *line = '\0';
    fclose(f);
    end = strrchr(line, ')'); /* the name may have blanks */
    return end && end[1] == ' ' && end[2] == 'S';
}

void cb_until_asleep(int tid)
{
    while (!cb_asleep(tid))
        usleep(100);
}
