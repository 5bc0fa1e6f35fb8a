/* SPDX-License-Identifier: MIT */
/* check_cpus.c - cores, caches, quotas and memory, read from made-up folders of the kernel. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/free_memory.h"
#include "kit/folder.h"
#include "kit/suite.h"
#include "par/cpus.h"

static const char *root;

static void setup(void)
{
    root = cb_folder_make("check_cpus");
}

static void siblings(int cpu, const char *file, const char *list)
{
    char name[128];
    snprintf(name, sizeof name, "cpu%d/topology/%s", cpu, file);
    cb_folder_put(name, list);
}

START_TEST(hardware_threads_count_once)
{
    const unsigned char all[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const unsigned char upper[8] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    const unsigned char pair[8] = { 0, 1, 0, 0, 0, 1, 0, 0 };

    for (int i = 0; i < 4; i++) { /* 0,4 1,5 2,6 3,7 */
        char list[32];
        snprintf(list, sizeof list, "%d,%d\n", i, i + 4);
        siblings(i, "core_cpus_list", list);
        siblings(i + 4, "core_cpus_list", list);
    }
    ck_assert_int_eq(cb_cpus_cores(root, all, 8), 4);
    ck_assert_int_eq(cb_cpus_cores(root, upper, 8), 4); /* the lower ones are not ours */
    ck_assert_int_eq(cb_cpus_cores(root, pair, 8), 1);
}
END_TEST

START_TEST(old_names_and_none)
{
    const unsigned char all[4] = { 1, 1, 1, 1 };

    siblings(0, "thread_siblings_list", "0-1\n");
    siblings(1, "thread_siblings_list", "0-1\n");
    ck_assert_int_eq(cb_cpus_cores(root, all, 4), 3); /* 2 and 3 say nothing: a core each */
    ck_assert_int_eq(cb_cpus_cores("/no/such", all, 4), 4);
}
END_TEST

static void cache(int i, const char *level, const char *type, const char *size, const char *list)
{
    const char *const text[] = { level, type, size, list };
    static const char *const file[] = { "level", "type", "size", "shared_cpu_list" };

    for (int k = 0; k < 4; k++) {
        char name[128];
        snprintf(name, sizeof name, "cpu0/cache/index%d/%s", i, file[k]);
        cb_folder_put(name, text[k]);
    }
}

START_TEST(caches)
{
    struct cpu_cache c;

    ck_assert(!cb_cpus_cache(root, 0, &c));
    cache(0, "1\n", "Data\n", "48K\n", "0,64\n");
    cache(1, "3\n", "Unified\n", "32M\n", "0-7,64-71\n");
    ck_assert(cb_cpus_cache(root, 0, &c));
    ck_assert(c.level == 1 && c.kind == 'D' && c.bytes == 48 << 10 && c.n_cpu == 2);
    ck_assert(cb_cpus_cache(root, 1, &c));
    ck_assert(c.level == 3 && c.kind == 'U' && c.bytes == 32 << 20 && c.n_cpu == 16);
    ck_assert(!cb_cpus_cache(root, 2, &c));
}
END_TEST

/* Binds the caller to its first processor. Returns the affinity that it had. */
static cpu_set_t bind_to_one(void)
{
    cpu_set_t was, one;
    int cpu = 0;

    ck_assert(!sched_getaffinity(0, sizeof was, &was));
    while (!CPU_ISSET(cpu, &was))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert(!sched_setaffinity(0, sizeof one, &one));
    return was;
}

START_TEST(cold_bytes)
{
    const size_t quarter = (size_t)(cb_free_bytes() / 4), least = 512 << 20;
    cpu_set_t was;

    ck_assert(cb_cpus_last_caches(root) == 0);
    ck_assert(cb_cpus_cold_bytes(root, 16) == least || quarter < 2 * least);
    cache(0, "1\n", "Data\n", "48K\n", "0\n");
    cache(1, "3\n", "Unified\n", "64M\n", "0-7\n");
    was = bind_to_one();
    ck_assert(cb_cpus_last_caches(root) == 64 << 20);
    ck_assert(cb_cpus_cold_bytes(root, 2) == least || quarter < 2 * least);
    ck_assert(cb_cpus_cold_bytes(root, 16) == 2 * least || quarter < 4 * least);
    ck_assert(cb_cpus_cold_bytes(root, 1 << 20) < quarter + quarter / 2);
    ck_assert(!sched_setaffinity(0, sizeof was, &was));
    ck_assert(cb_cpus_last_caches(root) % (64 << 20) == 0);
}
END_TEST

static double quota(const char *groups)
{
    char file[512];
    snprintf(file, sizeof file, "%s", cb_folder_put("groups", groups));
    return cb_cpus_quota(file, root);
}

START_TEST(version_2)
{
    ck_assert(quota("0::/a/b\n") == 0);
    cb_folder_put("a/b/cpu.max", "max 100000\n");
    ck_assert(quota("0::/a/b\n") == 0);
    cb_folder_put("a/cpu.max", "150000 100000\n");
    ck_assert(quota("0::/a/b\n") == 1.5); /* the group above binds too */
    cb_folder_put("a/b/cpu.max", "50000 100000\n");
    ck_assert(quota("0::/a/b\n") == 0.5);
    ck_assert(quota("0::/a\n") == 1.5);
    cb_folder_put("cpu.max", "25000 100000\n");
    ck_assert(quota("0::/not/here\n") == 0.25); /* seen from inside a container */
}
END_TEST

START_TEST(version_1)
{
    cb_folder_put("cpu/x/cpu.cfs_quota_us", "300000\n");
    cb_folder_put("cpu/x/cpu.cfs_period_us", "100000\n");
    ck_assert(quota("5:memory:/x\n4:cpu,cpuacct:/x\n1:name=systemd:/\n") == 3);
    ck_assert(quota("5:cpuset:/x\n4:cpuacct:/x\n") == 0);
    cb_folder_put("cpu/x/cpu.cfs_quota_us", "-1\n");
    ck_assert(quota("4:cpu:/x\n") == 0);
    cb_folder_put("cpu/cpu.cfs_quota_us", "200000\n");
    cb_folder_put("cpu/cpu.cfs_period_us", "100000\n");
    ck_assert(quota("4:cpu:/x\n") == 2);
    ck_assert(cb_cpus_quota("/no/such", root) == 0);
}
END_TEST

static uint64_t free_mib(const char *groups)
{
    char info[512], file[512];

    snprintf(info, sizeof info, "%s",
             cb_folder_put("meminfo", "MemTotal: 9000000 kB\nMemAvailable:  8192000 kB\n"));
    snprintf(file, sizeof file, "%s", cb_folder_put("groups", groups));
    return cb_free_bytes_by(info, file, root) >> 20;
}

START_TEST(memory_of_version_2)
{
    ck_assert(cb_free_bytes_by("/no/such", "/no/such", root) == 0);
    ck_assert(free_mib("0::/a/b\n") == 8000);
    cb_folder_put("a/b/memory.max", "max\n");
    cb_folder_put("a/b/memory.high", "max\n");
    cb_folder_put("a/b/memory.current", "1048576\n");
    ck_assert(free_mib("0::/a/b\n") == 8000);
    cb_folder_put("a/memory.max", "2147483648\n");
    cb_folder_put("a/memory.current", "536870912\n");
    ck_assert(free_mib("0::/a/b\n") == 1536); /* the group above binds too */
    cb_folder_put("a/memory.stat", "anon 1\ninactive_file 134217728\nactive_file 134217728\n");
    ck_assert(free_mib("0::/a/b\n") == 1792); /* caches of files make room */
    cb_folder_put("a/b/memory.high", "3145728\n");
    ck_assert(free_mib("0::/a/b\n") == 2);
    cb_folder_put("a/b/memory.high", "524288\n");
    ck_assert(free_mib("0::/a/b\n") == 0); /* over its limit */
    cb_folder_put("memory.max", "1073741824\n");
    cb_folder_put("memory.current", "0\n");
    ck_assert(free_mib("0::/not/here\n") == 1024); /* seen from inside a container */
}
END_TEST

START_TEST(memory_of_version_1)
{
    cb_folder_put("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    cb_folder_put("memory/x/memory.usage_in_bytes", "1048576\n");
    ck_assert(free_mib("4:memory:/x\n1:name=systemd:/\n") == 8000);
    cb_folder_put("memory/x/memory.limit_in_bytes", "1073741824\n");
    cb_folder_put("memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 524288\n");
    ck_assert(free_mib("4:memory:/x\n0::/\n") == 1023);
    ck_assert(free_mib("4:cpu:/x\n") == 8000);
}
END_TEST

START_TEST(names)
{
    char name[80];

    cb_cpus_name(
        cb_folder_put("cpuinfo",
                      "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\n"
                      "model name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n"),
        name, sizeof name);
    ck_assert_str_eq(name, "AMD EPYC, family 25 model 17, 2 processors");
    cb_cpus_name(cb_folder_put("cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n"), name,
                 sizeof name);
    ck_assert_str_eq(name, "1 processor");
    cb_cpus_name("/no/such", name, sizeof name);
    ck_assert_str_eq(name, "0 processors");
}
END_TEST

START_TEST(affinity_binds_the_default)
{
    const cpu_set_t was = bind_to_one();

    ck_assert_int_eq(cb_cpus_default(), 1);
    ck_assert(!sched_setaffinity(0, sizeof was, &was));
}
END_TEST

START_TEST(default_is_possible)
{
    const int n = cb_cpus_default();
    ck_assert_int_ge(n, 1);
    ck_assert_int_le(n, (int)sysconf(_SC_NPROCESSORS_ONLN));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpus");
    TCase *t = tcase_create("cpus");

    tcase_add_checked_fixture(t, setup, cb_folder_remove);
    tcase_add_test(t, hardware_threads_count_once);
    tcase_add_test(t, old_names_and_none);
    tcase_add_test(t, caches);
    tcase_add_test(t, cold_bytes);
    tcase_add_test(t, version_2);
    tcase_add_test(t, version_1);
    tcase_add_test(t, memory_of_version_2);
    tcase_add_test(t, memory_of_version_1);
    tcase_add_test(t, names);
    tcase_add_test(t, affinity_binds_the_default);
    tcase_add_test(t, default_is_possible);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
