// AVX-512 in plain C, by simde, and what Debian's simde lacks of what vec.h needs.
#pragma once
#include <cmath>
#include <cstring>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

namespace emulated {

template <class To, class From> To as(const From & x) {
    static_assert(sizeof(To) == sizeof(From), "another size");
    To to;
    memcpy(&to, &x, sizeof(to));
    return to;
}
template <class To, class Half> To both(Half (*half)(int, const void *), const void * from) {  // two halves of 256 bits
    const Half halves[2] = {half(0, from), half(1, from)};
    return as<To>(halves);
}
using F512 = decltype(_mm512_setzero_ps());
using I512 = decltype(_mm512_setzero_si512());

inline F512 to_float(I512 x) {
    return both<F512, __m256>([](int i, const void * p) { return _mm256_cvtepi32_ps(((const __m256i *) p)[i]); }, &x);
}
inline I512 to_int(F512 x) {
    return both<I512, __m256i>([](int i, const void * p) { return _mm256_cvtps_epi32(((const __m256 *) p)[i]); }, &x);
}
inline I512 signed_bytes(__m128i x) {
    return both<I512, __m256i>([](int i, const void * p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) ((const char *) p + 8 * i))); }, &x);
}
inline I512 unsigned_bytes(__m128i x) {
    return both<I512, __m256i>([](int i, const void * p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) ((const char *) p + 8 * i))); }, &x);
}
inline I512 widen16(__m256i x) {
    return both<I512, __m256i>([](int i, const void * p) { return _mm256_cvtepu16_epi32(((const __m128i *) p)[i]); }, &x);
}
inline F512 halves(__m256i x) {
    return both<F512, __m256>([](int i, const void * p) { return _mm256_cvtph_ps(((const __m128i *) p)[i]); }, &x);
}
inline __m256i to_halves(F512 x) {
    return both<__m256i, __m128i>([](int i, const void * p) { return _mm256_cvtps_ph(((const __m256 *) p)[i], 0); }, &x);
}
inline F512 blocks(F512 a, F512 b, int which) {  // of 128 bits: two of a, then two of b
    char from[2][64], to[64];
    memcpy(from[0], &a, 64), memcpy(from[1], &b, 64);
    for (int i = 0; i < 4; i++) memcpy(to + 16 * i, from[i / 2] + 16 * (which >> 2 * i & 3), 16);
    return as<F512>(to);
}

}  // namespace emulated
#define _mm512_cvtepi32_ps emulated::to_float
#define _mm512_cvtps_epi32 emulated::to_int
#define _mm512_cvtepi8_epi32 emulated::signed_bytes
#define _mm512_cvtepu8_epi32 emulated::unsigned_bytes
#define _mm512_cvtepu16_epi32 emulated::widen16
#define _mm512_cvtph_ps emulated::halves
#define _mm512_cvtps_ph(x, mode) emulated::to_halves(x)
#define _mm512_shuffle_f32x4 emulated::blocks

namespace emulated {
inline I512 madd(I512 a, I512 b) {
    __m256i x[2], y[2];
    memcpy(x, &a, 64), memcpy(y, &b, 64);
    for (int i = 0; i < 2; i++) x[i] = _mm256_madd_epi16(x[i], y[i]);
    return as<I512>(x);
}
inline I512 dot_bytes(I512 sum, I512 a, I512 b) {  // unsigned by signed bytes
    uint8_t x[64];
    int8_t y[64];
    int32_t z[16];
    memcpy(x, &a, 64), memcpy(y, &b, 64), memcpy(z, &sum, 64);
    for (int i = 0; i < 64; i++) z[i / 4] += x[i] * y[i];
    return as<I512>(z);
}
inline __m128i low_bytes(I512 x) {
    int32_t from[16];
    int8_t to[16];
    memcpy(from, &x, 64);
    for (int i = 0; i < 16; i++) to[i] = (int8_t) from[i];
    return as<__m128i>(to);
}
using Pairs512 = struct { uint16_t value[32]; };
inline F512 dot_bf16(F512 sum, Pairs512 a, Pairs512 b) {  // pairs of BF16, the second of each first
    float z[16];
    memcpy(z, &sum, 64);
    auto wide = [](uint16_t x) {
        const uint32_t bits = (uint32_t) x << 16;
        float y;
        memcpy(&y, &bits, 4);
        return y;
    };
    for (int i = 0; i < 32; i++) z[i / 2] = std::fma(wide(a.value[i ^ 1]), wide(b.value[i ^ 1]), z[i / 2]);
    return as<F512>(z);
}
inline I512 to_bf16(F512 high, F512 low) {  // to nearest, ties to even; denormals count as zero, NaNs stay so
    uint32_t x[32];
    uint16_t y[32];
    memcpy(x, &low, 64), memcpy(x + 16, &high, 64);
    for (int i = 0; i < 32; i++) {
        const uint32_t size = x[i] & 0x7fffffff;
        if (size > 0x7f800000) y[i] = (uint16_t) (x[i] >> 16 | 64);
        else y[i] = (uint16_t) ((size < 0x800000 ? x[i] & 0x80000000 : x[i] + 0x7fff + (x[i] >> 16 & 1)) >> 16);
    }
    return as<I512>(y);
}
}  // namespace emulated
#define _mm512_cvtne2ps_pbh emulated::to_bf16
#define _mm512_dpbf16_ps(sum, a, b) emulated::dot_bf16(sum, emulated::as<emulated::Pairs512>(a), emulated::as<emulated::Pairs512>(b))
#define __m512bh emulated::I512
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 emulated::low_bytes
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 emulated::madd
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 emulated::dot_bytes
