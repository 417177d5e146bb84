// The buffer type that llama.cpp puts weights into, and what takes its operations over.
#include "library.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include "kind.h"

namespace uad {

Ggml calls;
Ops ops;
std::atomic<bool> attention_in_tiles{true};

namespace {

const Kind * kind = nullptr;

// ---- which kinds this processor runs

#if defined(__x86_64__)
uint32_t cpuid(int leaf, int subleaf, int which) {
    uint32_t r[4] = {0, 0, 0, 0};
    __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]);
    return r[which];
}
uint32_t leaf7(int subleaf, int which) { return cpuid(7, subleaf, which); }

// Whether there are matrix units, and the system lets this process use them: it has to be asked.
bool has_matrix_units() {
#if defined(UAD_EMULATED_TILES)
    return true;
#elif defined(__linux__) && defined(SYS_arch_prctl)
    constexpr int kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA (Linux 5.16)
    constexpr uint32_t kTiles = 1u << 24, kBf16 = 1u << 22;
    return (leaf7(0, 3) & kTiles) && (leaf7(0, 3) & kBf16) && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
    return false;
#endif
}

bool runs(const Kind & one) {
    if (!one.product) return false;  // left out
    __builtin_cpu_init();
    if (&one == &amx) return runs(avx512bf16) && has_matrix_units();
    if (&one == &avx2 || &one == &avxvnni) {
        const bool has_f16c = cpuid(1, 0, 2) >> 29 & 1;  // Clang's builtin does not know the word
        const bool has = has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        return has && (&one == &avx2 || (leaf7(1, 0) >> 4 & 1));
    }
    const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    return has && (&one == &avx512 || (leaf7(1, 0) >> 5 & 1));
}
const Kind * const kinds[] = {&amx, &avx512bf16, &avx512, &avxvnni, &avx2};
#elif defined(__aarch64__)
bool runs(const Kind & one) {
    if (!one.product) return false;  // left out
#if defined(__linux__)
    const bool has_dots = getauxval(AT_HWCAP) >> 20 & 1;  // of bytes (HWCAP_ASIMDDP)
    return has_dots && (&one == &neon || (getauxval(AT_HWCAP2) >> 13 & 1));  // HWCAP2_I8MM
#elif defined(__APPLE__)
    int has = 0;
    size_t size = sizeof(has);
    return &one == &neon || (sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, nullptr, 0) == 0 && has);
#else
    return &one == &neon;
#endif
}
const Kind * const kinds[] = {&i8mm, &neon};
#endif

// ---- parts that may be switched off

constexpr int kAttention = -1, kActivations = -2;

struct PartOf {
    const char * name;
    int type;  // of weights, or one of these
    std::atomic<bool> is_on;
};
PartOf parts[] = {
#define UAD_PART(NAME, NUMBER, TEXT, COLUMNS, BYTES) {TEXT, NUMBER, {true}},
    UAD_TYPES(UAD_PART)
#undef UAD_PART
    {"attention", kAttention, {true}}, {"activations", kActivations, {true}},
};

bool is_on(int type) {
    for (const PartOf & part : parts)
        if (part.type == type) return part.is_on;
    return false;
}

std::atomic<uint64_t> n_products, n_experts, n_attended, n_of_activations;

// ---- the buffer

ggml::BufferType * buffer_type();

bool is_ours(const ggml::Tensor * t) { return t->buffer && t->buffer->buft == buffer_type(); }

size_t packed_bytes(const ggml::Tensor * t) {
    return kind->matrix_bytes(t->type, t->ne[0], t->ne[1]) * t->ne[2] * t->ne[3];
}

const char * name_of(ggml::BufferType *) { return "CPU_UAD"; }
size_t alignment(ggml::BufferType *) { return 64; }
size_t size_of(ggml::BufferType *, const ggml::Tensor * t) { return packed_bytes(t); }

// The rows of all matrices are packed by as many threads as there are cores: llama.cpp loads with one.
void set_tensor(ggml::Buffer *, ggml::Tensor * t, const void * data, size_t offset, size_t size) {
    if (offset || size != (size_t) (t->nb[3] * t->ne[3]) || t->view_src) give_up("a part of a weight cannot be written", t);
    const int64_t k = t->ne[0], rows = t->ne[1], n = t->ne[2] * t->ne[3], n_groups = (rows + kGroup - 1) / kGroup;
    const size_t file = t->nb[2], packed = kind->matrix_bytes(t->type, k, rows);
    auto share = [&](int64_t first, int64_t last) {  // of all matrices' groups
        for (int64_t g = first; g < last;) {
            const int64_t m = g / n_groups, until = std::min(last, (m + 1) * n_groups);
            kind->repack(t->type, k, rows, (const char *) data + m * file, (char *) t->data + m * packed, g - m * n_groups, until - m * n_groups);
            g = until;
        }
    };
    const int64_t total = n * n_groups;
    const int64_t n_threads = total * (int64_t) k < (1 << 16) ? 1 : std::max(1u, std::min(std::thread::hardware_concurrency(), 16u));
    std::vector<std::thread> threads;
    threads.reserve(n_threads);
    for (int64_t i = 1; i < n_threads; i++) {
        const int64_t first = total * i / n_threads;
        try {
            threads.emplace_back(share, first, total * (i + 1) / n_threads);
        } catch (const std::system_error &) {  // the system allows no more threads
            share(first, total);
            break;
        }
    }
    share(0, total / n_threads);
    for (std::thread & thread : threads) thread.join();
}

int init_tensor(ggml::Buffer *, ggml::Tensor *) { return 0; }

ggml::Buffer * allocate(ggml::BufferType * type, size_t size) {
    ggml::Buffer * buffer = calls.alloc_buffer(calls.cpu_buffer_type(), size);
    if (!buffer) return nullptr;
    buffer->buft = type;
    buffer->iface.init_tensor = init_tensor;
    buffer->iface.set_tensor = set_tensor;
    buffer->iface.get_tensor = nullptr;
    buffer->iface.cpy_tensor = nullptr;
#if defined(MADV_HUGEPAGE)
    const uintptr_t page = 1 << 21, from = ((uintptr_t) buffer->iface.get_base(buffer) + page - 1) & ~(page - 1);
    const uintptr_t to = ((uintptr_t) buffer->iface.get_base(buffer) + size) & ~(page - 1);
    if (from < to) madvise((void *) from, to - from, MADV_HUGEPAGE);
#endif
    return buffer;
}

// ---- the operations

// Whether an operation is a product with weights in our buffer that can be computed here.
bool multiplies(const ggml::Tensor * op) {
    const ggml::Tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    if (op->op != ops.mul_mat && op->op != ops.mul_mat_id) return false;
    if (!is_ours(w) || kind->group_offset(w) < 0 || x->type != ggml::F32 || op->type != ggml::F32) return false;
    if (op->op == ops.mul_mat) return true;
    return ids->type == ggml::I32 && w->ne[3] == 1 && x->ne[1] > 0 && ids->ne[0] % x->ne[1] == 0 && x->ne[2] == ids->ne[1];
}

// Whether the loader is to put a weight into our buffer: of a type that is on, whole, and in the order of a file.
bool is_wanted(const ggml::Tensor * w) {
    const ggml::Block block = ggml::block_of(w->type);
    if (!is_on(w->type) || packed_bytes(w) == 0) return false;
    if (w->nb[1] != w->nb[0] * (w->ne[0] / block.columns) || w->nb[2] != w->nb[1] * w->ne[1]) return false;
    // a factor beside a matrix ("blk.0.attn_output.scale"): llama.cpp's loader asks as if it were one
    const char * suffix = strrchr(w->name, '.');
    return w->ne[1] != 1 || !suffix || (strcmp(suffix, ".scale") && strcmp(suffix, ".input_scale"));
}

struct Products : ggml::Operation {
    bool work_size(int n_threads, const ggml::Tensor * op, size_t & size) override {
        size = kind->product_size(n_threads, op);
        return true;
    }
    bool compute_forward(ggml::Compute * compute, ggml::Tensor * op) override {
        if (!multiplies(op)) give_up("this view of a weight cannot be multiplied", op->src[0]);  // rather than wrongly
        if (compute->ith == 0) (op->op == ops.mul_mat ? n_products : n_experts).fetch_add(1, std::memory_order_relaxed);
        kind->product(compute, op);
        return true;
    }
};

struct Attention : ggml::Operation {
    bool work_size(int n_threads, const ggml::Tensor * op, size_t & size) override {
        size = kind->attend_size(n_threads, op);
        return true;
    }
    bool compute_forward(ggml::Compute * compute, ggml::Tensor * op) override {
        if (compute->ith == 0) n_attended.fetch_add(1, std::memory_order_relaxed);
        kind->attend(compute, op);
        return true;
    }
};

struct Activations : ggml::Operation {
    bool work_size(int n_threads, const ggml::Tensor * op, size_t & size) override {
        size = kind->of_activations_size(n_threads, op);
        return true;
    }
    bool compute_forward(ggml::Compute * compute, ggml::Tensor * op) override {
        if (compute->ith == 0) n_of_activations.fetch_add(1, std::memory_order_relaxed);
        kind->of_activations(compute, op);
        return true;
    }
};

struct Extra : ggml::Extra {
    Products products;
    Attention attention;
    Activations activations;

    // Asked by the loader, for weights that lie in an empty buffer of ours, and by whoever plans a graph.
    bool supports_op(void *, const ggml::Tensor * op) override {
        if (!multiplies(op)) return false;
        const ggml::Tensor *w = op->src[0], *x = op->src[1];
        // the loader asks with an empty buffer; what lies in one of ours stays, whatever is switched off since
        const bool is_loading = w->buffer->size == 0 && !w->view_src;
        return (!is_loading || is_wanted(w)) && (!x->buffer || calls.is_host(x->buffer->buft));
    }
    ggml::Operation * get_tensor_traits(const ggml::Tensor * op) override {
        if ((op->op == ops.mul_mat || op->op == ops.mul_mat_id) && is_ours(op->src[0])) return &products;
        if (op->op == ops.flash_attn_ext && is_on(kAttention) && kind->attends(op)) return &attention;
        if (op->op == ops.mul_mat && is_on(kActivations) && kind->is_of_activations(op)) return &activations;
        return nullptr;
    }
};

ggml::BufferType * buffer_type() {
    static ggml::BufferType type = {
        {name_of, allocate, alignment, nullptr, size_of, nullptr}, calls.device_of(calls.cpu_buffer_type()), new Extra()};
    return &type;
}

constexpr const char * kFunctions =
    "ggml_barrier _Z39ggml_backend_cpu_get_extra_buffer_typesv ggml_backend_cpu_buffer_type ggml_backend_buft_alloc_buffer "
    "ggml_backend_buft_is_host ggml_op_name ggml_backend_buft_get_device";
constexpr int kNFunctions = 7;

}  // namespace
}  // namespace uad

using namespace uad;

extern "C" {

int uad_kernels_abi(void) { return 3; }

const char * uad_kernels_kinds(void) {
    static const std::string names = [] {
        std::string all;
        for (const Kind * one : kinds)
            if (runs(*one)) all += (all.empty() ? "" : " ") + std::string(one->name);
        return all;
    }();
    return names.c_str();
}

const char * uad_kernels_parts(void) {
    static const std::string names = [] {
        std::string all;
        for (const PartOf & part : parts) all += (all.empty() ? "" : " ") + std::string(part.name);
        return all;
    }();
    return names.c_str();
}

const char * uad_kernels_functions(void) { return kFunctions; }

const char * uad_kernels_grids(void) { return kGridFunctions; }

void uad_kernels_read_grid(const char * name, void * function) {
    Dequantize values;
    memcpy(&values, &function, sizeof(values));
    read_grid(name, values);
}

const char * uad_kernels_register(const char * name, void * const * functions, int n_functions) {
    if (kind) return "the kernels are registered already";
    if (n_functions != kNFunctions) return "this library and uad do not fit together: another number of functions";
    for (int i = 0; i < n_functions; i++)
        if (!functions[i]) return "a function of ggml is missing";
    const Kind * wanted = nullptr;
    for (const Kind * one : kinds)
        if (!strcmp(one->name, name) && runs(*one)) wanted = one;
    if (!wanted) return "this processor does not run that kind of kernels";

    auto set = [&](auto & call, int i) { memcpy(&call, &functions[i], sizeof(void *)); };
    set(calls.barrier, 0);
    set(calls.extra_types, 1);
    set(calls.cpu_buffer_type, 2);
    set(calls.alloc_buffer, 3);
    set(calls.is_host, 4);
    set(calls.op_name, 5);
    set(calls.device_of, 6);
    for (PartOf & part : parts) part.is_on = has_grid(part.type);
    ops = {-1, -1, -1};
    for (int i = 0; i < 64; i++) {  // ggml has a hundred operations; these are among the first half
        const char * op = calls.op_name(i);
        if (!strcmp(op, "MUL_MAT")) ops.mul_mat = i;
        if (!strcmp(op, "MUL_MAT_ID")) ops.mul_mat_id = i;
        if (!strcmp(op, "FLASH_ATTN_EXT")) ops.flash_attn_ext = i;
    }
    for (int i = 64; i < 80 && ops.flash_attn_ext < 0; i++)
        if (!strcmp(calls.op_name(i), "FLASH_ATTN_EXT")) ops.flash_attn_ext = i;
    if (ops.mul_mat < 0 || ops.mul_mat_id < 0 || ops.flash_attn_ext < 0) return "an operation of ggml is missing";
    kind = wanted;
    // llama.cpp's own buffers for matrix units end the process in builds of GCC 12 and older, and refuse what some graphs
    // do with a weight that they took: with kernels that have all of their types nothing is lost without them.
    auto & types = calls.extra_types();
    types.erase(std::remove_if(types.begin(), types.end(), [](ggml::BufferType * type) { return !strcmp(type->iface.get_name(type), "AMX"); }), types.end());
    types.insert(types.begin(), buffer_type());
    return nullptr;
}

bool uad_kernels_set(const char * name, bool is_on) {
    for (PartOf & part : parts)
        if (!strcmp(part.name, name)) {
            part.is_on = is_on && has_grid(part.type);
            return true;
        }
    if (strcmp(name, "attention in tiles")) return false;
    attention_in_tiles = is_on;
    return true;
}

uint64_t uad_kernels_count(const char * what) {
    if (!strcmp(what, "products")) return n_products;
    if (!strcmp(what, "experts")) return n_experts;
    if (!strcmp(what, "attention")) return n_attended;
    if (!strcmp(what, "activations")) return n_of_activations;
    return 0;
}

}
