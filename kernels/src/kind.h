// One kind of processor: the functions that its source file compiled, and what all kinds share.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ggml_facts.h"

namespace uad {

// Functions of ggml, set when the library is registered.
struct Ggml {
    void (*barrier)(void * threadpool);
    ggml::ExtraTypes extra_types;
    ggml::BufferType * (*cpu_buffer_type)();
    ggml::Buffer * (*alloc_buffer)(ggml::BufferType *, size_t);
    bool (*is_host)(ggml::BufferType *);
    const char * (*op_name)(int);
    void * (*device_of)(ggml::BufferType *);
};
extern Ggml calls;

// Number of an operation by name, in the ggml that runs.
struct Ops {
    int mul_mat, mul_mat_id, flash_attn_ext;
};
extern Ops ops;

// Tables of types whose values come in groups of eight or four, by number: a code of 3 bits for each, in a nibble. Byte i
// has value i in the low nibble, and value i + 4 in the high one. ggml's own are read when the library is registered.
// IQ1's are there twice, the second time with signs, and IQ3's, the second time in the high nibbles.
struct Grids {
    uint32_t iq1[2 * 2048], iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[2 * 256], iq3_s[2 * 512];

    void double_them() {
        for (int i = 0; i < 2048; i++) iq1[2048 + i] = iq1[i] | 0x88888888;
        for (int i = 0; i < 256; i++) iq3_xxs[256 + i] = iq3_xxs[i] << 4;
        for (int i = 0; i < 512; i++) iq3_s[512 + i] = iq3_s[i] << 4;
    }
};
extern Grids grids;
using Dequantize = void (*)(const void * blocks, float * to, int64_t n);
bool has_grid(int type);                              // true for types without one
void read_grid(const char * name, Dequantize values);  // name: of the function of ggml
extern const char * const kGridFunctions;             // their names, with spaces between

// Whether attention may be in tiles, where there are matrix units: a row's bits then depend on where its cells lie.
extern std::atomic<bool> attention_in_tiles;

constexpr int kGroup = 16;  // rows that are repacked together

struct Kind {
    const char * name;

    // Products with repacked weights (product.h).
    size_t (*matrix_bytes)(int type, int64_t k, int64_t rows);
    void (*repack)(int type, int64_t k, int64_t rows, const void * from, void * to, int64_t first_group, int64_t last_group);
    int64_t (*group_offset)(const ggml::Tensor * view);
    size_t (*product_size)(int n_threads, const ggml::Tensor * op);
    void (*product)(ggml::Compute * compute, ggml::Tensor * op);

    // Attention (attend.h).
    bool (*attends)(const ggml::Tensor * op);
    size_t (*attend_size)(int n_threads, const ggml::Tensor * op);
    void (*attend)(ggml::Compute * compute, ggml::Tensor * op);

    // Products of two activations (activations.h).
    bool (*is_of_activations)(const ggml::Tensor * op);
    size_t (*of_activations_size)(int n_threads, const ggml::Tensor * op);
    void (*of_activations)(ggml::Compute * compute, ggml::Tensor * op);
};

extern const Kind amx, avx512bf16, avx512, avxvnni, avx2, i8mm, neon;

// What threads share in an operation's scratch: the task that is taken next.
using NextTask = std::atomic<int64_t>;

// Ends the process: a wrong text would be worse.
[[noreturn]] static inline void give_up(const char * what, const ggml::Tensor * t) {
    fprintf(stderr, "uad-kernels: %s: %s\n", what, t->name);
    abort();
}
static inline void require(bool is_so, const char * what, const ggml::Tensor * t) {
    if (__builtin_expect(!is_so, 0)) give_up(what, t);
}

static inline uintptr_t aligned(const void * p) { return ((uintptr_t) p + 63) & ~(uintptr_t) 63; }

}  // namespace uad
