// A tile of a quantized type on ARM: 16 rows of weights by up to eight columns. A cell's columns stay in registers while
// its rows pass by, four at a time; sums lie in the nearest cache. Included by product.h.
//
// Four rows of a cell are eight vectors of 16 bytes. Vector (s, h), with s from 0 to 3 and h 0 or 1, has
//   neon: columns 8 s + 4 h to 8 s + 4 h + 3 of each row, for dot products with four values of a column
//   i8mm: columns 8 s to 8 s + 7 of rows 2 h and 2 h + 1 (word_at), for products of two rows by two columns
// Results of four rows by N columns are N vectors. neon: one for each column. i8mm: vector h N / 2 + p has rows 2 h and
// 2 h + 1 of columns 2 p and 2 p + 1: r0 c0, r0 c1, r1 c0, r1 c1. A last column without a neighbour has a vector of its own.

#define UAD_HERE __attribute__((always_inline))  // of a lambda

#if defined(UAD_I8MM)
template <int N> constexpr int PAIRS = N / 2;
#else
template <int N> constexpr int PAIRS = 0;
#endif
template <int N> constexpr bool is_pair(int v) { return v < 2 * PAIRS<N>; }

// A number of a cell's columns, for the lanes of vector v. AT: where it is in Cell.
template <int N, size_t AT> UAD_INLINE Ints value(const Cell * y, int v) {
    if constexpr (PAIRS<N> > 0)
        if (is_pair<N>(v)) return vreinterpretq_s32_s64(vld1q_dup_s64((const int64_t *) ((const char *) (y + v % PAIRS<N> * 2) + 2 * AT)));
    return vdupq_laneq_s32(iload(&y[v].scale), (AT - kCell) / 4);
}
template <int N> UAD_INLINE Floats scale_of(const Cell * y, int v) { return as_float(value<N, offsetof(Cell, scale)>(y, v)); }
template <int N> UAD_INLINE Floats scaled_sum_of(const Cell * y, int v) { return as_float(value<N, offsetof(Cell, scaled_sum)>(y, v)); }
template <int N> UAD_INLINE Ints off_of(const Cell * y, int v, int half) {
    return half ? value<N, offsetof(Cell, off) + 4>(y, v) : value<N, offsetof(Cell, off)>(y, v);
}

// Numbers of four rows, for the lanes of vector v.
template <int N> UAD_INLINE Ints spread(Ints rows, int v) {
    return !is_pair<N>(v) ? rows : v < PAIRS<N> ? vzip1q_s32(rows, rows) : vzip2q_s32(rows, rows);
}
template <int N> UAD_INLINE Floats spread(Floats rows, int v) { return as_float(spread<N>(vreinterpretq_s32_f32(rows), v)); }

// Rows 4 R to 4 R + 3 of 16 bytes
template <int R> UAD_INLINE Ints widened(const uint8_t * p) {
    const uint8x16_t x = vld1q_u8(p);
    const uint16x8_t words = R / 2 ? vmovl_high_u8(x) : vmovl_u8(vget_low_u8(x));
    return vreinterpretq_s32_u32(R % 2 ? vmovl_high_u16(words) : vmovl_u16(vget_low_u16(words)));
}
template <int R> UAD_INLINE Ints widened_signed(const uint8_t * p) {
    const int8x16_t x = vld1q_s8((const int8_t *) p);
    const int16x8_t words = R / 2 ? vmovl_high_s8(x) : vmovl_s8(vget_low_s8(x));
    return R % 2 ? vmovl_high_s16(words) : vmovl_s16(vget_low_s16(words));
}

// Scales of four rows' cell. Of halves: of the first one, of the second one; then what minima add for each unit of their sums.
template <class T> struct RowScales {
    static constexpr bool IN_HALVES = T::SCALE == Scale::Halves || T::SCALE == Scale::HalvesMin;
    Floats scale[T::HAS_MIN || T::SCALE == Scale::Floats ? 2 : 1];  // and what a minimum adds, or those of halves
    Ints halves[IN_HALVES ? T::HAS_MIN ? 4 : 2 : 1];
};

template <class T, int R> UAD_INLINE RowScales<T> row_scales(const uint8_t * block, int c) {
    using At = Place<T>;
    RowScales<T> to;
    if constexpr (T::SCALE == Scale::Floats) {
        for (int h = 0; h < 2; h++) to.scale[h] = small_floats(block + At::SCALES + (2 * c + h) * kRows + 4 * R);
        return to;
    } else {
        to.scale[0] = block_scale<T>(block + At::BLOCK_SCALE + 4 * R * T::SCALE_BYTES);
        if constexpr (T::HAS_MIN) to.scale[1] = halves((const uint16_t *) (block + At::BLOCK_MIN) + 4 * R);
        const uint8_t * at = block + At::SCALES + kRows * (T::NIBBLES && !to.IN_HALVES ? c / 2 : to.IN_HALVES && !T::NIBBLES ? 2 * c : c);
        if constexpr (T::SCALE == Scale::HalvesMin) {
            for (int h = 0; h < 2; h++) {
                const Ints both = widened<R>(at + h * kRows);
                to.halves[h] = iand(both, iset(15)), to.halves[2 + h] = right<4>(both);
            }
        } else if constexpr (T::SCALE == Scale::Halves) {
            if constexpr (T::NIBBLES) to.halves[0] = odd_scale<T, false>(widened<R>(at)), to.halves[1] = odd_scale<T, true>(widened<R>(at));
            else for (int h = 0; h < 2; h++) to.halves[h] = widened_signed<R>(at + h * kRows);
        } else {
            if constexpr (T::NIBBLES) {
                const Ints both = widened<R>(at);
                to.scale[0] = mul(to.scale[0], to_float(c % 2 ? odd_scale<T, true>(both) : odd_scale<T, false>(both)));
            } else if constexpr (T::N_SCALES > 0) to.scale[0] = mul(to.scale[0], to_float(T::HAS_TABLE ? widened_signed<R>(at) : widened<R>(at)));
            if constexpr (T::N_MINS > 0) to.scale[1] = mul(to.scale[1], to_float(widened<R>(block + At::MINS + c * kRows)));
        }
        return to;
    }
}

// Vector (S, H) of rows 4 R to 4 R + 3, unpacked.
template <class T, int R, int S, int H> UAD_INLINE Ints row_values(const uint8_t * cell) {
#if defined(UAD_I8MM)
    return unpacked<T, R + S / 2 * 4>(cell + 32 * H + S % 2 * 16);
#else
    return unpacked<T, 2 * S + H>(cell + 16 * R);
#endif
}

// Whether cells are unpacked for several tiles of columns: bytes with a scale for each lie so in memory.
template <class T> constexpr bool is_made_ready = T::IN_BYTES || T::BITS < 8;
template <class T> struct ReadyCell {
    Ints values[4][8];
    RowScales<T> scales[4];
};

// sums[v] += what vector v of four rows' cell comes to. dot: of the whole cell, or of its halves.
template <class T, int N> UAD_INLINE void add_scaled(const Ints (&dot)[2], const RowScales<T> & rows, const Cell * y, int v, Floats & sum) {
    const Floats scale = scale_of<N>(y, v);
    if constexpr (RowScales<T>::IN_HALVES) {
        const Ints whole = vmlaq_s32(imul(dot[0], spread<N>(rows.halves[0], v)), dot[1], spread<N>(rows.halves[1], v));
        sum = fma(to_float(whole), mul(spread<N>(rows.scale[0], v), scale), sum);
        if constexpr (T::HAS_MIN) {
            const Ints least = vmlaq_s32(imul(off_of<N>(y, v, 0), spread<N>(rows.halves[2], v)), off_of<N>(y, v, 1), spread<N>(rows.halves[3], v));
            sum = nfma(to_float(least), mul(spread<N>(rows.scale[1], v), scale), sum);
        }
    } else {
        sum = fma(to_float(dot[0]), mul(spread<N>(rows.scale[0], v), scale), sum);
        if constexpr (T::SCALE == Scale::Floats) sum = fma(to_float(dot[1]), mul(spread<N>(rows.scale[1], v), scale), sum);
        if constexpr (T::N_MINS > 0) sum = nfma(spread<N>(rows.scale[1], v), scaled_sum_of<N>(y, v), sum);
        else if constexpr (T::HAS_MIN) sum = fma(spread<N>(rows.scale[1], v), scaled_sum_of<N>(y, v), sum);
    }
}

// Keeps compilers from mixing the parts before and after it, which together need too many registers. Sums lie in memory here.
template <bool IS_LONG, class Sums> UAD_INLINE void separate(Sums & sums, const uint8_t *& weights) {
    if constexpr (IS_LONG) asm("" : "+m"(sums), "+r"(weights));
}

// sums += four rows' cell. values(weights, s, h): vectors of these, from which the types' offset is still to be taken or not.
template <class T, bool HAS_OFFSET, int N, class Values>
UAD_INLINE void add_rows(const uint8_t *& weights, Values values, const RowScales<T> & rows, const Cell * y, Floats (&sums)[N]) {
    constexpr int PARTS = T::SCALE == Scale::Whole || T::SCALE == Scale::Min ? 1 : 2, STEPS = 4 / PARTS;
    Ints dots[N][2];
    for (int v = 0; v < N; v++)
        for (int part = 0; part < PARTS; part++)
            dots[v][part] = !HAS_OFFSET ? izero() : PARTS == 2 ? off_of<N>(y, v, part) : iadd(off_of<N>(y, v, 0), off_of<N>(y, v, 1));
#if defined(UAD_I8MM)
    Ints last[2][PARTS];
    times<2>([&](auto h) UAD_HERE {
        constexpr int H = decltype(h)::value, FIRST = H * PAIRS<N>;
        separate<(N > (H ? 4 : 2))>(sums, weights);
        for (int part = 0; part < PARTS; part++) last[H][part] = izero();
        times<4>([&](auto s) UAD_HERE {
            constexpr int S = decltype(s)::value;
            const int8x16_t w = vreinterpretq_s8_s32(values(weights, s, h));
            for (int p = 0; p < N / 2; p++) {
                Ints & dot = dots[FIRST + p][S / STEPS];
                dot = vmmlaq_s32(dot, w, vld1q_s8((const int8_t *) (y + 2 * p) + 16 * S));
            }
            if constexpr (N % 2) last[H][S / STEPS] = vdotq_s32(last[H][S / STEPS], w, vreinterpretq_s8_s64(vld1q_dup_s64((const int64_t *) y[N - 1].y + S)));
        });
        for (int p = 0; p < N / 2; p++) add_scaled<T, N>(dots[FIRST + p], rows, y, FIRST + p, sums[FIRST + p]);
    });
    if (N % 2) {
        for (int part = 0; part < PARTS; part++) dots[N - 1][part] = iadd(dots[N - 1][part], vpaddq_s32(last[0][part], last[1][part]));
        add_scaled<T, N>(dots[N - 1], rows, y, N - 1, sums[N - 1]);
    }
#else
    separate<(N > 2)>(sums, weights);
    times<8>([&](auto i) UAD_HERE {
        constexpr int S = decltype(i)::value / 2, H = decltype(i)::value % 2;
        const int8x16_t w = vreinterpretq_s8_s32(values(weights, std::integral_constant<int, S>(), std::integral_constant<int, H>()));
        for (int j = 0; j < N; j++) dots[j][S / STEPS] = vdotq_laneq_s32(dots[j][S / STEPS], w, vld1q_s8(y[j].y + S / 2 * 16), S % 2 * 2 + H);
    });
    for (int v = 0; v < N; v++) add_scaled<T, N>(dots[v], rows, y, v, sums[v]);
#endif
    if constexpr (N <= 2) asm("" : "+w"(sums[N - 1]), "+r"(weights));
}

// ready: the group's cells where they have been unpacked before, else null. out: N times 16 floats.
template <class T, int N> inline void quantized_tile(const uint8_t * group, const uint8_t * ready, int64_t n_cells, const Cell * y, float * out) {
    using At = Place<T>;
    Floats sums[4][N];
    times<4 * N>([&](auto i) UAD_HERE { sums[i / N][i % N] = zero(); });
    if (is_made_ready<T> && ready) {
        for (int64_t b = 0; b < n_cells; b++, ready += sizeof(ReadyCell<T>), y += N)
            times<4>([&](auto r) UAD_HERE {
                auto values = [&](const uint8_t * cell, auto s, auto h) UAD_HERE { return ((const ReadyCell<T> *) cell)->values[r][2 * s + h]; };
                add_rows<T, false>(ready, values, ((const ReadyCell<T> *) ready)->scales[r], y, sums[r]);
            });
    } else {
        alignas(64) uint8_t block[T::IN_BYTES ? At::N_CELLS * kBytes : 1];
        for (int64_t b = 0; b < n_cells; b += At::N_CELLS, group += At::BLOCK) {
            if constexpr (T::IN_BYTES) unpack_block<T>(group, block);
            for (int c = 0; c < At::N_CELLS; c++, y += N) {
                const uint8_t * cell = T::IN_BYTES ? block + c * kBytes : group + At::CELLS + c * At::CELL;
                if constexpr (!T::IN_BYTES)
                    for (int at = 0; at < At::CELL; at += 64) __builtin_prefetch(cell + 4096 + at);
                times<4>([&](auto r) UAD_HERE {
                    auto values = [&](const uint8_t * at, auto s, auto h) UAD_HERE { return row_values<T, decltype(r)::value, decltype(s)::value, decltype(h)::value>(at); };
                    add_rows<T, T::OFFSET != 0>(cell, values, row_scales<T, decltype(r)::value>(group, c), y, sums[r]);
                });
            }
        }
    }
    times<4 * N>([&](auto i) UAD_HERE {
        constexpr int R = decltype(i)::value / N, V = decltype(i)::value % N;
        if constexpr (!is_pair<N>(V)) store(out + V * kRows + 4 * R, sums[R][V]);
        else if constexpr (V < PAIRS<N>) {
            store(out + 2 * V * kRows + 4 * R, vuzp1q_f32(sums[R][V], sums[R][V + PAIRS<N>]));
            store(out + (2 * V + 1) * kRows + 4 * R, vuzp2q_f32(sums[R][V], sums[R][V + PAIRS<N>]));
        }
    });
}

template <class T> void ready_group(const uint8_t * group, int64_t n_cells, uint8_t * to) {
    using At = Place<T>;
    ReadyCell<T> * out = (ReadyCell<T> *) to;
    alignas(64) uint8_t block[T::IN_BYTES ? At::N_CELLS * kBytes : 1];
    for (int64_t b = 0; b < n_cells; b += At::N_CELLS, group += At::BLOCK) {
        if constexpr (T::IN_BYTES) unpack_block<T>(group, block);
        for (int c = 0; c < At::N_CELLS; c++, out++) {
            const uint8_t * cell = T::IN_BYTES ? block + c * kBytes : group + At::CELLS + c * At::CELL;
            times<4>([&](auto r) UAD_HERE {
                constexpr int R = decltype(r)::value;
                times<8>([&](auto i) UAD_HERE { out->values[R][i] = add_bytes(row_values<T, R, decltype(i)::value / 2, decltype(i)::value % 2>(cell), bytes(-T::OFFSET)); });
                out->scales[R] = row_scales<T, R>(group, c);
            });
        }
    }
}

// ---- floats

// Four columns of the weights at once (product.h): vectors of x have them for N columns, lane after lane.
template <int TYPE, int N, int P> inline void float_tile(const uint8_t * group, int64_t n_cells, const float * x, float * out) {
    constexpr int CELL = kCell * kRows * ggml::block_of(TYPE).bytes;
    static_assert(P * kLanes == kRows, "all rows at once");
    const uint8_t * w = group;
    Floats sums[N][P];
    for (auto & column : sums)
        for (Floats & sum : column) sum = zero();
    for (int64_t b = 0; b < n_cells; b++) {
        Floats cell_sums[N][P];
        for (auto & column : cell_sums)
            for (Floats & sum : column) sum = zero();
        for (int at = 0; at < (N < 4 ? 64 : CELL); at += 64) __builtin_prefetch(w + 4096 + at);
        for (int k = 0; k < kCell; k += 4, w += CELL / 8, x += 4 * N) {
            Floats values[N];
            for (int j = 0; j < N; j++) values[j] = load(x + 4 * j);
            times<4>([&](auto i) UAD_HERE {
                Floats weights[P];
                for (int p = 0; p < P; p++) {
                    if constexpr (TYPE == ggml::F32) weights[p] = load((const float *) w + i * kRows + 4 * p);
                    else if constexpr (TYPE == ggml::F16) {
                        const float16x8_t two = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *) w + i * kRows + p / 2 * 8));
                        weights[p] = p % 2 ? vcvt_high_f32_f16(two) : vcvt_f32_f16(vget_low_f16(two));
                    } else {
                        const Ints pair = iload(w + i / 2 * 64 + 16 * p);
                        weights[p] = as_float(i % 2 ? iand(pair, iset((int32_t) 0xffff0000)) : left32<16>(pair));
                    }
                }
                times<N>([&](auto j) UAD_HERE {
                    constexpr int AT = decltype(i)::value * N + decltype(j)::value;
                    for (int p = 0; p < P; p++) cell_sums[j][p] = vfmaq_laneq_f32(cell_sums[j][p], weights[p], values[AT / 4], AT % 4);
                });
            });
        }
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) sums[j][p] = add(sums[j][p], cell_sums[j][p]);
    }
    for (int j = 0; j < N; j++)
        for (int p = 0; p < P; p++) store(out + j * kRows + 4 * p, sums[j][p]);
}
