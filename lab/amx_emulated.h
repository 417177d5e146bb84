/* Intel's matrix units (AMX) in software, for the few intrinsics that llama.cpp uses: its whole AMX path then runs on any processor with
   AVX-512 and VNNI, slowly. Put before llama.cpp's C++ sources, with -mamx-tile -mamx-int8 (lab/README.md has the commands).

   A tile is 16 rows of 64 bytes, and belongs to a thread. The configuration says how many rows and bytes of each row a tile has; what lies
   outside is zero after a load, and is not stored. As on the processor, an instruction on a tile without a configuration ends the process. */
#pragma once

#if defined(__AMX_TILE__) && defined(__AMX_INT8__)
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace amx_emulated {

struct Config {  // as LDTILECFG reads it: 64 bytes
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct Tile {
    uint8_t bytes[16][64];
};

struct Unit {
    Config config;
    Tile tiles[8];
};

inline Unit & unit() {
    static thread_local Unit unit = {};
    return unit;
}

/* The unit, if it is configured and has tile t. */
inline Unit & checked(int t) {
    Unit & u = unit();
    if (u.config.palette != 1 || t < 0 || t > 7 || u.config.rows[t] < 1 || u.config.rows[t] > 16 || u.config.row_bytes[t] > 64) {
        abort();
    }
    return u;
}

inline void configure(const void * config) {
    Unit & u = unit();
    memcpy(&u.config, config, sizeof(Config));
    memset(u.tiles, 0, sizeof(u.tiles));
}

inline void zero(int t) {
    memset(&checked(t).tiles[t], 0, sizeof(Tile));
}

inline void load(int t, const void * base, size_t stride) {
    zero(t);
    Unit & u = unit();
    for (int row = 0; row < u.config.rows[t]; row++) {
        memcpy(u.tiles[t].bytes[row], (const uint8_t *) base + row * stride, u.config.row_bytes[t]);
    }
}

inline void store(int t, void * base, size_t stride) {
    Unit & u = checked(t);
    for (int row = 0; row < u.config.rows[t]; row++) {
        memcpy((uint8_t *) base + row * stride, u.tiles[t].bytes[row], u.config.row_bytes[t]);
    }
}

/* c[m][n] += the sum over k of a[m][4 k + i] * b[k][4 n + i] for i = 0 … 3; A and B are int8_t or uint8_t. */
template <typename A, typename B> inline void multiply(int c, int a, int b) {
    checked(a), checked(b);
    Unit & u = checked(c);
    const int n_rows = u.config.rows[c], n_columns = u.config.row_bytes[c] / 4, n_inner = u.config.row_bytes[a] / 4;
    if (u.config.rows[a] != n_rows || u.config.rows[b] != n_inner || u.config.row_bytes[b] != 4 * n_columns) {
        abort();  // the processor refuses shapes that do not fit
    }
    for (int m = 0; m < n_rows; m++) {
        uint32_t sums[16] = {};  // unsigned: sums wrap around
        memcpy(sums, u.tiles[c].bytes[m], 4 * n_columns);
        for (int k = 0; k < n_inner; k++) {
            for (int n = 0; n < n_columns; n++) {
                for (int i = 0; i < 4; i++) {
                    sums[n] += (uint32_t) ((int32_t) (A) u.tiles[a].bytes[m][4 * k + i] * (int32_t) (B) u.tiles[b].bytes[k][4 * n + i]);
                }
            }
        }
        memcpy(u.tiles[c].bytes[m], sums, 4 * n_columns);
    }
}

/* c[m][n] += the sum over k of a[m][2 k + i] * b[k][2 n + i] for i = 0 and 1, numbers in BF16. Values with i = 0 and those with i = 1 are
   added up apart, from zero, by fused multiply-adds; then both sums are added, and the result to c. Denormal numbers count as zero, on the
   way in and out; all is rounded to nearest, whatever the process has set. */
inline void multiply_bf16(int c, int a, int b) {
    checked(a), checked(b);
    Unit & u = checked(c);
    const int n_rows = u.config.rows[c], n_columns = u.config.row_bytes[c] / 4, n_inner = u.config.row_bytes[a] / 4;
    if (u.config.rows[a] != n_rows || u.config.rows[b] != n_inner || u.config.row_bytes[b] != 4 * n_columns) {
        abort();
    }
    const unsigned int mode = _mm_getcsr();
    _mm_setcsr(0x9fc0);  /* to nearest, no exceptions, denormals are zero */
    for (int half = 0; half < 2; half++) {  /* eight columns */
        __m256 wide[2][16];
        for (int k = 0; k < n_inner; k++) {
            const __m256i pairs = _mm256_loadu_si256((const __m256i *) u.tiles[b].bytes[k] + half);
            wide[0][k] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
            wide[1][k] = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int) 0xffff0000u)));
        }
        for (int m = 0; m < n_rows; m++) {
            __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
            for (int k = 0; k < n_inner; k++) {
                uint32_t pair;
                memcpy(&pair, u.tiles[a].bytes[m] + 4 * k, 4);
                even = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32((int) (pair << 16))), wide[0][k], even);
                odd = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32((int) (pair & 0xffff0000u))), wide[1][k], odd);
            }
            float * to = (float *) u.tiles[c].bytes[m] + 8 * half;
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), _mm256_add_ps(even, odd)));
        }
    }
    _mm_setcsr(mode);
}

/* The system is asked whether a process may use the units: here it always may. */
template <typename... Arguments> inline long system_call(long number, Arguments... arguments) {
    return number == SYS_arch_prctl ? 0 : (syscall)(number, arguments...);
}

}  // namespace amx_emulated

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) amx_emulated::configure(config)
#define _tile_loadd(tile, base, stride) amx_emulated::load(tile, base, stride)
#define _tile_stored(tile, base, stride) amx_emulated::store(tile, base, stride)
#define _tile_zero(tile) amx_emulated::zero(tile)
#define _tile_dpbssd(c, a, b) amx_emulated::multiply<int8_t, int8_t>(c, a, b)
#define _tile_dpbsud(c, a, b) amx_emulated::multiply<int8_t, uint8_t>(c, a, b)
#define _tile_dpbusd(c, a, b) amx_emulated::multiply<uint8_t, int8_t>(c, a, b)
#define _tile_dpbuud(c, a, b) amx_emulated::multiply<uint8_t, uint8_t>(c, a, b)
#define _tile_dpbf16ps(c, a, b) amx_emulated::multiply_bf16(c, a, b)
#define syscall(...) amx_emulated::system_call(__VA_ARGS__)
#endif
