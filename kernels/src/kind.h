// One kind of processor: the functions that its source file compiled, and what all kinds share.
#pragma once
#include <cstddef>
#include <cstdint>

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

constexpr int kGroup = 16;  // rows that are repacked together

struct Kind {
    const char * name;

    // Products with repacked weights (product.h).
    bool (*takes)(int type);
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
    bool (*crosses)(const ggml::Tensor * op);
    size_t (*cross_size)(int n_threads, const ggml::Tensor * op);
    void (*cross)(ggml::Compute * compute, ggml::Tensor * op);
};

extern const Kind amx, avx512bf16, avx512, avxvnni, avx2, neon;

static inline uintptr_t aligned(const void * p) { return ((uintptr_t) p + 63) & ~(uintptr_t) 63; }

}  // namespace uad
