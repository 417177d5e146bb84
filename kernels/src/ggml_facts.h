// The structures of ggml that a buffer type and its operations meet, as in llama.cpp of llama-cpp-python 0.3.36.
//
// None of them is stable. They are written from ggml's public headers and from what a debugger shows of a running
// process; uad proves them in a child process before it uses the library (uad/llama/kernels/proof.py). The library links
// to nothing of ggml: the few functions it calls are handed over as addresses when it is registered (library.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ggml {

constexpr int kDims = 4;

// Types of weights that the kernels multiply: ggml's name of the constant, its number (files have it, so it never
// changes), its name as text, columns and bytes of a block. How a block is read stands in planes.h.
#define UAD_TYPES(type)                                                                                            \
    type(Q8_0, 8, "q8_0", 32, 34) type(Q4_0, 2, "q4_0", 32, 18) type(Q4_1, 3, "q4_1", 32, 20)                      \
    type(Q5_0, 6, "q5_0", 32, 22) type(Q5_1, 7, "q5_1", 32, 24) type(Q2_K, 10, "q2_K", 256, 84)                    \
    type(Q3_K, 11, "q3_K", 256, 110) type(Q4_K, 12, "q4_K", 256, 144) type(Q5_K, 13, "q5_K", 256, 176)             \
    type(Q6_K, 14, "q6_K", 256, 210) type(IQ4_NL, 20, "iq4_nl", 32, 18) type(IQ4_XS, 23, "iq4_xs", 256, 136)       \
    type(MXFP4, 39, "mxfp4", 32, 17) type(NVFP4, 40, "nvfp4", 64, 36) type(Q1_0, 41, "q1_0", 128, 18)              \
    type(Q2_0, 42, "q2_0", 64, 18) type(TQ1_0, 34, "tq1_0", 256, 54) type(TQ2_0, 35, "tq2_0", 256, 66)             \
    type(IQ1_S, 19, "iq1_s", 256, 50) type(IQ1_M, 29, "iq1_m", 256, 56) type(IQ2_XXS, 16, "iq2_xxs", 256, 66)      \
    type(IQ2_XS, 17, "iq2_xs", 256, 74) type(IQ2_S, 22, "iq2_s", 256, 82) type(IQ3_XXS, 18, "iq3_xxs", 256, 98)    \
    type(IQ3_S, 21, "iq3_s", 256, 110) type(BF16, 30, "bf16", 1, 2) type(F16, 1, "f16", 1, 2) type(F32, 0, "f32", 1, 4)

enum Type : int {
#define UAD_NUMBER(NAME, NUMBER, TEXT, COLUMNS, BYTES) NAME = NUMBER,
    UAD_TYPES(UAD_NUMBER)
#undef UAD_NUMBER
    I32 = 26,
};

struct Block {
    int columns = 0, bytes = 0;
};
static constexpr Block block_of(int type) {  // without columns for a type that is not in the list
    switch (type) {
#define UAD_BLOCK(NAME, NUMBER, TEXT, COLUMNS, BYTES) \
    case NUMBER: return {COLUMNS, BYTES};
        UAD_TYPES(UAD_BLOCK)
#undef UAD_BLOCK
        default: return {};
    }
}

struct Buffer;
struct BufferType;

struct Tensor {
    int type;
    Buffer * buffer;
    int64_t ne[kDims];  // elements
    size_t nb[kDims];   // strides in bytes
    int op;             // numbers differ from version to version: compare with those that registering looked up
    int32_t op_params[16];
    int32_t flags;
    Tensor * src[10];
    Tensor * view_src;
    size_t view_offs;
    void * data;
    char name[64];
    void * extra;
    char padding[8];
};

// What a thread is handed for an operation.
struct Compute {
    int ith, nth;
    size_t wsize;
    void * wdata;  // scratch that all threads share, of the size that work_size asked for
    void * threadpool;
    bool use_ref;
};

struct BufferTypeFunctions {
    const char * (*get_name)(BufferType *);
    Buffer * (*alloc_buffer)(BufferType *, size_t);
    size_t (*get_alignment)(BufferType *);
    size_t (*get_max_size)(BufferType *);
    size_t (*get_alloc_size)(BufferType *, const Tensor *);
    bool (*is_host)(BufferType *);
};

struct BufferType {
    BufferTypeFunctions iface;
    void * device;
    void * context;
};

struct BufferFunctions {
    void (*free_buffer)(Buffer *);
    void * (*get_base)(Buffer *);
    int (*init_tensor)(Buffer *, Tensor *);
    void (*memset_tensor)(Buffer *, Tensor *, uint8_t, size_t, size_t);
    void (*set_tensor)(Buffer *, Tensor *, const void *, size_t, size_t);
    void (*get_tensor)(Buffer *, const Tensor *, void *, size_t, size_t);
    void (*set_tensor_2d)(Buffer *, Tensor *, const void *, size_t, size_t, size_t, size_t, size_t);
    void (*get_tensor_2d)(Buffer *, const Tensor *, void *, size_t, size_t, size_t, size_t, size_t);
    bool (*cpy_tensor)(Buffer *, const Tensor *, Tensor *);
    void (*clear)(Buffer *, uint8_t);
    void (*reset)(Buffer *);
};

struct Buffer {
    BufferFunctions iface;
    BufferType * buft;
    void * context;
    size_t size;
    int usage;
};

// What ggml calls of an operation that an extra buffer type takes over; only the order of virtual functions counts.
struct Operation {
    virtual ~Operation() = default;
    virtual bool work_size(int n_threads, const Tensor * op, size_t & size) = 0;
    virtual bool compute_forward(Compute * compute, Tensor * op) = 0;
};

// What the CPU backend asks of an extra buffer type: it is the context of the BufferType.
struct Extra {
    virtual ~Extra() = default;
    virtual bool supports_op(void * device, const Tensor * op) = 0;
    virtual Operation * get_tensor_traits(const Tensor * op) = 0;
};

using ExtraTypes = std::vector<BufferType *> & (*)();

static inline int64_t n_rows(const Tensor * t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

}  // namespace ggml
