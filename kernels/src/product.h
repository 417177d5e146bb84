// Products of repacked weights (planes.h) and float columns: MUL_MAT and MUL_MAT_ID.
//
// A result depends on its row of weights and its column alone: it is a sum over cells in order, whatever the number of
// columns, whatever the thread. Columns in a tile share the weights that were loaded and unpacked, not sums. Dot products
// of cells are whole numbers, so all kinds of processors give the same bits for quantized types.

// ---- columns

// 32 values of a column, quantized: y S is near the value. What weights add to that is worked out once.
struct Cell {
    int8_t y[kCell];
    float scale;      // S
#if defined(UAD_NEON)
    float scaled_sum; // S times the sum of y
    int32_t off[2];   // minus the weights' offset times the sum of each half of y
#else
    union {
        float scaled_sum;   // S times the sum of y
        int32_t first_off;  // where weights begin at offsets of halves: `off` of the first half, and `off` is the second's
    };
    int32_t off;      // minus the weights' offset times the sum of y
    int16_t sum[2];   // of each half of y
#endif
};

#if defined(UAD_AVX512) || defined(UAD_AVXVNNI)
constexpr int kBias = 128;  // signed weights are multiplied as unsigned ones, 128 too large
#else
constexpr int kBias = 0;
#endif
#if defined(UAD_AVX2) && !defined(UAD_AVXVNNI)
constexpr bool kScalesPairs = true;
#else
constexpr bool kScalesPairs = false;
#endif

// Whether a dot product of half a cell begins with what the weights' offset adds. Where pairs are scaled it is no sum of its own.
template <class T> constexpr bool kOffsInHalves = T::SCALE == Scale::Halves && !kScalesPairs;

// 16 values times `inverse`, to nearest, as bytes; their sum.
inline int to_bytes(const float * x, Floats inverse, int8_t * to) {
#if defined(UAD_NEON)
    Ints whole[4];
    for (int i = 0; i < 4; i++) whole[i] = to_int(mul(load(x + 4 * i), inverse));
    auto lower = [](Ints a, Ints b) { return vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)); };  // halves of both
    const int8x16_t all = vuzp1q_s8(vreinterpretq_s8_s16(lower(whole[0], whole[1])), vreinterpretq_s8_s16(lower(whole[2], whole[3])));
    vst1q_s8(to, all);
    return vaddlvq_s8(all);
#else
    Floats total = zero();  // of whole numbers
    for (int i = 0; i < 16; i += kLanes) {
        const Ints whole = to_int(mul(load(x + i), inverse));
        store_bytes(to + i, whole);
        total = add(total, to_float(whole));
    }
    return (int) sum(total);
#endif
}

inline void quantize(const float * x, size_t stride, int offset, [[maybe_unused]] bool offs_in_halves, Cell & c) {
    float v[kCell];
    if (stride != sizeof(float)) {
        for (int i = 0; i < kCell; i++) v[i] = *(const float *) ((const char *) x + i * stride);
        x = v;
    }
#if defined(UAD_NEON)
    Floats most = zero();
    for (int i = 0; i < kCell; i += kLanes) most = max(most, abs(load(x + i)));
    const float scale = vmaxvq_f32(most) / 127.0f;  // NaN where a value is NaN
#else
    Floats most = zero(), unusual = zero();  // unusual: 0, but NaN where a value is not finite
    for (int i = 0; i < kCell; i += kLanes) {
        most = max(most, abs(load(x + i)));
        unusual = add(unusual, sub(load(x + i), load(x + i)));
    }
    const float scale = greatest(most) / 127.0f + sum(unusual);
#endif
    const float inverse = scale >= 1e-37f ? 1.0f / scale : 0.0f;
    if (!(scale <= 1e37f)) {  // then so are all results
        memset(&c, 0, sizeof(c));
        c.scale = c.scaled_sum = NAN;
        return;
    }
    int sums[2];
    for (int half = 0; half < 2; half++) sums[half] = to_bytes(x + 16 * half, set(inverse), c.y + 16 * half);
    c.scale = scale;
    c.scaled_sum = scale * (float) (sums[0] + sums[1]);
#if defined(UAD_NEON)
    for (int half = 0; half < 2; half++) c.off[half] = -offset * sums[half];
#else
    c.off = -offset * (offs_in_halves ? sums[1] : sums[0] + sums[1]);
    if (offs_in_halves) c.first_off = -offset * sums[0];
    c.sum[0] = (int16_t) sums[0];
    c.sum[1] = (int16_t) sums[1];
#endif
}

// ---- dot products of bytes

inline Ints word(const void * p) {  // four bytes of a column, for all lanes
    int32_t x;
    memcpy(&x, p, 4);
    return iset(x);
}

// Sums of products of 4 weights and 4 column values in each lane. T says how large weights get. `total` is whole after
// step n - 1. Where kScalesPairs, it is the sum times `factor`, which has a lane's factor in both of its 16-bit halves.
#if defined(UAD_AVX512) || defined(UAD_AVXVNNI)
struct Weight {
    Ints q;
};
template <class T> inline Weight weight(Ints q) {
    if constexpr (T::SIGNED) return {ixor(q, bytes(0x80))};
    else return {q};
}
template <class T> struct Dot {
    static constexpr int AT_ONCE = 1;
    Ints total;
    template <int i, int n, bool is_first> void step(const Weight & w, Ints y, Ints) {
#if defined(UAD_AVX512)
        total = _mm512_dpbusd_epi32(total, w.q, y);
#else
        total = _mm256_dpbusd_avx_epi32(total, w.q, y);
#endif
    }
#if defined(UAD_AVX512) && !defined(UAD_EMULATED)
    // The same by a column's word at p: one instruction, where compilers make two. Where there is little else to do, a loop
    // over 16 columns takes 10 to 20 % longer with two, by where it lies in memory.
    static constexpr bool HAS_STEP_OF_WORD = T::SCALE == Scale::Whole && !T::HAS_MIN;
    void step_of_word(const Weight & w, const void * p) { asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(total) : "v"(w.q), "m"(*(const int32_t *) p)); }
#else
    static constexpr bool HAS_STEP_OF_WORD = false;
    void step_of_word(const Weight &, const void *) {}
#endif
};
inline Ints two(Ints low, Ints high) { return ior(iand(low, iset(0xffff)), left32<16>(high)); }  // 16-bit halves of a lane
inline Ints dot_two(Ints pair, Ints sums) {
#if defined(UAD_AVX512)
    return _mm512_madd_epi16(pair, sums);
#else
    return _mm256_madd_epi16(pair, sums);
#endif
}
#elif defined(UAD_AVX2)
// Pairs of products are added in 16 bits, which hold a few of them: 2 x 15 x 127 = 3,810 fit eight times. Signed bytes
// are multiplied as their absolute value by the column's value with their sign; two of them fit: 2 x 128 x 127 = 32,512.
struct Weight {
    Ints q, sign;
};
template <class T> inline Weight weight(Ints q) {
    if constexpr (T::SIGNED) return {_mm256_abs_epi8(q), q};
    else return {q, q};
}
template <class T> struct Dot {
    static constexpr bool HAS_STEP_OF_WORD = false;
    static constexpr int FITS = T::SIGNED ? 1 : 32767 / (2 * T::LARGEST * 127);
    static constexpr int AT_ONCE = FITS == 2 ? 2 : 1;
    Ints total, pairs;
    template <int i, int n, bool is_first> void step(const Weight & w, Ints y, Ints factor) {
        if constexpr (T::SIGNED) {
            pairs = _mm256_maddubs_epi16(w.q, _mm256_sign_epi8(y, w.sign));
            total = iadd(total, _mm256_madd_epi16(pairs, factor));
            asm("" : "+x"(total));
        } else {
            Ints more = _mm256_maddubs_epi16(w.q, y);
            if constexpr (i % FITS != 0) more = _mm256_add_epi16(pairs, more);
            // Compilers like to add up products as a tree, at the end, and run out of registers before.
            asm("" : "+x"(more));
            if constexpr (i % FITS == FITS - 1 || i == n - 1) {
                const Ints sum = _mm256_madd_epi16(more, factor);
                total = is_first && i < FITS ? sum : iadd(total, sum);  // the first one, where nothing is there yet
            } else pairs = more;
        }
    }
    void step_of_word(const Weight &, const void *) {}
};
inline Ints two(Ints low, Ints high) { return ior(iand(low, iset(0xffff)), left32<16>(high)); }
inline Ints dot_two(Ints pair, Ints sums) { return _mm256_madd_epi16(pair, sums); }
#endif

// ---- a tile: 16 rows of weights by N columns, in P vectors of rows at once

// Step i of a cell's values, unpacked. cell: at the first of the 4 kLanes bytes that these lanes have of each vector.
template <class T, int i> inline Ints unpacked(const uint8_t * cell) {
    using At = Place<T>;
    auto plane = [&](int at, int n_vectors) { return iload(cell + at + i % n_vectors * 64); };
    if constexpr (T::BITS == 8) return plane(0, 8);
    Ints q{};
    if constexpr (T::BITS == 4 || T::BITS == 5 || T::BITS == 6) q = field<i / 4 * 4, 0, 4>(plane(At::FOUR_BITS, 4));
    if constexpr (T::BITS == 2 || T::BITS == 3) q = field<i / 2 * 2, 0, 2>(plane(At::TWO_BITS, 2));
    if constexpr (T::BITS == 6) q = ior(q, field<i / 2 * 2, 4, 2>(plane(At::TWO_BITS, 2)));
    if constexpr (T::BITS == 5) q = ior(q, field<i, 4, 1>(plane(At::ONE_BIT, 1)));
    if constexpr (T::BITS == 3) q = ior(q, field<i, 2, 1>(plane(At::ONE_BIT, 1)));
    if constexpr (T::BITS == 1) q = field<i, 1, 1>(plane(At::ONE_BIT, 1));
    if constexpr (T::HAS_TABLE) q = look_up(T::TABLE, q);
    return q;
}

template <class T> inline Floats block_scale(const uint8_t * p) {  // p: of kLanes rows
    if constexpr (T::SCALE_BYTES == 1) {
        // 2^(e - 128), as MXFP4's values are doubled; 2^-128, no normal number, counts as 0
        return mul(as_float(left32<23>(unsigned_bytes(p))), set(0.5f));
    } else if constexpr (T::UNIT != 1.0f) return mul(halves((const uint16_t *) p), set(T::UNIT));
    else return halves((const uint16_t *) p);
}

// Scales of kLanes rows' cells that lie in nibbles, those of the low or the high ones.
template <class T, bool IS_HIGH> UAD_INLINE Ints odd_scale(Ints nibbles) {
    const Ints n = iand(IS_HIGH ? right<4>(nibbles) : nibbles, iset(T::MOST));
    return iadd(iadd(n, n), iset(1));
}

// kLanes numbers of 7 bits: an exponent of 4, a mantissa of 3; halved, as the values are doubled.
inline Floats small_floats(const uint8_t * p) { return mul(as_float(left32<20>(unsigned_bytes(p))), set(0x1p119f)); }

#if defined(UAD_NEON)
#include "arm.h"
#else
// A block's weights, for P vectors of rows: those of a group, then those of the next. cells: where they are, unpacked or not.
// next, next_cells: bytes from a group's block, and from its cells, to those of the next one.
template <class T, int P> struct BlockRows {
    static constexpr int GROUPS = P * kLanes / kRows;
    static_assert(P * kLanes % kRows == 0, "whole groups");
    const uint8_t *block, *cells;
    int64_t next, next_cells;
    Floats scale[P], minimum[P];

    UAD_INLINE BlockRows(const uint8_t * at, const uint8_t * first_cell, int64_t group = 0, int64_t group_cells = 0)
        : block(at), cells(first_cell), next(group), next_cells(group_cells) {
        using At = Place<T>;
        for (int p = 0; p < P; p++) {
            if constexpr (T::SCALE_BYTES > 0) scale[p] = block_scale<T>(rows(p, At::BLOCK_SCALE, T::SCALE_BYTES));
            if constexpr (T::HAS_MIN) minimum[p] = halves((const uint16_t *) rows(p, At::BLOCK_MIN, 2));
        }
    }
    // Vector p of what lies `at` bytes from the block's begin, `size` bytes for each row; of cell c.
    UAD_INLINE const uint8_t * rows(int p, int at, int size = 1) const { return block + at + p * kLanes / kRows * next + p * kLanes % kRows * size; }
    UAD_INLINE const uint8_t * cell(int c, int p) const {
        return cells + c * (T::IN_BYTES ? kBytes : Place<T>::CELL) + p * kLanes / kRows * next_cells + p * kLanes % kRows * 4;
    }
};

// Scale and minimum of cell c, for vector p of rows, of types with one scale for a cell.
template <class T, int P> UAD_INLINE Floats whole_scale(const BlockRows<T, P> & rows, int p, int c) {
    using At = Place<T>;
    if constexpr (T::NIBBLES) {
        const Ints nibbles = unsigned_bytes(rows.rows(p, At::SCALES + c / 2 * kRows));
        return mul(rows.scale[p], to_float(c % 2 ? odd_scale<T, true>(nibbles) : odd_scale<T, false>(nibbles)));
    } else if constexpr (T::N_SCALES > 0) {
        const uint8_t * at = rows.rows(p, At::SCALES + c * kRows);
        return mul(rows.scale[p], to_float(T::HAS_TABLE ? signed_bytes(at) : unsigned_bytes(at)));
    } else return rows.scale[p];
}
template <class T, int P> UAD_INLINE Floats whole_minimum(const BlockRows<T, P> & rows, int p, int c) {
    if constexpr (T::N_MINS > 0) return mul(rows.minimum[p], to_float(unsigned_bytes(rows.rows(p, Place<T>::MINS + c * kRows))));
    else return rows.minimum[p];
}

// dots += products of steps FIRST to FIRST + COUNT - 1 of a cell.
template <class T, int FIRST, int COUNT, int N, int P>
UAD_INLINE void multiply_steps(const BlockRows<T, P> & rows, int c, const Cell * columns, const Ints * factors, Dot<T> (&dots)[N][P]) {
    constexpr bool is_first = FIRST == 0 && T::OFFSET == 0;
    constexpr int AT_ONCE = Dot<T>::AT_ONCE;
    times<COUNT / AT_ONCE>([&](auto chunk) {
        constexpr int begin = decltype(chunk)::value * AT_ONCE;
        Weight weights[AT_ONCE][P];
        times<AT_ONCE>([&](auto i) {
            constexpr int step = FIRST + begin + decltype(i)::value;
            for (int p = 0; p < P; p++) weights[i][p] = weight<T>(unpacked<T, step>(rows.cell(c, p)));
        });
        for (int j = 0; j < N; j++)
            times<AT_ONCE>([&](auto i) {
                constexpr int step = begin + decltype(i)::value;
                const int8_t * y = columns[j].y + 4 * (FIRST + step);
                if constexpr (P == 1 && Dot<T>::HAS_STEP_OF_WORD) return dots[j][0].step_of_word(weights[i][0], y);
                const Ints values = word(y);
                for (int p = 0; p < P; p++) dots[j][p].template step<step, COUNT, is_first>(weights[i][p], values, factors[p]);
            });
    });
}

// sums += cell c of a block whose cells have one scale each.
template <class T, int N, int P> UAD_INLINE void add_whole_cell(const BlockRows<T, P> & rows, int c, const Cell * columns, Floats (&sums)[N][P]) {
    constexpr bool HAS_OFF = T::OFFSET != 0 || (T::SIGNED && kBias != 0);
    Dot<T> dots[N][P];
    for (int j = 0; j < N; j++)
        for (int p = 0; p < P; p++) dots[j][p].total = HAS_OFF ? iset(columns[j].off) : izero();
    Ints ones[P];
    for (int p = 0; p < P; p++) ones[p] = iset(0x00010001);
    multiply_steps<T, 0, 8>(rows, c, columns, ones, dots);
    for (int p = 0; p < P; p++) {
        const Floats scale = whole_scale(rows, p, c);
        Floats least{};
        if constexpr (T::HAS_MIN) least = whole_minimum(rows, p, c);
        for (int j = 0; j < N; j++) {
            Floats & sum = sums[j][p];
            sum = fma(to_float(dots[j][p].total), mul(scale, set(columns[j].scale)), sum);
            if constexpr (T::HAS_MIN && T::N_MINS > 0) sum = nfma(least, set(columns[j].scaled_sum), sum);
            else if constexpr (T::HAS_MIN) sum = fma(least, set(columns[j].scaled_sum), sum);
        }
    }
}

// Scales of half h of a cell, which lie at `at`.
template <class T, int h> UAD_INLINE Ints half_scale(const uint8_t * at) {
    if constexpr (T::NIBBLES) return odd_scale<T, h == 1>(unsigned_bytes(at));
    else if constexpr (T::SCALE == Scale::Halves) return signed_bytes(at);
    else return iand(unsigned_bytes(at), iset(15));
}

// Scales of a cell's two halves, and `least`: what minima (or the weights' offset) add for each unit of the halves' sums.
template <class T> UAD_INLINE void half_scales(const uint8_t * at, Ints & first, Ints & second, Ints & least) {
    const uint8_t * next = at + (T::NIBBLES ? 0 : kRows);
    first = half_scale<T, 0>(at), second = half_scale<T, 1>(next);
    if constexpr (T::SCALE == Scale::Halves) least = two(imul(first, iset(-T::OFFSET)), imul(second, iset(-T::OFFSET)));
    else least = two(right<4>(unsigned_bytes(at)), right<4>(unsigned_bytes(next)));
}

// sums += cell c of a block with a scale for each 16 columns.
template <class T, int N, int P> UAD_INLINE void add_halved_cell(const BlockRows<T, P> & rows, int c, const Cell * columns, Floats (&sums)[N][P]) {
    // what the weights' offset adds is where sums begin: already scaled, where pairs are
    constexpr bool MINS_FIRST = kScalesPairs && T::SCALE == Scale::Halves;
    Ints scales[2][P], mins[P], whole[N][P];
    for (int p = 0; p < P; p++)
        half_scales<T>(rows.rows(p, Place<T>::SCALES + (T::NIBBLES ? 1 : 2) * c * kRows), scales[0][p], scales[1][p], mins[p]);
    Dot<T> dots[N][P];
    times<2>([&](auto half) {
        constexpr int h = decltype(half)::value;
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++)
                if (h == 0 || !kScalesPairs) {
                    if constexpr (kOffsInHalves<T>) dots[j][p].total = iset(h == 0 ? columns[j].first_off : columns[j].off);
                    else dots[j][p].total = MINS_FIRST ? dot_two(mins[p], word(columns[j].sum)) : izero();
                }
        Ints factors[P];
        for (int p = 0; p < P; p++) factors[p] = two(scales[h][p], scales[h][p]);
        multiply_steps<T, 4 * h, 4>(rows, c, columns, factors, dots);
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) {
                const Ints scaled = kScalesPairs ? dots[j][p].total : imul(dots[j][p].total, scales[h][p]);
                whole[j][p] = h == 0 || kScalesPairs ? scaled : iadd(whole[j][p], scaled);
            }
    });
    for (int j = 0; j < N; j++)
        for (int p = 0; p < P; p++) {
            Floats & sum = sums[j][p];
            sum = fma(to_float(whole[j][p]), mul(rows.scale[p], set(columns[j].scale)), sum);
            if constexpr (T::SCALE == Scale::HalvesMin)
                sum = nfma(to_float(dot_two(mins[p], word(columns[j].sum))), mul(rows.minimum[p], set(columns[j].scale)), sum);
        }
}

// sums += cell c of a block with a float for each 16 columns.
template <class T, int N, int P> UAD_INLINE void add_cell_of_floats(const BlockRows<T, P> & rows, int c, const Cell * columns, Floats (&sums)[N][P]) {
    Ints ones[P];
    for (int p = 0; p < P; p++) ones[p] = iset(0x00010001);
    times<2>([&](auto half) {
        constexpr int h = decltype(half)::value;
        Dot<T> dots[N][P];
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) dots[j][p].total = iset(-T::OFFSET * columns[j].sum[h]);
        multiply_steps<T, 4 * h, 4>(rows, c, columns, ones, dots);
        for (int p = 0; p < P; p++) {
            const Floats scale = small_floats(rows.rows(p, Place<T>::SCALES + (2 * c + h) * kRows));
            for (int j = 0; j < N; j++) sums[j][p] = fma(to_float(dots[j][p].total), mul(scale, set(columns[j].scale)), sums[j][p]);
        }
    });
}

// unpacked: the groups' cells where they have been unpacked before, else null. out: N times 16 floats, for each group.
template <class T, int N, int P>
inline void quantized_tile(const uint8_t * group, const uint8_t * unpacked, int64_t n_cells, const Cell * columns, float * out) {
    using At = Place<T>;
    constexpr int GROUPS = BlockRows<T, P>::GROUPS;
    constexpr bool IN_HALVES = T::SCALE == Scale::Halves || T::SCALE == Scale::HalvesMin;
    alignas(64) uint8_t bytes[T::IN_BYTES ? GROUPS * At::N_CELLS * kBytes : 1];
    Floats sums[N][P];
    times<N * P>([&](auto i) { sums[decltype(i)::value / P][decltype(i)::value % P] = zero(); });
    const uint8_t * block = group;
    const int64_t next = n_cells / At::N_CELLS * At::BLOCK;
    for (int64_t b = 0; b < n_cells; b += At::N_CELLS, block += At::BLOCK) {
        const uint8_t * cells = block + At::CELLS;
        int64_t next_cells = next;
        if constexpr (T::IN_BYTES) {
            for (int g = 0; g < GROUPS && !unpacked; g++) unpack_block<T>(block + g * next, bytes + g * At::N_CELLS * kBytes);
            cells = unpacked ? unpacked + b * kBytes : bytes, next_cells = (unpacked ? n_cells : At::N_CELLS) * kBytes;
        }
        const BlockRows<T, P> rows(block, cells, next, next_cells);
        for (int c = 0; c < At::N_CELLS; c++) {
            if constexpr (!T::IN_BYTES)
                for (int p = 0; p < P; p += kRows / kLanes)
                    for (int at = 0; at < At::CELL; at += 64) __builtin_prefetch(rows.cell(c, p) + 4096 + at);
            if constexpr (T::SCALE == Scale::Floats) add_cell_of_floats(rows, c, columns + (b + c) * N, sums);
            else if constexpr (IN_HALVES) add_halved_cell(rows, c, columns + (b + c) * N, sums);
            else add_whole_cell(rows, c, columns + (b + c) * N, sums);
        }
    }
    times<N * P>([&](auto i) {
        constexpr int j = decltype(i)::value / P, p = decltype(i)::value % P;
        store(out + (p * kLanes / kRows * N + j) * kRows + p * kLanes % kRows, sums[j][p]);
    });
}

#endif

constexpr int kMostColumns = 16;    // of any tile
constexpr int kNarrow = 8;          // up to this width there is a tile of each

// On matrix units:
constexpr int kFew = 32;             // columns that are multiplied while weights are unpacked: two tiles of them
constexpr int kManyGroups = 20;      // groups that a thread unpacks at once for more columns,
constexpr int kPanel = 48;           // and cells of each: a megabyte, half of a core's second cache. Whole blocks of all types
constexpr int kTileBytes = 64 * 16;  // of a cell as a tile

#if defined(UAD_AMX)
#include "matrix.h"
#endif

// ---- floats

// F32 and F16: column after column of 16 rows. BF16: pairs of columns, a row's two values in each lane. Columns of a tile
// lie beside each other, each value or pair of values as it is multiplied.
#if !defined(UAD_NEON)  // arm.h has another one
template <int TYPE, int N, int P> inline void float_tile(const uint8_t * group, int64_t n_cells, const float * columns, float * out) {
    constexpr int BYTES = ggml::block_of(TYPE).bytes, CELL = kCell * kRows * BYTES;
    for (int lane = 0; lane < kRows; lane += P * kLanes) {
        Floats sums[N][P];
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) sums[j][p] = zero();
        const uint8_t * w = group + lane * (TYPE == ggml::BF16 ? 4 : BYTES);
        const float * x = columns;
        for (int64_t b = 0; b < n_cells; b++) {
            Floats cell_sums[N][P];  // of a cell: sums of sums are nearer to the truth than one long sum
            for (int j = 0; j < N; j++)
                for (int p = 0; p < P; p++) cell_sums[j][p] = zero();
            // processors fetch ahead by themselves, but too little where several columns take long
            for (int at = 0; at < (N < 4 ? 64 : CELL); at += 64) __builtin_prefetch(w + 4096 + at);
            if constexpr (TYPE == ggml::BF16) {
#if defined(UAD_BF16)
                for (int k = 0; k < kCell; k += 2, w += 64, x += N)
                    for (int p = 0; p < P; p++)
                        for (int j = 0; j < N; j++) cell_sums[j][p] = dot_bf16(cell_sums[j][p], iload(w + p * kLanes * 4), word(x + j));
#else
                for (int k = 0; k < kCell; k += 2, w += 64, x += 2 * N) {
                    // one value of the pairs after the other: both at once need more than 16 registers
                    Floats values[P];
                    for (int p = 0; p < P; p++) values[p] = as_float(left32<16>(iload(w + p * kLanes * 4)));
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) cell_sums[j][p] = fma(values[p], set(x[j]), cell_sums[j][p]);
                    for (int p = 0; p < P; p++) values[p] = as_float(iand(iload(w + p * kLanes * 4), iset((int32_t) 0xffff0000)));
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) cell_sums[j][p] = fma(values[p], set(x[N + j]), cell_sums[j][p]);
                }
#endif
            } else {
                for (int k = 0; k < kCell; k++, w += kRows * BYTES, x += N) {
                    Floats values[P];
                    for (int p = 0; p < P; p++) {
                        if constexpr (TYPE == ggml::F32) values[p] = load((const float *) w + p * kLanes);
                        else values[p] = halves((const uint16_t *) w + p * kLanes);
                    }
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) cell_sums[j][p] = fma(values[p], set(x[j]), cell_sums[j][p]);
                }
            }
            for (int j = 0; j < N; j++)
                for (int p = 0; p < P; p++) sums[j][p] = add(sums[j][p], cell_sums[j][p]);
        }
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) store(out + j * kRows + lane + p * kLanes, sums[j][p]);
    }
}
#endif

template <int TYPE> void pack_floats(int64_t k, int64_t rows, const uint8_t * from, uint8_t * to, int64_t first, int64_t last) {
    constexpr int BYTES = ggml::block_of(TYPE).bytes, WIDTH = TYPE == ggml::BF16 ? 2 : 1;  // WIDTH: columns side by side
    const int64_t padded = (k + kCell - 1) / kCell * kCell;
    for (int64_t g = first; g < last; g++) {
        uint8_t * group = to + g * padded * kRows * BYTES;
        for (int r = 0; r < kRows; r++) {
            const bool is_row = g * kRows + r < rows;
            const uint8_t * row = from + (g * kRows + r) * k * BYTES;
            for (int64_t c = 0; c < padded; c += WIDTH) {
                uint8_t * to_one = group + (c * kRows + r * WIDTH) * BYTES;
                if (is_row && c + WIDTH <= k) memcpy(to_one, row + c * BYTES, WIDTH * BYTES);
                else {
                    memset(to_one, 0, WIDTH * BYTES);
                    if (is_row && c < k) memcpy(to_one, row + c * BYTES, BYTES);
                }
            }
        }
    }
}

// ---- one table row for each type

#if defined(UAD_AVX512)
constexpr int kTile = 16, kParts = 1, kFloatTile = 8, kFloatParts = 1;
#elif defined(UAD_NEON)
constexpr int kTile = 8, kParts = 4, kFloatTile = 4, kFloatParts = 4;
#else
constexpr int kTile = 8, kParts = 2, kFloatTile = 6, kFloatParts = 2;
#endif
// Columns of a tile. With 16 registers the sums of 5 columns by 2 vectors stay in them, beside 2 vectors of weights. Where
// unpacking or scaling takes longer than moving sums does, 8 columns are faster. So they are with 32 registers where
// cells are unpacked once for all tiles, and where a cell has four scales.
template <class T> constexpr int tile_columns() {
    if (kLanes == 16 && (T::SCALE == Scale::HalvesMin || (T::IN_BYTES && T::N_SCALES > 0))) return 8;
    constexpr bool is_quick = !kScalesPairs || (T::BITS == 4 && !T::SIGNED) || (T::IN_BYTES && T::LARGEST > 64);
    return kLanes == 8 && is_quick ? 5 : kTile;
}

struct WeightType {
    int number;
    int columns;      // of a block
    int offset;       // that columns are quantized for
    bool offs_in_halves;
    int tile;         // columns of a tile, at most
    bool is_float;
    size_t block;     // bytes of a group's block
    void (*pack)(int64_t k, int64_t rows, const uint8_t * from, uint8_t * to, int64_t first, int64_t last);
    // by number of columns; null where there is no tile of that width
    void (*tiles[kMostColumns + 1])(const uint8_t * group, const uint8_t * unpacked, int64_t n_cells, const void * columns, float * out);
    // two groups by kNarrow columns; null where one after the other is as fast
    void (*pair)(const uint8_t * group, const uint8_t * unpacked, int64_t n_cells, const void * columns, float * out) = nullptr;
    // unpacks a group for several tiles of columns, for types that have to be; bytes of a cell then
    void (*unpack)(const uint8_t * group, int64_t n_cells, uint8_t * to) = nullptr;
    size_t unpacked_cell = kBytes;
    // On matrix units: up to kFew columns, and a group's cells as tiles for more, unless they lie so.
    void (*few)(const uint8_t * group, int64_t n_cells, const void * columns, int n, float * out) = nullptr;
    void (*to_tiles)(const uint8_t * group, int64_t first_cell, int64_t n_cells, char * to) = nullptr;
};

template <int TYPE> constexpr bool is_float = ggml::block_of(TYPE).columns == 1;

template <int TYPE, int N, int P = kParts> void one_tile(const uint8_t * group, const uint8_t * unpacked, int64_t n_cells, const void * columns, float * out) {
    if constexpr (is_float<TYPE>) {
        static_assert(N <= kFloatTile, "there is no tile of this width");
        float_tile<TYPE, N, kFloatParts>(group, n_cells, (const float *) columns, out);
    } else {
        static_assert(N <= tile_columns<Format<TYPE>>(), "there is no tile of this width");
#if defined(UAD_NEON)
        quantized_tile<Format<TYPE>, N>(group, unpacked, n_cells, (const Cell *) columns, out);
#else
        quantized_tile<Format<TYPE>, N, P>(group, unpacked, n_cells, (const Cell *) columns, out);
#endif
    }
}

// Tiles of 1 to kNarrow columns, and of 12 and 16 where registers are enough: all widths would take long to compile.
template <int TYPE, int MOST> constexpr void set_tiles(WeightType & row) {
    times<MOST>([&](auto i) {
        constexpr int n = decltype(i)::value + 1;
        if constexpr (n <= kNarrow || n % 4 == 0) row.tiles[n] = one_tile<TYPE, n>;
    });
}

template <class T> constexpr int column_offset() {
#if defined(UAD_NEON)
    if (T::SCALE == Scale::HalvesMin) return -1;  // the sums themselves
#endif
    return T::SIGNED ? kBias : T::OFFSET;
}

template <int TYPE> constexpr WeightType row_of() {
    WeightType row{};
#if defined(UAD_AMX)
    if constexpr (!is_float<TYPE>) {
        using T = Format<TYPE>;
        row = {TYPE, T::COLUMNS, 0, false, kMostColumns, false, (size_t) Place<T>::BLOCK, pack_groups<T>, {}};
        row.few = few_columns<group_to_tiles<T>>, row.to_tiles = group_to_tiles<T>;
        return row;
    } else if constexpr (TYPE == ggml::BF16) {
        row = {TYPE, 1, 0, false, kMostColumns, true, (size_t) kTileBytes, pack_floats<TYPE>, {}};
        row.few = few_columns<nullptr>;
        return row;
    }
#endif
    if constexpr (is_float<TYPE>) {
        row = {TYPE, 1, 0, false, kFloatTile, true, (size_t) ggml::block_of(TYPE).bytes * kRows * kCell, pack_floats<TYPE>, {}};
        set_tiles<TYPE, kFloatTile>(row);
    } else {
        using T = Format<TYPE>;
        row = {TYPE, T::COLUMNS, column_offset<T>(), kOffsInHalves<T>, tile_columns<T>(), false, (size_t) Place<T>::BLOCK, pack_groups<T>, {}};
        set_tiles<TYPE, tile_columns<T>()>(row);
#if defined(UAD_NEON)
        if constexpr (is_made_ready<T>) row.unpack = ready_group<T>, row.unpacked_cell = sizeof(ReadyCell<T>);
#else
        if constexpr (T::IN_BYTES) row.unpack = unpack_group<T>;
        // loads of columns bound tiles there: two groups share them
        if constexpr (T::SCALE == Scale::Whole && !T::IN_BYTES && kLanes == kRows) row.pair = one_tile<TYPE, kNarrow, 2>;
#endif
    }
    return row;
}

const WeightType kWeightTypes[] = {
#define UAD_ROW(NAME, NUMBER, TEXT, COLUMNS, BYTES) row_of<ggml::NAME>(),
    UAD_TYPES(UAD_ROW)
#undef UAD_ROW
};

inline const WeightType * weight_type(int number) {
    for (const WeightType & type : kWeightTypes)
        if (type.number == number) return &type;
    return nullptr;
}

// ---- whole operations

inline size_t group_bytes(const WeightType & type, int64_t k) {
    return type.is_float ? (size_t) ((k + kCell - 1) / kCell) * type.block : (size_t) (k / type.columns) * type.block;
}

inline int64_t groups_of(int64_t rows) { return (rows + kRows - 1) / kRows; }

// Bytes of a repacked matrix, or 0 where its columns fill no blocks.
inline size_t matrix_bytes(int number, int64_t k, int64_t rows) {
    const WeightType * type = weight_type(number);
    if (!type || k % type->columns) return 0;
    return group_bytes(*type, k) * groups_of(rows);
}

inline void repack(int number, int64_t k, int64_t rows, const void * from, void * to, int64_t first_group, int64_t last_group) {
    weight_type(number)->pack(k, rows, (const uint8_t *) from, (uint8_t *) to, first_group, last_group);
}

// The group of the repacked tensor that a view of it begins at, -1 where the view is not one of whole groups.
inline int64_t group_offset(const ggml::Tensor * w) {
    const ggml::Tensor * whole = w->view_src;
    if (!whole) return 0;
    if (w->ne[0] != whole->ne[0] || w->nb[0] != whole->nb[0] || w->nb[1] != whole->nb[1] || w->view_offs % whole->nb[1]) return -1;
    const int64_t row = (int64_t) (w->view_offs / whole->nb[1]), whole_groups = groups_of(whole->ne[1]);
    const int64_t n_matrices = w->ne[2] * w->ne[3];
    int64_t group = -1;
    if (w->ne[1] == whole->ne[1] && w->nb[2] == whole->nb[2] && w->nb[3] == whole->nb[3]) {  // whole matrices
        if (row % whole->ne[1] == 0) group = row / whole->ne[1] * whole_groups;
    } else {
        // rows may be cut or joined at will where groups have no rows of padding; of a single matrix the last group may be cut
        const bool is_dense = whole->ne[1] % kRows == 0 && w->ne[1] % kRows == 0 && w->nb[2] == w->nb[1] * w->ne[1] && w->nb[3] == w->nb[2] * w->ne[2];
        const bool is_single = whole->ne[2] * whole->ne[3] == 1 && n_matrices == 1;
        if (row % kRows == 0 && (is_dense || is_single)) group = row / kRows;
    }
    return group + groups_of(w->ne[1]) * n_matrices <= whole_groups * whole->ne[2] * whole->ne[3] ? group : -1;
}

// Columns that one matrix of the weights is multiplied by: n of them, from number `first` of all.
struct ColumnRange {
    int64_t first, n;
};

// A product: its sizes, and where things are in the scratch. A column of x is quantized once. With experts (MUL_MAT_ID)
// several matrices may multiply it, so its cells then lie in several tiles.
struct ProductPlan {
    const ggml::Tensor *w, *x, *ids, *op;
    const WeightType * type;
    int64_t k, rows, n_cells, n_matrices, n_groups;
    int64_t n_sources, n_copies, n_columns;  // columns of x; matrices that multiply each of them; both together
    size_t unit, cell_bytes;                 // bytes that a tile keeps together of a column's cell; all of the cell
    size_t matrix;                           // bytes of a repacked matrix
    const uint8_t * weights;
    int64_t by2, by3;                        // MUL_MAT: matrices of x that share one of the weights

    NextTask * next;
    // tables for experts only: columns of each matrix; for each use of a token, its column; for each column, its results
    ColumnRange * ranges = nullptr;
    int64_t * places = nullptr;
    float ** results = nullptr;
    char * cells;
    uint8_t * unpacked;  // each thread's groups that it unpacks for several tiles

    explicit ProductPlan(const ggml::Tensor * product) {
        op = product;
        w = op->src[0], x = op->src[1], ids = op->src[2];
        type = weight_type(w->type);
        k = w->ne[0], rows = w->ne[1];
        n_cells = (k + kCell - 1) / kCell;
        n_matrices = w->ne[2] * w->ne[3];
        n_sources = ggml::n_rows(x), n_copies = ids ? ids->ne[0] / x->ne[1] : 1, n_columns = n_sources * n_copies;
        by2 = ids ? 1 : x->ne[2] / w->ne[2], by3 = ids ? 1 : x->ne[3] / w->ne[3];
        n_groups = groups_of(rows);
        unit = type->few ? 2 * kCell : type->is_float ? 4 : sizeof(Cell);
        cell_bytes = in_bf16() ? 2 * kCell : type->is_float ? 4 * kCell : sizeof(Cell);
        matrix = group_bytes(*type, k) * n_groups;
        const ggml::Tensor * whole = w->view_src ? w->view_src : w;
        weights = (const uint8_t *) whole->data + std::max<int64_t>(0, group_offset(w)) * group_bytes(*type, k);
    }

    bool in_cells() const { return !type->is_float && !type->few; }  // columns are quantized
    bool in_bf16() const {  // columns
#if defined(UAD_BF16)
        return type->few || type->number == ggml::BF16;
#else
        return false;
#endif
    }

    // Groups that a thread takes at once: what it reads again and again for each tile of columns stays in a near cache.
    int64_t most_groups() const { return is_many(n_columns) ? kManyGroups : in_pairs(((n_columns > kMostColumns ? 256 : 128) << 10) / (int64_t) group_bytes(*type, k)); }
    int64_t in_pairs(int64_t n) const {  // at least 1; an even number where tiles take two groups
        const int64_t some = type->pair && n_columns > kMostColumns ? 2 : 1;
        return std::max(some, n / some * some);
    }
    // Shares of the groups that each thread takes, at least. Fewer where taking groups has a price.
    int64_t shares() const { return is_many(n_columns) ? 3 : 8; }
    bool is_many(int64_t n) const { return type->few && n > kFew; }

    // Groups that a thread unpacks at once: they stay in a near cache beside the columns of a tile.
    int64_t unpacked_group() const { return is_many(n_columns) ? kPanel * kTileBytes : n_cells * (int64_t) type->unpacked_cell; }
    int64_t most_unpacked() const {
        if (is_many(n_columns)) return type->to_tiles ? kManyGroups : 0;
        return type->unpack && n_columns > widest_of_many() ? std::max<int64_t>(1, (128 << 10) / unpacked_group()) : 0;
    }

    size_t size(int n_threads) const {
        const size_t tables = ids ? sizeof(ColumnRange) * n_matrices + (sizeof(int64_t) + sizeof(float *)) * n_columns : 0;
        return 256 + tables + cell_bytes * n_cells * n_columns + 64 + unpacked_group() * most_unpacked() * n_threads;
    }

    void lay_out(const ggml::Compute & compute) {
        require(compute.wsize >= size(compute.nth), "there is too little scratch", op);
        uintptr_t at = aligned(compute.wdata);
        next = (NextTask *) at, at += 64;
        if (ids) {
            ranges = (ColumnRange *) at, at += sizeof(ColumnRange) * n_matrices;
            places = (int64_t *) at, at += sizeof(int64_t) * n_columns;
            results = (float **) at, at += sizeof(float *) * n_columns;
        }
        cells = (char *) aligned((void *) at);
        unpacked = (uint8_t *) aligned(cells + cell_bytes * n_cells * n_columns) + unpacked_group() * most_unpacked() * compute.ith;
    }

    ColumnRange range(int64_t m) const {
        const int64_t n = x->ne[1] * by2 * by3;
        return ids ? ranges[m] : ColumnRange{m * n, n};
    }

    int64_t expert(int64_t use, int64_t token) const {
        return *(const int32_t *) ((const char *) ids->data + use * ids->nb[0] + token * ids->nb[1]);
    }

    // Where column `at` of matrix m lies in a tensor shaped like x. Of MUL_MAT: a matrix of the weights may serve several of x.
    char * column(const ggml::Tensor * t, int64_t m, int64_t at) const {
        const int64_t i1 = at % x->ne[1], shared = at / x->ne[1];
        const int64_t i2 = m % w->ne[2] * by2 + shared % by2, i3 = m / w->ne[2] * by3 + shared / by2;
        return (char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
    }

    float * result(int64_t m, int64_t at) const { return ids ? results[ranges[m].first + at] : (float *) column(op, m, at); }

    // The columns of MUL_MAT_ID, by expert: ids[use, token] is the expert that multiplies x[:, use % x's, token].
    void list_experts() const {
        for (int64_t m = 0; m < n_matrices; m++) ranges[m] = {0, 0};
        for (int64_t t = 0; t < ids->ne[1]; t++)
            for (int64_t u = 0; u < ids->ne[0]; u++) {
                require((uint64_t) expert(u, t) < (uint64_t) n_matrices, "there is no such expert", op);
                ranges[expert(u, t)].n++;
            }
        for (int64_t m = 1; m < n_matrices; m++) ranges[m].first = ranges[m - 1].first + ranges[m - 1].n;
        for (int64_t m = 0; m < n_matrices; m++) ranges[m].n = 0;
        for (int64_t t = 0; t < ids->ne[1]; t++)
            for (int64_t u = 0; u < ids->ne[0]; u++) {
                ColumnRange & range = ranges[expert(u, t)];
                const int64_t place = range.first + range.n++;
                places[t * ids->ne[0] + u] = place;
                results[place] = (float *) ((char *) op->data + u * op->nb[1] + t * op->nb[2]);
            }
    }

    int64_t widest_of_many() const { return std::min(kNarrow, type->tile); }

    // Columns of each tile of n columns but the last. Tiles of equal width beat wide ones and a remainder, but on matrix
    // units a wide one costs no more. Wide ones on vectors serve few columns: those of many would not stay in the nearest cache.
    int64_t width(int64_t n) const {
        if (type->few || (n <= type->tile && type->tiles[n])) return type->tile;
        const int64_t most = widest_of_many(), n_tiles = (n + most - 1) / most;
        return (n + n_tiles - 1) / n_tiles;
    }

    // Where the cells of the tile that begins at this column lie: those of earlier columns are before it.
    char * tile(int64_t column) const { return cells + column * n_cells * cell_bytes; }

    // A column within its tile of n columns, which lie beside each other, unit by unit.
    struct ColumnPlace {
        char * tile;
        int64_t n, j;
        char * at(int64_t i, size_t unit) const { return tile + (i * n + j) * unit; }

        // Cell b is written, or read.
        void write(int64_t b, const Cell & cell) const { move(b, (char *) &cell, [](char * in_cell, char * here, size_t size) { memcpy(here, in_cell, size); }); }
        Cell read(int64_t b) const {
            Cell cell;
            move(b, (char *) &cell, [](char * in_cell, char * here, size_t size) { memcpy(in_cell, here, size); });
            return cell;
        }
        template <class Move> void move(int64_t b, char * cell, Move move) const {
#if defined(UAD_I8MM)
            if (j / 2 * 2 + 1 < n) {  // cells of two columns lie in each other: eight values of both, then numbers of both
                char * pair = tile + (b * n + j / 2 * 2) * sizeof(Cell);
                for (size_t i = 0; i < kCell; i += 8) move(cell + i, pair + 2 * i + j % 2 * 8, 8);
                for (size_t i = kCell; i < sizeof(Cell); i += 4) move(cell + i, pair + 2 * i + j % 2 * 4, 4);
                return;
            }
#endif
            move(cell, at(b, sizeof(Cell)), sizeof(Cell));
        }
    };
    ColumnPlace place(int64_t m, int64_t at) const {
        const ColumnRange range = this->range(m);
        assert(0 <= at && at < range.n && range.first + range.n <= n_columns);
        const int64_t width = this->width(range.n), begin = at / width * width;
        return {tile(range.first + begin), std::min(width, range.n - begin), at - begin};
    }

    // Quantizes (or copies) cells `first` to `last` of a column of x into the tiles that it is in.
    void prepare(int64_t source, int64_t first, int64_t last) const {
        if (!ids) {
            const int64_t n = range(0).n, m = source / n, at = source % n;
            return fill(column(x, m, at), place(m, at), first, last);
        }
        const int64_t i = source % x->ne[1], token = source / x->ne[1], units = cell_bytes / unit;
        ColumnPlace filled{};
        for (int64_t use = i; use < ids->ne[0]; use += x->ne[1]) {
            const int64_t m = expert(use, token);
            const ColumnPlace to = place(m, places[token * ids->ne[0] + use] - ranges[m].first);
            if (use == i) fill((const char *) x->data + i * x->nb[1] + token * x->nb[2], filled = to, first, last);
            else if (in_cells())
                for (int64_t b = first; b < last; b++) to.write(b, filled.read(b));
            else
                for (int64_t u = first * units; u < last * units; u++) memcpy(to.at(u, unit), filled.at(u, unit), unit);
        }
    }

    void fill(const char * from, const ColumnPlace & to, int64_t first, int64_t last) const {
        const size_t stride = x->nb[0];
        for (int64_t b = first; b < last; b++) {
            const char * values = from + b * kCell * stride;
            if (in_cells()) {
                Cell cell;
                quantize((const float *) values, stride, type->offset, type->offs_in_halves, cell);
                to.write(b, cell);
                continue;
            }
            float v[kCell];
            for (int i = 0; i < kCell; i++) v[i] = b * kCell + i < k ? *(const float *) (values + i * stride) : 0.0f;
#if defined(UAD_BF16)
            if (in_bf16()) {
                uint16_t rounded[kCell];
                istore(rounded, to_bf16(load(v), load(v + kLanes)));
                const int64_t in_unit = (int64_t) unit / 2;
                for (int64_t i = 0; i < kCell; i += in_unit) memcpy(to.at((b * kCell + i) / in_unit, unit), rounded + i, unit);
                continue;
            }
#endif
            for (int i = 0; i < kCell; i++) *(float *) to.at(b * kCell + i, 4) = v[i];
        }
    }

    // Groups of a matrix by all its columns. Several groups are taken by one tile of columns after the other, so that both
    // stay in the nearest caches.
    void multiply(int64_t m, int64_t first, int64_t last) const {
        assert(0 <= m && m < n_matrices && 0 <= first && last <= n_groups);
        const ColumnRange range = this->range(m);
        const size_t bytes = group_bytes(*type, k);
        const uint8_t * groups = weights + m * matrix;
#if defined(UAD_AMX)
        if (type->few) return is_many(range.n) ? multiply_many(m, first, last) : multiply_few(m, first, last);
#endif
        const bool unpacks = type->unpack && range.n > width(range.n);
        if (unpacks && last - first > most_unpacked()) {
            for (int64_t g = first; g < last; g += most_unpacked()) multiply(m, g, std::min(last, g + most_unpacked()));
            return;
        }
        if (unpacks)
            for (int64_t g = first; g < last; g++) type->unpack(groups + g * bytes, n_cells, unpacked + (g - first) * unpacked_group());
        float out[std::max(kMostColumns, 2 * kNarrow) * kRows];
        const int64_t width = this->width(range.n);
        for (int64_t at = 0; at < range.n; at += width) {
            const int64_t n = std::min(width, range.n - at);
            require(type->tiles[n] != nullptr, "there is no tile of this width", op);
            float * to[kMostColumns];
            for (int64_t j = 0; j < n; j++) to[j] = result(m, at + j);
            for (int64_t g = first, n_groups; g < last; g += n_groups) {
                n_groups = type->pair && n == kNarrow && range.n > n && g + 1 < last ? 2 : 1;
                const auto product = n_groups == 2 ? type->pair : type->tiles[n];
                product(groups + g * bytes, unpacks ? unpacked + (g - first) * unpacked_group() : nullptr, n_cells, tile(range.first + at), out);
                for (int64_t i = 0; i < n_groups; i++) {
                    const int64_t row = (g + i) * kRows, n_rows = std::min<int64_t>(kRows, rows - row);
                    for (int64_t j = 0; j < n; j++) memcpy(to[j] + row, out + (i * n + j) * kRows, n_rows * sizeof(float));
                }
            }
        }
    }

#if defined(UAD_AMX)
    void multiply_few(int64_t m, int64_t first, int64_t last) const {
        const ColumnRange range = this->range(m);
        const size_t bytes = group_bytes(*type, k);
        alignas(64) float out[kFew * kRows];
        configure((int) range.n);
        for (int64_t g = first; g < last; g++) {
            type->few(weights + m * matrix + g * bytes, n_cells, tile(range.first), (int) range.n, out);
            for (int64_t j = 0; j < range.n; j++) memcpy(result(m, j) + g * kRows, out + j * kRows, std::min<int64_t>(kRows, rows - g * kRows) * sizeof(float));
        }
        release_tiles();
    }

    // Weights are unpacked once, a panel of their cells after the other. Between panels, sums lie in the results.
    void multiply_many(int64_t m, int64_t first, int64_t last) const {
        const ColumnRange range = this->range(m);
        const size_t bytes = group_bytes(*type, k);
        const uint8_t * groups = weights + m * matrix;
        if (last - first > kManyGroups) {
            for (int64_t g = first; g < last; g += kManyGroups) multiply_many(m, g, std::min(last, g + kManyGroups));
            return;
        }
        for (int64_t cell = 0, configured = 0; cell < n_cells; cell += kPanel) {
            const int64_t some = std::min<int64_t>(kPanel, n_cells - cell);
            if (type->to_tiles)
                for (int64_t g = first; g < last; g++) type->to_tiles(groups + g * bytes, cell, some, (char *) unpacked + (g - first) * kPanel * kTileBytes);
            auto tiles_of = [&](int64_t g) {
                return type->to_tiles ? (const char *) unpacked + (g - first) * kPanel * kTileBytes : (const char *) groups + g * bytes + cell * kTileBytes;
            };
            for (int64_t at = 0; at < range.n; at += kFew) {
                const int64_t n = std::min<int64_t>(kFew, range.n - at);
                if (n != configured) configure((int) (configured = n));
                float * to[kFew];
                for (int64_t j = 0; j < n; j++) to[j] = result(m, at + j);
                const FewColumns few(tile(range.first + at), n_cells, (int) n);
                for (int64_t g = first; g < last; g += 2) {
                    const bool is_pair = g + 1 < last;
                    add_square({tiles_of(g), tiles_of(is_pair ? g + 1 : g)}, few, cell, some, cell > 0, [&](int64_t j) { return to[j] + g * kRows; },
                               std::min<int64_t>(is_pair ? 2 * kRows : kRows, rows - g * kRows), (int) n);
                }
            }
        }
        release_tiles();
    }
#endif
};

inline size_t product_size(int n_threads, const ggml::Tensor * op) { return ProductPlan(op).size(n_threads); }

inline void product(ggml::Compute * compute, ggml::Tensor * op) {
    ProductPlan plan(op);
    plan.lay_out(*compute);
    const int64_t ith = compute->ith, nth = compute->nth;
    if (ith == 0) plan.next->store(0, std::memory_order_relaxed);
    if (plan.ids) {
        if (ith == 0) plan.list_experts();
        calls.barrier(compute->threadpool);
    }

    // cells are prepared in equal shares; a single column's, too
    const int64_t n = plan.n_sources * plan.n_cells, end = n * (ith + 1) / nth;
    for (int64_t i = n * ith / nth; i < end;) {
        const int64_t cell = i % plan.n_cells, until = std::min(plan.n_cells, cell + end - i);
        plan.prepare(i / plan.n_cells, cell, until);
        i += until - cell;
    }
    calls.barrier(compute->threadpool);

    // groups are taken as threads get to them: a thread that the system has stopped holds up nobody for long
    int64_t n_used = 0;
    for (int64_t m = 0; m < plan.n_matrices; m++) n_used += plan.range(m).n > 0;
    const int64_t total = n_used * plan.n_groups;
    const int64_t take = nth == 1 ? plan.most_groups() : std::min(plan.in_pairs(total / (nth * plan.shares())), plan.most_groups());
    for (;;) {
        const int64_t first = plan.next->fetch_add(take, std::memory_order_relaxed);
        if (first >= total) break;
        int64_t m = -1, used = first / plan.n_groups;  // the used-th matrix that has columns
        for (int64_t seen = -1; seen < used;) seen += plan.range(++m).n > 0;
        int64_t g = first % plan.n_groups;
        for (int64_t left = std::min(take, total - first); left > 0;) {
            const int64_t n = std::min(left, plan.n_groups - g);
            plan.multiply(m, g, g + n);
            left -= n, g = 0;
            if (left > 0) while (!plan.range(++m).n) {}
        }
    }
}
