/* SPDX-License-Identifier: MIT */
/* pretend_cuda.cc - a libcuda.so.1 without a GPU, for tests of backends/cuda. The kernels' texts
 * are compiled as C++ for the host, with the words of backends/cuda/prelude.cu.
 *
 * It is as late and as strict as the driver may be. Commands of a stream run when somebody waits
 * for it; pinned memory is read then, other memory at once. Every other time the other streams run
 * first, as far as they may, and otherwise only as far as they must. Memory of the device can be
 * touched only while commands run, and ends at a page that never can. The items of a group take
 * turns in changing order, shared memory begins as NaN, all items have to reach the same barriers,
 * and a misaligned address is a trap. What an image holds is compared with the file that nvcc
 * wrote; its machine code is not run.
 *
 * The variable PRETEND_CUDA has settings, separated by commas: devices=N, memory=BYTES,
 * capability=75 (mma.m16n8k8 alone), fail=CALL:STATUS (CALL returns STATUS), fault=KERNEL (KERNEL ends with an illegal address). */
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <setjmp.h>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "cuda/prelude.cu"
#include "gpu/kernels/group.cl"
#include "gpu/kernels/long_list.cl"
#include "gpu/kernels/rows.cl"
#include "gpu/kernels/split.cl"

/* ---- the kernels ---- */

#undef KERNEL
#define KERNEL static
#undef KERNEL_OF
#define KERNEL_OF(items, groups) static

namespace matmul
{
#include "gpu/kernels/matmul.cl"
}
namespace gemm
{
#include "gpu/kernels/gemm.cl"
}
namespace vector_
{
#include "gpu/kernels/vector.cl"
}
namespace select_
{
#include "gpu/kernels/select.cl"
}
namespace search
{
#include "gpu/kernels/search.cl"
}
namespace pages
{
#include "gpu/kernels/pages.cl"
}
namespace index_
{
#include "gpu/kernels/index.cl"
}
namespace peak
{
#include "gpu/kernels/peak.cl"
}
#define MAX_HD 64
namespace attention_64
{
#include "gpu/kernels/attention.cl"
}
#undef MAX_HD
#define MAX_HD 128
namespace attention_128
{
#include "gpu/kernels/attention.cl"
}
#undef MAX_HD
#define MAX_HD 256
namespace attention_256
{
#include "gpu/kernels/attention.cl"
}
#undef MAX_HD
#define MAX_HD 576
namespace attention_576
{
#include "gpu/kernels/attention.cl"
}

namespace
{

using std::string;
using address = uint64_t;

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    NO_BINARY = 209,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719
};

struct kernel {
    const char *image, *name;
    void (*run)(void **arg);
    std::vector<size_t> bytes; /* of each argument; 0: an address */
};

template <auto F> struct caller;
template <class... A, void (*F)(A...)> struct caller<F> {
    template <size_t... I> static void go(void **arg, std::index_sequence<I...>)
    {
        F(*static_cast<A *>(arg[I])...);
    }
    static void run(void **arg)
    {
        go(arg, std::index_sequence_for<A...>());
    }
    static std::vector<size_t> bytes()
    {
        return { (std::is_pointer_v<A> ? 0 : sizeof(A))... };
    }
};

#define ONE(image, space, name)                                                                    \
    {                                                                                              \
        image, #name, caller<space::name>::run, caller<space::name>::bytes()                       \
    }
#define ATTENTION(hd)                                                                              \
    ONE("attention_" #hd, attention_##hd, attend), ONE("attention_" #hd, attention_##hd, score)
#define ATTENTION_MMA(hd)                                                                          \
    ONE("attention_" #hd, attention_##hd, attend_mma),                                             \
        ONE("attention_" #hd, attention_##hd, attend_few),                                         \
        ONE("attention_" #hd, attention_##hd, attend_few_bf16),                                    \
        ONE("attention_" #hd, attention_##hd, attend_few_q8)

#define FEW_OF(of)                                                                                 \
    ONE("matmul", matmul, codes_8_tok_##of), ONE("matmul", matmul, codes_32_tok_##of)

const std::vector<kernel> kernels = {
    ONE("matmul", matmul, few_1),
    ONE("matmul", matmul, few_8),
    ONE("matmul", matmul, tile),
    ONE("matmul", matmul, halves),
    ONE("matmul", matmul, unpack_rows),
    FEW_OF(q4_0),
    FEW_OF(q4_1),
    FEW_OF(q5_0),
    FEW_OF(q5_1),
    FEW_OF(q8_0),
    FEW_OF(q4_k),
    FEW_OF(q5_k),
    FEW_OF(q6_k),
    ONE("gemm", gemm, gemm_128),
    ONE("gemm", gemm, gemm_64),
    ONE("vector", vector_, rmsnorm),
    ONE("vector", vector_, rmsnorm_split),
    ONE("vector", vector_, split),
    ONE("vector", vector_, layernorm),
    ONE("vector", vector_, rope),
    ONE("vector", vector_, glu),
    ONE("vector", vector_, glu_four),
    ONE("vector", vector_, add),
    ONE("vector", vector_, scale),
    ONE("vector", vector_, join),
    ONE("vector", vector_, sink),
    ONE("vector", vector_, encode),
    ONE("vector", vector_, encode_rows),
    ONE("vector", vector_, decode),
    ONE("vector", vector_, draw_bounds),
    ONE("vector", vector_, mean_rows),
    ONE("vector", vector_, scatter),
    ONE("select", select_, part_lse),
    ONE("select", select_, head_lse),
    ONE("select", select_, best_head),
    ONE("select", select_, nearest),
    ONE("select", select_, find_places),
    ONE("select", select_, bring_rows),
    ONE("select", select_, clear_places),
    ONE("select", select_, forget_places),
    ONE("search", search, sketch_strips),
    ONE("search", search, sketch_scan),
    ONE("search", search, sketch_weigh),
    ONE("search", search, sketch_rank),
    ONE("search", search, sketch_count),
    ONE("search", search, sketch_pick),
    ONE("pages", pages, score_pages),
    ONE("pages", pages, score_blocks),
    ONE("pages", pages, pick_pages),
    ONE("pages", pages, clear_counts),
    ONE("pages", pages, count_pages),
    ONE("pages", pages, part_pages),
    ONE("pages", pages, list_pages),
    ONE("index", index_, index_put),
    ONE("index", index_, index_query),
    ONE("index", index_, index_scan),
    ONE("index", index_, index_count),
    ONE("index", index_, index_part),
    ONE("index", index_, index_list),
    ONE("index", index_, index_near),
    ONE("index", index_, index_best),
    ONE("peak", peak, read_all),
    ONE("peak", peak, multiply_add),
    ATTENTION(64),
    ATTENTION(128),
    ATTENTION(256),
    ATTENTION(576),
    ATTENTION_MMA(64),
    ATTENTION_MMA(128),
    ATTENTION_MMA(256),
};

/* ---- settings ---- */

/* The value of a setting, or "" */
string setting(const char *name)
{
    const char *all = getenv("PRETEND_CUDA");
    const string text = string(",") + (all ? all : ""), key = string(",") + name + "=";
    const size_t at = text.find(key);

    return at == string::npos
               ? ""
               : text.substr(at + key.size(), text.find(',', at + 1) - at - key.size());
}

int devices()
{
    const string n = setting("devices");
    return n.empty() ? 2 : atoi(n.c_str());
}

size_t memory()
{
    const string n = setting("memory");
    return n.empty() ? size_t(1) << 30 : strtoull(n.c_str(), nullptr, 10);
}

/* ---- state ---- */

struct module {
    string image;
};

struct function {
    const kernel *k;
};

std::map<address, size_t> blocks; /* of the device's memory: whole pages and one behind them */
std::map<address, size_t> pinned; /* host memory that was allocated, or registered */
std::map<address, size_t> registered;
std::map<address, address> first_page;
struct stream {
    std::vector<std::function<int()>> queue;
    size_t ended; /* commands that have been dropped from the queue */
    size_t next;  /* in the queue */
};

struct event {
    stream *of;
    size_t end; /* commands of the stream that come before it */
};

std::vector<stream *> streams;
std::vector<module *> modules;
std::map<std::pair<module *, string>, function *> functions;
size_t used;
int contexts, current, events, fault, waits;

/* The status of a call before it does anything */
int status_of(const char *call, bool in_context = true)
{
    const string fail = setting("fail");
    const size_t colon = fail.find(':');

    if (fault)
        return fault;
    if (colon != string::npos && fail.substr(0, colon) == call)
        return atoi(fail.c_str() + colon + 1);
    return in_context && !current ? INVALID_CONTEXT : OK;
}

const std::pair<const address, size_t> *within(const std::map<address, size_t> &of, address p)
{
    auto i = of.upper_bound(p);
    if (i == of.begin())
        return nullptr;
    --i;
    return p < i->first + i->second ? &*i : nullptr;
}

bool in_block(address p, size_t bytes)
{
    const auto *b = within(blocks, p);
    return b && p + bytes <= b->first + b->second;
}

void protect(int rights)
{
    for (const auto &b : blocks)
        mprotect(reinterpret_cast<void *>(first_page[b.first]),
                 b.first + b.second - first_page[b.first], rights);
}

/* 1: host memory that is all pinned, 0: none of it is, -1: a part */
int is_pinned(address p, size_t bytes)
{
    const auto *first = within(pinned, p);
    const auto next = pinned.upper_bound(p);

    if (first)
        return p + bytes <= first->first + first->second ? 1 : -1;
    return next != pinned.end() && next->first < p + bytes ? -1 : 0;
}

bool any_queued()
{
    for (const stream *s : streams)
        if (s->next < s->queue.size())
            return true;
    return false;
}

int run_to(stream &s, size_t end)
{
    while (s.ended + s.next < end && !fault) {
        const int err = s.queue[s.next++]();
        fault = fault ? fault : err;
    }
    return fault;
}

int drain(stream *s)
{
    static bool early;
    const bool works = any_queued();

    waits++;
    if (works)
        protect(PROT_READ | PROT_WRITE);
    early = !early;
    for (stream *other : streams)
        if (early && other != s)
            run_to(*other, other->ended + other->queue.size());
    run_to(*s, s->ended + s->queue.size());
    if (works)
        protect(PROT_NONE);
    for (stream *one : streams)
        if (fault || one->next == one->queue.size()) {
            one->ended += one->queue.size();
            one->next = 0;
            one->queue.clear();
        }
    return fault;
}

/* ---- a group of items ---- */

struct fiber {
    jmp_buf at;
    bool done;
};

enum { STACK = 64 << 10, MOST_ITEMS = PRETEND_ITEMS };
fiber items[MOST_ITEMS];
jmp_buf scheduler;
fiber *running;
void (*body)(void **arg);
void **body_arg;
char *stacks;

void suspend()
{
    fiber *me = running;
    if (!_setjmp(me->at))
        _longjmp(scheduler, 1);
}

void item_main()
{
    for (;;) {
        suspend();
        body(body_arg);
        running->done = true;
    }
}

void make_items()
{
    static ucontext_t back, item;

    if (!stacks)
        stacks =
            static_cast<char *>(mmap(nullptr, size_t(STACK) * MOST_ITEMS, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < MOST_ITEMS; i++) {
        getcontext(&item);
        item.uc_stack.ss_sp = stacks + size_t(i) * STACK;
        item.uc_stack.ss_size = STACK;
        item.uc_link = nullptr;
        makecontext(&item, item_main, 0);
        running = &items[i];
        if (!_setjmp(scheduler))
            swapcontext(&back, &item);
    }
}

/* Runs an item to its next barrier, or to its end. */
void resume(unsigned i)
{
    running = &items[i];
    threadIdx = { i, 0, 0 };
    if (!_setjmp(scheduler))
        _longjmp(running->at, 1);
}

int run_group(unsigned n)
{
    static bool backwards;

    memset(__start_shared, 0xff, size_t(__stop_shared - __start_shared));
    for (unsigned i = 0; i < n; i++) {
        items[i].done = false;
        pretend_turn[i] = 0;
        pretend_copies[i].clear();
    }
    for (unsigned ended = 0; ended < n;) {
        backwards = !backwards;
        for (unsigned i = 0; i < n; i++)
            resume(backwards ? n - 1 - i : i);
        ended = 0;
        for (unsigned i = 0; i < n; i++)
            ended += items[i].done;
        if (ended && ended < n) {
            fprintf(stderr, "pretend_cuda: some items of a group are at a barrier, others ended\n");
            make_items();
            return LAUNCH_FAILED;
        }
    }
    return OK;
}

int run_kernel(const function &f, pretend_place groups, unsigned n,
               const std::vector<std::vector<char>> &arg)
{
    std::vector<void *> at;

    for (const auto &a : arg)
        at.push_back(const_cast<char *>(a.data()));
    if (!stacks)
        make_items();
    pretend_capability = setting("capability").empty() ? 90 : atoi(setting("capability").c_str());
    body = f.k->run;
    body_arg = at.data();
    blockDim = { n, 1, 1 };
    for (unsigned z = 0; z < groups.z; z++)
        for (unsigned y = 0; y < groups.y; y++)
            for (unsigned x = 0; x < groups.x; x++) {
                blockIdx = { x, y, z };
                if (int err = run_group(n))
                    return err;
            }
    return setting("fault") == f.k->name ? ILLEGAL_ADDRESS : OK;
}

/* Is it what nvcc wrote to this file? */
bool is_file(const void *image, const string &name)
{
    std::ifstream in(string(PRETEND_IMAGES) + "/" + name + ".fatbin", std::ios::binary);
    const string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const struct head {
        uint32_t magic;
        uint16_t version, head_bytes;
        uint64_t bytes;
    } *h = static_cast<const head *>(image);

    return h->magic == 0xba55ed50u && h->head_bytes + h->bytes == file.size() &&
           !memcmp(image, file.data(), file.size());
}

} // namespace

pretend_place blockIdx, threadIdx, blockDim;
unsigned char pretend_turn[PRETEND_ITEMS];
std::vector<pretend_copy> pretend_copies[PRETEND_ITEMS];
int pretend_capability;

void pretend_barrier()
{
    suspend();
}

/* ---- the driver's calls ---- */

#define CALL extern "C" __attribute__((visibility("default"))) int

CALL pretend_cuda_live() /* what has not been given back */
{
    return int(blocks.size() + pinned.size() + modules.size() + streams.size()) + contexts +
           events + current;
}

CALL pretend_cuda_waits() /* of the host, so far */
{
    return waits;
}

CALL cuInit(unsigned)
{
    const int err = status_of("cuInit", false);
    return err ? err : devices() ? OK : NO_DEVICE;
}

CALL cuGetErrorString(int status, const char **text)
{
    *text = status == OUT_OF_MEMORY     ? "out of memory"
            : status == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
            : status == LAUNCH_FAILED   ? "unspecified launch failure"
            : status == NO_BINARY       ? "no kernel image is available for the device"
                                        : nullptr;
    return *text ? OK : INVALID_VALUE;
}

CALL cuDeviceGetCount(int *n)
{
    *n = devices();
    return OK;
}

CALL cuDeviceGet(int *d, int i)
{
    *d = i;
    return i < 0 || i >= devices() ? INVALID_DEVICE : OK;
}

CALL cuDeviceGetName(char *name, int size, int d)
{
    snprintf(name, size_t(size), "Pretended device %d", d);
    return OK;
}

CALL cuDeviceTotalMem_v2(size_t *bytes, int)
{
    *bytes = memory();
    return OK;
}

CALL cuDevicePrimaryCtxRetain(void **c, int)
{
    const int err = status_of("cuDevicePrimaryCtxRetain", false);

    if (err)
        return err;
    contexts++;
    *c = &contexts;
    return OK;
}

CALL cuDevicePrimaryCtxRelease_v2(int)
{
    contexts--;
    return OK;
}

CALL cuCtxPushCurrent_v2(void *c)
{
    if (c != &contexts)
        return INVALID_CONTEXT;
    current++;
    return OK;
}

CALL cuCtxPopCurrent_v2(void **c)
{
    if (!current)
        return INVALID_CONTEXT;
    current--;
    *c = &contexts;
    return OK;
}

CALL cuMemGetInfo_v2(size_t *free_bytes, size_t *all)
{
    *all = memory();
    *free_bytes = *all - used;
    return status_of("cuMemGetInfo_v2");
}

CALL cuMemAlloc_v2(address *p, size_t bytes)
{
    enum { PAGE = 4096, ALIGN = 256 };
    const size_t data = (bytes + ALIGN - 1) / ALIGN * ALIGN,
                 pages = (data + PAGE - 1) / PAGE * PAGE;
    const int err = status_of("cuMemAlloc_v2");
    void *at;

    if (err)
        return err;
    if (!bytes)
        return INVALID_VALUE;
    if (used + bytes > memory())
        return OUT_OF_MEMORY;
    at = mmap(nullptr, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return OUT_OF_MEMORY;
    memset(at, 0xff, pages);
    mprotect(at, pages + PAGE, PROT_NONE);
    *p = reinterpret_cast<address>(at) + pages - data;
    first_page[*p] = reinterpret_cast<address>(at);
    blocks[*p] = data;
    used += data;
    return OK;
}

CALL cuMemFree_v2(address p)
{
    enum { PAGE = 4096 };
    const auto b = blocks.find(p);

    if (b == blocks.end())
        return INVALID_VALUE;
    if (any_queued() && !fault) {
        fprintf(stderr, "pretend_cuda: memory is freed while commands are queued\n");
        fault = LAUNCH_FAILED;
    }
    munmap(reinterpret_cast<void *>(first_page[p]), p + b->second - first_page[p] + PAGE);
    used -= b->second;
    first_page.erase(p);
    blocks.erase(b);
    return fault;
}

CALL cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    const int err = status_of("cuMemHostAlloc");

    if (err)
        return err;
    if (posix_memalign(p, 4096, bytes))
        return OUT_OF_MEMORY;
    pinned[reinterpret_cast<address>(*p)] = bytes;
    return OK;
}

CALL cuMemFreeHost(void *p)
{
    if (registered.count(reinterpret_cast<address>(p)) ||
        !pinned.erase(reinterpret_cast<address>(p)))
        return INVALID_VALUE;
    if (any_queued() && !fault) {
        fprintf(stderr, "pretend_cuda: host memory is freed while commands are queued\n");
        fault = LAUNCH_FAILED;
    }
    free(p);
    return fault;
}

CALL cuMemHostRegister_v2(void *p, size_t bytes, unsigned)
{
    enum { PAGE = 4096, ALREADY = 712 };
    const auto at = reinterpret_cast<address>(p);
    const int err = status_of("cuMemHostRegister_v2");

    if (err)
        return err;
    if (!bytes || at % PAGE || bytes % PAGE)
        return INVALID_VALUE;
    if (is_pinned(at, bytes))
        return ALREADY;
    pinned[at] = registered[at] = bytes;
    return OK;
}

CALL cuMemHostUnregister(void *p)
{
    if (!registered.erase(reinterpret_cast<address>(p)))
        return INVALID_VALUE;
    pinned.erase(reinterpret_cast<address>(p));
    if (any_queued() && !fault) {
        fprintf(stderr, "pretend_cuda: host memory is unregistered while commands are queued\n");
        fault = LAUNCH_FAILED;
    }
    return fault;
}

CALL cuMemHostGetDevicePointer_v2(address *p, void *host, unsigned)
{
    const int err = status_of("cuMemHostGetDevicePointer_v2");

    *p = reinterpret_cast<address>(host);
    return err ? err : within(pinned, *p) ? OK : INVALID_VALUE;
}

CALL pretend_cuda_registered() /* pages */
{
    size_t bytes = 0;

    for (const auto &r : registered)
        bytes += r.second;
    return int(bytes / 4096);
}

CALL cuMemcpyAsync(address to, address from, size_t bytes, void *of)
{
    const bool to_on = within(blocks, to), from_on = within(blocks, from);
    const int err = status_of("cuMemcpyAsync");
    void *t = reinterpret_cast<void *>(to);
    const void *f = reinterpret_cast<const void *>(from);
    auto *s = static_cast<stream *>(of);

    if (err)
        return err;
    if ((!to_on && !from_on) || (to_on && !in_block(to, bytes)) ||
        (from_on && !in_block(from, bytes)) || (!to_on && is_pinned(to, bytes) < 0) ||
        (!from_on && is_pinned(from, bytes) < 0))
        return INVALID_VALUE;
    if (!from_on && !is_pinned(from, bytes)) { /* it may change as soon as the call returns */
        const string bytes_now(static_cast<const char *>(f), bytes);
        s->queue.push_back([=] { return memcpy(t, bytes_now.data(), bytes) ? OK : OK; });
        return OK;
    }
    s->queue.push_back([=] { return memcpy(t, f, bytes) ? OK : OK; });
    return !to_on && !is_pinned(to, bytes) ? drain(s) : OK;
}

CALL cuStreamCreate(void **s, unsigned)
{
    const int err = status_of("cuStreamCreate");

    if (err)
        return err;
    streams.push_back(new stream{});
    *s = streams.back();
    return OK;
}

CALL cuStreamDestroy_v2(void *s)
{
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s) {
            delete streams[i];
            streams.erase(streams.begin() + long(i));
            return OK;
        }
    return INVALID_VALUE;
}

CALL cuStreamSynchronize(void *s)
{
    const int err = status_of("cuStreamSynchronize");
    return err ? err : drain(static_cast<stream *>(s));
}

CALL cuEventCreate(void **e, unsigned)
{
    const int err = status_of("cuEventCreate");

    if (err)
        return err;
    events++;
    *e = new event{};
    return OK;
}

CALL cuEventDestroy_v2(void *e)
{
    events--;
    delete static_cast<event *>(e);
    return OK;
}

CALL cuEventRecord(void *e, void *s)
{
    auto *of = static_cast<stream *>(s);

    *static_cast<event *>(e) = { of, of->ended + of->queue.size() };
    return status_of("cuEventRecord");
}

CALL cuStreamWaitEvent(void *s, void *e, unsigned)
{
    const event at = *static_cast<event *>(e);
    const int err = status_of("cuStreamWaitEvent");

    if (!err)
        static_cast<stream *>(s)->queue.push_back([=] { return run_to(*at.of, at.end); });
    return err;
}

CALL cuModuleLoadData(void **m, const void *image)
{
    const int err = status_of("cuModuleLoadData");

    if (err)
        return err;
    for (const kernel &k : kernels)
        if (is_file(image, k.image)) {
            modules.push_back(new module{ k.image });
            *m = modules.back();
            return OK;
        }
    return NO_BINARY;
}

CALL cuModuleUnload(void *m)
{
    for (auto f = functions.begin(); f != functions.end();) {
        if (f->first.first != m) {
            ++f;
            continue;
        }
        delete f->second;
        f = functions.erase(f);
    }
    for (size_t i = 0; i < modules.size(); i++)
        if (modules[i] == m) {
            delete modules[i];
            modules.erase(modules.begin() + long(i));
            return OK;
        }
    return INVALID_VALUE;
}

CALL cuModuleGetFunction(void **f, void *m, const char *name)
{
    const int err = status_of("cuModuleGetFunction");
    auto *of = static_cast<module *>(m);

    if (err)
        return err;
    for (const kernel &k : kernels)
        if (of->image == k.image && !strcmp(k.name, name)) {
            function *&at = functions[{ of, name }];
            if (!at)
                at = new function{ &k };
            *f = at;
            return OK;
        }
    return NOT_FOUND;
}

CALL cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned n, unsigned n_y,
                    unsigned n_z, unsigned, void *s, void **arg, void **)
{
    const function of = *static_cast<const function *>(f);
    const int err = status_of("cuLaunchKernel");
    std::vector<std::vector<char>> copy;

    if (err)
        return err;
    if (!x || !y || !z || y > 65535 || z > 65535 || n > MOST_ITEMS || n_y != 1 || n_z != 1)
        return INVALID_VALUE;
    for (size_t i = 0; i < of.k->bytes.size(); i++) {
        const size_t bytes = of.k->bytes[i] ? of.k->bytes[i] : sizeof(address);
        const auto *p = static_cast<const char *>(arg[i]);
        address at;
        copy.emplace_back(p, p + bytes);
        memcpy(&at, p, of.k->bytes[i] ? 0 : sizeof at);
        if (!of.k->bytes[i] && at && !within(blocks, at)) {
            fprintf(stderr, "pretend_cuda: %s: argument %zu is no address on the device\n",
                    of.k->name, i);
            return fault = ILLEGAL_ADDRESS;
        }
    }
    static_cast<stream *>(s)->queue.push_back([=] { return run_kernel(of, { x, y, z }, n, copy); });
    return OK;
}
