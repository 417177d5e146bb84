// What the library offers to uad, in C. Python calls it through ctypes (uad/llama/kernels/).
#pragma once
#include <cstdint>

#define UAD_API extern "C" __attribute__((visibility("default")))


// Version of this interface.
UAD_API int uad_kernels_abi(void);

// Kinds of processor that this machine can run, the fastest first, with spaces between: "avx512bf16 avx512 avx2".
UAD_API const char * uad_kernels_kinds(void);

// What can be taken over, with spaces between: names of weight types as ggml_type_name gives them, "attention", and "activations" for
// products of two of them.
UAD_API const char * uad_kernels_parts(void);

// Names of the functions of ggml whose addresses `uad_kernels_register` needs, in order, with spaces between.
UAD_API const char * uad_kernels_functions(void);

// Names of the functions of ggml that say what the numbers in some types of weights stand for, with spaces between; and
// what is to be called with the address of each that there is, before the library is registered. A type whose function is
// missing, or has values that are not expected, is left to llama.cpp.
UAD_API const char * uad_kernels_grids(void);
UAD_API void uad_kernels_read_grid(const char * name, void * function);

// Put the buffer type before llama.cpp's own, for models that are loaded from now on. kind: one of uad_kernels_kinds.
// Returns null, or what is wrong. Call it before the first model is loaded: llama.cpp copies its list then.
UAD_API const char * uad_kernels_register(const char * kind, void * const * functions, int n_functions);

// Take a part over, or leave it to llama.cpp, from the next model (weights) or pass (the others) on; false: no such part.
// Not to be called while a graph is planned or computed. "attention in tiles" is no part, but how attention is computed on
// matrix units, and on at first. Without it a row has the same bits wherever its cells lie in a chunk of 256.
UAD_API bool uad_kernels_set(const char * part, bool is_on);

// How many operations ran in this library: "products", "experts", "attention", "activations".
UAD_API uint64_t uad_kernels_count(const char * what);
