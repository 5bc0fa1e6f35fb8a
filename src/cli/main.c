/* SPDX-License-Identifier: MIT */
/* main.c - where the program starts. */
#include "base/json_lenient.h"
#include "cmd.h"
#include "ranked.h"

int main(int argc, char **argv)
{
    cb_json_watch();
    return cb_cmd_main(cb_cmd_all, cb_ranked_run, argc, argv);
}
