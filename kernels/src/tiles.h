// Intel's matrix units (AMX): eight tiles of 16 rows by 64 bytes, or the same in plain C for tests on other processors.
//
// Written as assembler: GCC 12's own intrinsics drop the end of a configuration, and let stores cross a load of a tile.
#pragma once
#include <cstdint>

namespace {

struct TileShapes {  // as LDTILECFG reads them
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};  // of each row of a tile
    uint8_t rows[16] = {};
};

#if defined(UAD_EMULATED_TILES)
inline void configure_tiles(const TileShapes & shapes) { amx_emulated::configure(&shapes); }
inline void release_tiles() {}
template <int t> inline void zero_tile() { amx_emulated::zero(t); }
template <int t> inline void load_tile(const void * p, int64_t stride) { amx_emulated::load(t, p, stride); }
template <int t> inline void store_tile(void * p, int64_t stride) { amx_emulated::store(t, p, stride); }
// c[i][j] += the sum over k of a[i][k] times b[k][j], in BF16; two values of k lie beside each other in a and in b
template <int c, int a, int b> inline void multiply_tiles() { amx_emulated::multiply_bf16(c, a, b); }
#else
inline void configure_tiles(const TileShapes & shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
inline void release_tiles() { asm volatile("tilerelease"); }
template <int t> inline void zero_tile() { asm volatile("tilezero %%tmm%c0" : : "i"(t)); }
template <int t> inline void load_tile(const void * p, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(t), "r"(p), "r"(stride) : "memory");
}
template <int t> inline void store_tile(void * p, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(t), "r"(p), "r"(stride) : "memory");
}
template <int c, int a, int b> inline void multiply_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}
#endif

}  // namespace
