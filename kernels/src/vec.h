// Vectors of one kind of processor: kLanes numbers of 32 bits. The same code above it serves AVX-512, AVX2, AVX-VNNI and NEON.
//
// This header is included by one source file for each kind, inside that kind's namespace, after the intrinsics.
// Floats: kLanes floats. Ints: as many 32-bit integers, or four times as many bytes.

#if defined(UAD_AVX512)
constexpr int kLanes = 16;
using Floats = __m512;
using Ints = __m512i;

inline Floats load(const float * p) { return _mm512_loadu_ps(p); }
inline void store(float * p, Floats x) { _mm512_storeu_ps(p, x); }
inline Floats set(float x) { return _mm512_set1_ps(x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c, rounded once
inline Floats nfma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b, rounded once
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats abs(Floats a) { return _mm512_abs_ps(a); }
inline Floats round(Floats a) { return _mm512_roundscale_ps(a, 0); }                       // to nearest, ties to even
inline Floats keep_above(Floats x, Floats a, float least) {                                     // x where a > least or NaN, else 0
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_set1_ps(least), _CMP_NLE_UQ), x);
}
inline Floats to_float(Ints x) { return _mm512_cvtepi32_ps(x); }
inline Ints to_int(Floats x) { return _mm512_cvtps_epi32(x); }                           // to nearest, ties to even
inline Floats power_of_2(Floats n) {                                                       // n whole, from -126 to 127
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
inline Floats as_float(Ints x) { return _mm512_castsi512_ps(x); }
inline Floats set_half(uint16_t x) { return _mm512_cvtph_ps(_mm256_set1_epi16((short) x)); }  // in all lanes
inline Floats halves(const uint16_t * p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p)); }
inline Ints widen16(const uint16_t * p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p)); }
inline Ints signed_bytes(const void * p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p)); }
inline Ints unsigned_bytes(const void * p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) p)); }
inline void transpose(Floats * r) {  // kLanes rows of kLanes floats: r[i][j] becomes r[j][i]
    Floats a[16];
    for (int i = 0; i < 16; i += 4) {  // 4 x 4 blocks of rows i to i + 3, each in 128 bits
        const __m512d lo0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1])), lo1 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i + 2], r[i + 3]));
        const __m512d hi0 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1])), hi1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i + 2], r[i + 3]));
        a[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo0, lo1)), a[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo0, lo1));
        a[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(hi0, hi1)), a[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(hi0, hi1));
    }
    for (int i = 0; i < 4; i++) {  // then the blocks
        const Floats lo0 = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), hi0 = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        const Floats lo1 = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88), hi1 = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(lo0, lo1, 0x88), r[i + 8] = _mm512_shuffle_f32x4(lo0, lo1, 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(hi0, hi1, 0x88), r[i + 12] = _mm512_shuffle_f32x4(hi0, hi1, 0xdd);
    }
}
inline float first(Floats x) { return _mm_cvtss_f32(_mm512_castps512_ps128(x)); }
template <int n> inline Floats swapped(Floats x) {  // lanes i and i ^ n
    constexpr int order = n == 8 || n == 2 ? 0x4e : 0xb1;
    if constexpr (n >= 4) return _mm512_shuffle_f32x4(x, x, order);
    else return _mm512_shuffle_ps(x, x, order);
}

inline Ints iload(const void * p) { return _mm512_loadu_si512(p); }
inline void istore(void * p, Ints x) { _mm512_storeu_si512(p, x); }
inline void store_bytes(void * p, Ints x) { _mm_storeu_si128((__m128i *) p, _mm512_cvtepi32_epi8(x)); }  // of numbers that fit
inline Ints iset(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints bytes(int x) { return _mm512_set1_epi8((char) x); }
inline Ints iadd(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints isub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints iand(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints ior(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints ixor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
inline Ints imul(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
inline Ints add_bytes(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
inline Ints mean_bytes(Ints a, Ints b) { return _mm512_avg_epu8(a, b); }                 // unsigned, rounded up
template <int n> inline Ints left(Ints x) { return n ? _mm512_slli_epi16(x, n) : x; }    // of 16-bit parts: mask afterwards
template <int n> inline Ints right(Ints x) { return n ? _mm512_srli_epi16(x, n) : x; }
template <int n> inline Ints left32(Ints x) { return _mm512_slli_epi32(x, n); }
inline Ints look_up(const void * table, Ints x) {                                        // bytes below 16 in a table of 16
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) table)), x);
}

#elif defined(UAD_AVX2)
constexpr int kLanes = 8;
using Floats = __m256;
using Ints = __m256i;

inline Floats load(const float * p) { return _mm256_loadu_ps(p); }
inline void store(float * p, Floats x) { _mm256_storeu_ps(p, x); }
inline Floats set(float x) { return _mm256_set1_ps(x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats nfma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats abs(Floats a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline Floats round(Floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Floats keep_above(Floats x, Floats a, float least) { return _mm256_and_ps(_mm256_cmp_ps(a, _mm256_set1_ps(least), _CMP_NLE_UQ), x); }
inline Floats to_float(Ints x) { return _mm256_cvtepi32_ps(x); }
inline Ints to_int(Floats x) { return _mm256_cvtps_epi32(x); }
inline Floats power_of_2(Floats n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline Floats as_float(Ints x) { return _mm256_castsi256_ps(x); }
inline Floats set_half(uint16_t x) { return _mm256_cvtph_ps(_mm_set1_epi16((short) x)); }
inline Floats halves(const uint16_t * p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)); }
inline Ints widen16(const uint16_t * p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p)); }
inline Ints signed_bytes(const void * p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) p)); }
inline Ints unsigned_bytes(const void * p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) p)); }
inline void transpose(Floats * r) {
    Floats a[8];
    for (int i = 0; i < 8; i += 4) {
        const Floats lo0 = _mm256_unpacklo_ps(r[i], r[i + 1]), lo1 = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        const Floats hi0 = _mm256_unpackhi_ps(r[i], r[i + 1]), hi1 = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        a[i] = _mm256_shuffle_ps(lo0, lo1, 0x44), a[i + 1] = _mm256_shuffle_ps(lo0, lo1, 0xee);
        a[i + 2] = _mm256_shuffle_ps(hi0, hi1, 0x44), a[i + 3] = _mm256_shuffle_ps(hi0, hi1, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
    }
}
inline float first(Floats x) { return _mm256_cvtss_f32(x); }
template <int n> inline Floats swapped(Floats x) {
    if constexpr (n == 4) return _mm256_permute2f128_ps(x, x, 1);
    else return _mm256_shuffle_ps(x, x, n == 2 ? 0x4e : 0xb1);
}

inline Ints iload(const void * p) { return _mm256_loadu_si256((const __m256i *) p); }
inline void istore(void * p, Ints x) { _mm256_storeu_si256((__m256i *) p, x); }
inline void store_bytes(void * p, Ints x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *) p, _mm_packs_epi16(words, words));
}
inline Ints iset(int32_t x) { return _mm256_set1_epi32(x); }
inline Ints bytes(int x) { return _mm256_set1_epi8((char) x); }
inline Ints iadd(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints isub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints iand(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints ior(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints ixor(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
inline Ints imul(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
inline Ints add_bytes(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
inline Ints mean_bytes(Ints a, Ints b) { return _mm256_avg_epu8(a, b); }
template <int n> inline Ints left(Ints x) { return n ? _mm256_slli_epi16(x, n) : x; }
template <int n> inline Ints right(Ints x) { return n ? _mm256_srli_epi16(x, n) : x; }
template <int n> inline Ints left32(Ints x) { return _mm256_slli_epi32(x, n); }
inline Ints look_up(const void * table, Ints x) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) table)), x);
}

#elif defined(UAD_NEON)
constexpr int kLanes = 4;
using Floats = float32x4_t;
using Ints = int32x4_t;

inline Floats load(const float * p) { return vld1q_f32(p); }
inline void store(float * p, Floats x) { vst1q_f32(p, x); }
inline Floats set(float x) { return vdupq_n_f32(x); }
inline Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Floats nfma(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
inline Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Floats sub(Floats a, Floats b) { return vsubq_f32(a, b); }
inline Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
inline Floats div(Floats a, Floats b) { return vdivq_f32(a, b); }
inline Floats max(Floats a, Floats b) { return vmaxq_f32(a, b); }
inline Floats abs(Floats a) { return vabsq_f32(a); }
inline Floats round(Floats a) { return vrndnq_f32(a); }
inline Floats keep_above(Floats x, Floats a, float least) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vcleq_f32(a, vdupq_n_f32(least))));
}
inline Floats to_float(Ints x) { return vcvtq_f32_s32(x); }
inline Ints to_int(Floats x) { return vcvtnq_s32_f32(x); }
inline Floats power_of_2(Floats n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23)); }
inline Floats as_float(Ints x) { return vreinterpretq_f32_s32(x); }
inline Floats set_half(uint16_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x))); }
inline Floats halves(const uint16_t * p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline Ints widen16(const uint16_t * p) { return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p))); }
inline Ints signed_bytes(const void * p) {
    int32_t word;
    memcpy(&word, p, 4);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)))));
}
inline Ints unsigned_bytes(const void * p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word))))));
}
inline void transpose(Floats * r) {
    const Floats a = vtrn1q_f32(r[0], r[1]), b = vtrn2q_f32(r[0], r[1]), c = vtrn1q_f32(r[2], r[3]), d = vtrn2q_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c)), r[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
    r[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c)), r[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}
inline float first(Floats x) { return vgetq_lane_f32(x, 0); }
template <int n> inline Floats swapped(Floats x) {
    if constexpr (n == 2) return vextq_f32(x, x, 2);
    else return vrev64q_f32(x);
}

inline Ints iload(const void * p) { return vreinterpretq_s32_u8(vld1q_u8((const uint8_t *) p)); }
inline void istore(void * p, Ints x) { vst1q_u8((uint8_t *) p, vreinterpretq_u8_s32(x)); }
inline Ints iset(int32_t x) { return vdupq_n_s32(x); }
inline Ints bytes(int x) { return vreinterpretq_s32_u8(vdupq_n_u8((uint8_t) x)); }
inline Ints iadd(Ints a, Ints b) { return vaddq_s32(a, b); }
inline Ints isub(Ints a, Ints b) { return vsubq_s32(a, b); }
inline Ints iand(Ints a, Ints b) { return vandq_s32(a, b); }
inline Ints ior(Ints a, Ints b) { return vorrq_s32(a, b); }
inline Ints ixor(Ints a, Ints b) { return veorq_s32(a, b); }
inline Ints imul(Ints a, Ints b) { return vmulq_s32(a, b); }
inline Ints add_bytes(Ints a, Ints b) { return vreinterpretq_s32_u8(vaddq_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b))); }
inline Ints mean_bytes(Ints a, Ints b) { return vreinterpretq_s32_u8(vrhaddq_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b))); }
template <int n> inline Ints left(Ints x) {
    if constexpr (n == 0) return x;
    else return vreinterpretq_s32_u8(vshlq_n_u8(vreinterpretq_u8_s32(x), n));
}
template <int n> inline Ints right(Ints x) {
    if constexpr (n == 0) return x;
    else return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), n));
}
template <int n> inline Ints left32(Ints x) { return vshlq_n_s32(x, n); }
inline Ints look_up(const void * table, Ints x) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8((const uint8_t *) table), vreinterpretq_u8_s32(x)));
}
#endif

#define UAD_INLINE inline __attribute__((always_inline))  // sums and dots of products have to stay in registers

// body(0), body(1) ... body(n - 1), each with its number as a constant
template <int... i, class Body> constexpr UAD_INLINE void each(std::integer_sequence<int, i...>, Body body) {
    (body(std::integral_constant<int, i>()), ...);
}
template <int n, class Body> constexpr UAD_INLINE void times(Body body) { each(std::make_integer_sequence<int, n>(), body); }

template <int from, int to> inline Ints moved(Ints x) {  // of bytes: bits from bit `from` on to bit `to`, mask afterwards
    if constexpr (to >= from) return left<to - from>(x);
    else return right<from - to>(x);
}
// Of bytes: as many bits from bit `from` on, moved to bit `to`; the others are 0.
template <int from, int to, int n_bits> inline Ints field(Ints x) {
#if defined(UAD_NEON)
    if constexpr (to == 0 && from + n_bits == 8) return moved<from, to>(x);  // shifts of bytes, not of pairs
#endif
    return iand(moved<from, to>(x), bytes(((1 << n_bits) - 1) << to));
}
inline Floats zero() { return set(0.0f); }
inline Ints izero() { return iset(0); }
inline Floats bfloats(const uint16_t * p) { return as_float(left32<16>(widen16(p))); }

#if defined(UAD_BF16)
inline Ints to_bf16(Floats a, Floats b) { return (Ints) _mm512_cvtne2ps_pbh(b, a); }  // to nearest: numbers of a, then of b
inline Ints interleaved(Ints x) {                                                      // 16-bit parts: i and i + 16 side by side
    alignas(64) static constexpr uint16_t order[] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(iload(order), x);
}
inline Ints halves_swapped(Ints x) { return _mm512_rol_epi32(x, 16); }
inline Floats dot_bf16(Floats sum, Ints a, Ints b) { return _mm512_dpbf16_ps(sum, (__m512bh) a, (__m512bh) b); }
inline Ints as_ints(Floats x) { return _mm512_castps_si512(x); }
#endif

// Sum and maximum over lanes, in an order that does not depend on anything but kLanes: halves of the lanes that are left.
template <class Join> inline float joined_lanes(Floats x, Join join) {
    if constexpr (kLanes > 8) x = join(x, swapped<8>(x));
    if constexpr (kLanes > 4) x = join(x, swapped<4>(x));
    x = join(x, swapped<2>(x));
    return first(join(x, swapped<1>(x)));
}
inline float sum(Floats x) { return joined_lanes(x, add); }
inline float greatest(Floats x) { return joined_lanes(x, max); }

// e^x for x <= 0, to 2 units in the last place; 0 below -87, NaN of NaN. Coefficients: Cephes' expf.
inline Floats exp(Floats x) {
    const Floats n = round(mul(x, set(1.44269504f)));
    const Floats r = nfma(n, set(-2.12194440e-4f), nfma(n, set(0.693359375f), x));
    Floats p = set(1.9875691500e-4f);
    p = fma(p, r, set(1.3981999507e-3f));
    p = fma(p, r, set(8.3334519073e-3f));
    p = fma(p, r, set(4.1665795894e-2f));
    p = fma(p, r, set(1.6666665459e-1f));
    p = fma(p, r, set(5.0000001201e-1f));
    p = fma(p, mul(r, r), add(r, set(1.0f)));
    return keep_above(mul(p, power_of_2(max(n, set(-126.0f)))), x, -87.0f);
}
