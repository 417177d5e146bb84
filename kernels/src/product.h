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
    float scaled_sum; // S times the sum of y
    int32_t off;      // minus the weights' offset times the sum of y
    int16_t sum[2];   // of each half of y
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

inline void quantize(const float * x, size_t stride, int offset, Cell & c) {
    float v[kCell];
    if (stride != sizeof(float)) {
        for (int i = 0; i < kCell; i++) v[i] = *(const float *) ((const char *) x + i * stride);
        x = v;
    }
    F most = zero(), none = zero();  // none: 0, but NaN where a value is not finite
    for (int i = 0; i < kCell; i += W) {
        most = max(most, abs(load(x + i)));
        none = add(none, sub(load(x + i), load(x + i)));
    }
    const float scale = greatest(most) / 127.0f + sum(none), inverse = scale >= 1e-37f ? 1.0f / scale : 0.0f;
    if (!(scale <= 1e37f)) {  // then so are all results
        memset(&c, 0, sizeof(c));
        c.scale = c.scaled_sum = NAN;
        return;
    }
    int sums[2];
    for (int half = 0; half < 2; half++) {
        I total = izero();
        for (int i = 16 * half; i < 16 * half + 16; i += W) {
            const I whole = to_int(mul(load(x + i), set(inverse)));
            store_bytes(c.y + i, whole);
            total = iadd(total, whole);
        }
        int32_t lanes[W];
        istore(lanes, total);
        sums[half] = 0;
        for (int i = 0; i < W; i++) sums[half] += lanes[i];
    }
    c.scale = scale;
    c.scaled_sum = scale * (float) (sums[0] + sums[1]);
    c.off = -offset * (sums[0] + sums[1]);
    c.sum[0] = (int16_t) sums[0];
    c.sum[1] = (int16_t) sums[1];
}

// ---- dot products of bytes

inline I word(const void * p) {  // four bytes of a column, for all lanes
    int32_t x;
    memcpy(&x, p, 4);
    return iset(x);
}

// Sums of products of 4 weights and 4 column values in each lane. T says how large weights get. `total` is whole after
// step n - 1. Where kScalesPairs, it is the sum times `factor`, which has a lane's factor in both of its 16-bit halves.
#if defined(UAD_AVX512) || defined(UAD_AVXVNNI)
struct Weight {
    I q;
};
template <class T> inline Weight weight(I q) {
    if constexpr (T::SIGNED) return {ixor(q, bytes(0x80))};
    else return {q};
}
template <class T> struct Dot {
    static constexpr int AT_ONCE = 1;
    I total;
    template <int i, int n, bool is_first> void step(const Weight & w, I y, I) {
#if defined(UAD_AVX512)
        total = _mm512_dpbusd_epi32(total, w.q, y);
#else
        total = _mm256_dpbusd_avx_epi32(total, w.q, y);
#endif
    }
};
inline I two(I low, I high) { return ior(iand(low, iset(0xffff)), left32<16>(high)); }  // 16-bit halves of a lane
inline I dot_two(I pair, I sums) {
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
    I q, sign;
};
template <class T> inline Weight weight(I q) {
    if constexpr (T::SIGNED) return {_mm256_abs_epi8(q), q};
    else return {q, q};
}
template <class T> struct Dot {
    static constexpr int FITS = T::SIGNED ? 1 : 32767 / (2 * T::LARGEST * 127);
    static constexpr int AT_ONCE = FITS == 2 ? 2 : 1;
    I total, pairs;
    template <int i, int n, bool is_first> void step(const Weight & w, I y, I factor) {
        if constexpr (T::SIGNED) {
            pairs = _mm256_maddubs_epi16(w.q, _mm256_sign_epi8(y, w.sign));
            total = iadd(total, _mm256_madd_epi16(pairs, factor));
            asm("" : "+x"(total));
        } else {
            const I more = _mm256_maddubs_epi16(w.q, y);
            pairs = i % FITS ? _mm256_add_epi16(pairs, more) : more;
            // Compilers like to add up products as a tree, at the end, and run out of registers before.
            asm("" : "+x"(pairs));
            if (i % FITS == FITS - 1 || i == n - 1) {
                const I sum = _mm256_madd_epi16(pairs, factor);
                total = is_first && i < FITS ? sum : iadd(total, sum);  // the first one, where nothing is there yet
            }
        }
    }
};
inline I two(I low, I high) { return ior(iand(low, iset(0xffff)), left32<16>(high)); }
inline I dot_two(I pair, I sums) { return _mm256_madd_epi16(pair, sums); }
#else
struct Weight {
    I q;
};
template <class T> inline Weight weight(I q) { return {q}; }
template <class T> struct Dot {
    static constexpr int AT_ONCE = 1;
    I total;
    template <int i, int n, bool is_first> void step(const Weight & w, I y, I) { total = vdotq_s32(total, vreinterpretq_s8_s32(w.q), vreinterpretq_s8_s32(y)); }
};
inline I two(I low, I high) { return ior(iand(low, iset(0xffff)), left32<16>(high)); }
inline I dot_two(I pair, I sums) {
    const int16x8_t a = vreinterpretq_s16_s32(pair), b = vreinterpretq_s16_s32(sums);
    return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_s16(vget_high_s16(a), vget_high_s16(b)));
}
#endif

// body(0), body(1) ... body(n - 1), each with its number as a constant
template <int... i, class Body> inline void each(std::integer_sequence<int, i...>, Body body) {
    (body(std::integral_constant<int, i>()), ...);
}

// ---- a tile: 16 rows of weights by N columns

// Step i of a cell's values, unpacked. cell: at the first of the 4 W bytes that these lanes have of each vector.
template <class T, int i> inline I unpacked(const uint8_t * cell) {
    using At = Place<T>;
    auto plane = [&](int at, int n_vectors) { return iload(cell + at + i % n_vectors * 64); };
    // bits of a value, moved from where the plane has them to bit `to`
    auto moved = [](I x, auto from, auto to) {
        constexpr int by = decltype(to)::value - decltype(from)::value;
        if constexpr (by >= 0) return left<by>(x);
        else return right<-by>(x);
    };
    using std::integral_constant;
    if constexpr (T::BITS == 8) return plane(0, 8);
    I q{};
    if constexpr (T::BITS == 4 || T::BITS == 5 || T::BITS == 6)
        q = iand(moved(plane(At::P4, 4), integral_constant<int, i / 4 * 4>(), integral_constant<int, 0>()), bytes(15));
    if constexpr (T::BITS == 2 || T::BITS == 3)
        q = iand(moved(plane(0, 2), integral_constant<int, i / 2 * 2>(), integral_constant<int, 0>()), bytes(3));
    if constexpr (T::BITS == 6)
        q = ior(q, iand(moved(plane(At::P2, 2), integral_constant<int, i / 2 * 2>(), integral_constant<int, 4>()), bytes(48)));
    if constexpr (T::BITS == 5)
        q = ior(q, iand(moved(plane(At::P1, 1), integral_constant<int, i>(), integral_constant<int, 4>()), bytes(16)));
    if constexpr (T::BITS == 3)
        q = ior(q, iand(moved(plane(At::P1, 1), integral_constant<int, i>(), integral_constant<int, 2>()), bytes(4)));
    if constexpr (T::HAS_TABLE) q = look_up(T::TABLE, q);
    return q;
}

template <class T> inline F block_scale(const uint8_t * p) {  // p: of W rows
    if constexpr (T::BYTE_SCALE) {
        // 2^(e - 128), as MXFP4's values are doubled; 2^-128, no normal number, counts as 0
        return mul(as_float(left32<23>(unsigned_bytes(p))), set(0.5f));
    } else return halves((const uint16_t *) p);
}

// P vectors of W rows by N columns. out: N times 16 floats.
template <class T, int N, int P> inline void quantized_tile(const uint8_t * group, int64_t n_cells, const Cell * columns, float * out) {
    using At = Place<T>;
    constexpr int PARTS = kRows / W;
    static_assert(PARTS % P == 0, "");
    for (int part = 0; part < PARTS; part += P) {
        F sums[N][P];
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) sums[j][p] = zero();
        const uint8_t * block = group;
        for (int64_t b = 0; b < n_cells; b += At::N_CELLS, block += At::BLOCK) {
            F d[P], m[P];
            for (int p = 0; p < P; p++) {
                const int lane = (part + p) * W;
                d[p] = block_scale<T>(block + At::D + lane * (T::BYTE_SCALE ? 1 : 2));
                if constexpr (T::HAS_MIN) m[p] = halves((const uint16_t *) (block + At::M + lane * 2));
            }
            for (int c = 0; c < At::N_CELLS; c++) {
                const uint8_t * cell = block + At::CELLS + c * At::CELL + part * W * 4;
                const Cell * y = columns + (b + c) * N;
                for (int at = 0; at < At::CELL; at += 64) __builtin_prefetch(cell + 4096 + at);
                constexpr bool IN_HALVES = T::SCALE == Scale::Halves || T::SCALE == Scale::HalvesMin;
                Dot<T> dots[N][P];
                I whole[N][P];
                auto multiply = [&](auto first, auto n, const I * factors) {  // n steps
                    constexpr bool is_first = decltype(first)::value == 0 && T::OFFSET == 0;
                    constexpr int AT_ONCE = Dot<T>::AT_ONCE, ALL = decltype(n)::value;
                    each(std::make_integer_sequence<int, ALL / AT_ONCE>(), [&](auto chunk) {
                        constexpr int begin = decltype(chunk)::value * AT_ONCE;
                        Weight w[AT_ONCE][P];
                        each(std::make_integer_sequence<int, AT_ONCE>(), [&](auto i) {
                            constexpr int step = decltype(first)::value + begin + decltype(i)::value;
                            for (int p = 0; p < P; p++) w[i][p] = weight<T>(unpacked<T, step>(cell + p * W * 4));
                        });
                        for (int j = 0; j < N; j++)
                            each(std::make_integer_sequence<int, AT_ONCE>(), [&](auto i) {
                                constexpr int step = begin + decltype(i)::value;
                                const I values = word(y[j].y + 4 * (decltype(first)::value + step));
                                for (int p = 0; p < P; p++) dots[j][p].template step<step, ALL, is_first>(w[i][p], values, factors[p]);
                            });
                    });
                };
                using std::integral_constant;
                if constexpr (!IN_HALVES) {
                    constexpr bool HAS_OFF = T::OFFSET != 0 || (T::SIGNED && kBias != 0);
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) dots[j][p].total = HAS_OFF ? iset(y[j].off) : izero();
                    I ones[P];
                    for (int p = 0; p < P; p++) ones[p] = iset(0x00010001);
                    multiply(integral_constant<int, 0>(), integral_constant<int, 8>(), ones);
                    for (int p = 0; p < P; p++) {
                        const int lane = (part + p) * W;
                        F scale = d[p], least{};
                        if constexpr (T::N_SCALES > 0) {
                            const uint8_t * s = block + At::SCALES + c * kRows + lane;
                            scale = mul(scale, to_float(T::HAS_TABLE ? signed_bytes(s) : unsigned_bytes(s)));
                        }
                        if constexpr (T::HAS_MIN) {
                            least = m[p];
                            if constexpr (T::N_MINS > 0)
                                least = mul(least, to_float(unsigned_bytes(block + At::MINS + c * kRows + lane)));
                        }
                        for (int j = 0; j < N; j++) {
                            F & sum = sums[j][p];
                            sum = fma(to_float(dots[j][p].total), mul(scale, set(y[j].scale)), sum);
                            if constexpr (T::HAS_MIN && T::N_MINS > 0) sum = nfma(least, set(y[j].scaled_sum), sum);
                            else if constexpr (T::HAS_MIN) sum = fma(least, set(y[j].scaled_sum), sum);
                        }
                    }
                } else {
                    I scales[2][P], mins[P];
                    for (int p = 0; p < P; p++) {
                        const uint8_t * s = block + At::SCALES + 2 * c * kRows + (part + p) * W;
                        if constexpr (T::SCALE == Scale::Halves) {
                            for (int h = 0; h < 2; h++) scales[h][p] = signed_bytes(s + h * kRows);
                            mins[p] = two(imul(scales[0][p], iset(-T::OFFSET)), imul(scales[1][p], iset(-T::OFFSET)));
                        } else {
                            I low[2], high[2];
                            for (int h = 0; h < 2; h++) {
                                low[h] = unsigned_bytes(s + h * kRows);
                                high[h] = right<4>(low[h]);
                                scales[h][p] = iand(low[h], iset(15));
                            }
                            mins[p] = two(high[0], high[1]);
                        }
                    }
                    // what minima add is where sums begin, unless these have to be scaled yet
                    constexpr bool MINS_FIRST = kScalesPairs && T::SCALE == Scale::Halves;
                    each(std::make_integer_sequence<int, 2>(), [&](auto half) {
                        constexpr int h = decltype(half)::value;
                        for (int j = 0; j < N; j++)
                            for (int p = 0; p < P; p++)
                                if (h == 0 || !kScalesPairs) dots[j][p].total = MINS_FIRST ? dot_two(mins[p], word(y[j].sum)) : izero();
                        I factors[P];
                        for (int p = 0; p < P; p++) factors[p] = two(scales[h][p], scales[h][p]);
                        multiply(integral_constant<int, 4 * h>(), integral_constant<int, 4>(), factors);
                        for (int j = 0; j < N; j++)
                            for (int p = 0; p < P; p++) {
                                const I scaled = kScalesPairs ? dots[j][p].total : imul(dots[j][p].total, scales[h][p]);
                                whole[j][p] = h == 0 || kScalesPairs ? scaled : iadd(whole[j][p], scaled);
                            }
                    });
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) {
                            F & sum = sums[j][p];
                            if constexpr (T::SCALE == Scale::Halves && !MINS_FIRST)
                                whole[j][p] = iadd(whole[j][p], dot_two(mins[p], word(y[j].sum)));
                            sum = fma(to_float(whole[j][p]), mul(d[p], set(y[j].scale)), sum);
                            if constexpr (T::SCALE == Scale::HalvesMin)
                                sum = nfma(to_float(dot_two(mins[p], word(y[j].sum))), mul(m[p], set(y[j].scale)), sum);
                        }
                }
            }
        }
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) store(out + j * kRows + (part + p) * W, sums[j][p]);
    }
}

// ---- the same tile of Q8_0 on matrix units: 16 rows of weights by 9 to 16 columns
//
// Weights of other types would have to be unpacked into memory first: their tiles are faster on vectors (docs/kernels.md).

constexpr int kWide = 16;           // columns of such a tile
constexpr int kNarrow = 8;          // up to so many are multiplied by vectors
constexpr int64_t kNear = 1 << 20;  // bytes of weights that stay in a core's second cache: these processors have 2 MiB

#if defined(UAD_AMX)
using Bytes = Format<ggml::Q8_0>;

inline void configure(int n) {
    TileShapes shapes;
    for (int t = 0; t < 2; t++) shapes.rows[t] = (uint8_t) n, shapes.bytes[t] = 4 * kRows;  // sums
    for (int t = 2; t < 4; t++) shapes.rows[t] = (uint8_t) n, shapes.bytes[t] = kCell;      // columns
    for (int t = 4; t < 6; t++) shapes.rows[t] = kCell / 4, shapes.bytes[t] = 4 * kRows;    // weights
    configure_tiles(shapes);
}

// Dot products of a cell: to[column][row]. Cells of other parity use other tiles, so that one is multiplied while the last
// one's products are scaled.
template <int PARITY> inline void multiply_cell(const uint8_t * block, const Cell * y, int32_t * to) {
    constexpr int SUMS = PARITY, COLUMNS = 2 + PARITY, WEIGHTS = 4 + PARITY;
    zero_tile<SUMS>();
    load_tile<COLUMNS>(y, sizeof(Cell));
    load_tile<WEIGHTS>(block + Place<Bytes>::CELLS, 4 * kRows);
    multiply_tiles<SUMS, COLUMNS, WEIGHTS>();
    store_tile<SUMS>(to, 4 * kRows);
}

// 16 rows by n columns, in the order of quantized_tile. N: n where it is known, so that sums stay in registers.
template <int N> void matrix_tile(const uint8_t * group, int64_t n_cells, const Cell * columns, int n_columns, float * out) {
    const int n = N ? N : n_columns;
    alignas(64) int32_t products[2][kWide * kRows];
    F sums[kWide];
    for (F & sum : sums) sum = zero();
    multiply_cell<0>(group, columns, products[0]);
    for (int64_t b = 0; b < n_cells; b++) {
        const uint8_t * block = group + b * Place<Bytes>::BLOCK;
        const Cell * y = columns + b * n;
        if (b + 1 < n_cells) {
            if (b % 2) multiply_cell<0>(block + Place<Bytes>::BLOCK, y + n, products[0]);
            else multiply_cell<1>(block + Place<Bytes>::BLOCK, y + n, products[1]);
        }
        const F d = block_scale<Bytes>(block + Place<Bytes>::D);
        for (int j = 0; j < n; j++) sums[j] = fma(to_float(iload(products[b % 2] + j * kRows)), mul(d, set(y[j].scale)), sums[j]);
    }
    for (int j = 0; j < n; j++) store(out + j * kRows, sums[j]);
}

inline void wide_tile(const uint8_t * group, int64_t n_cells, const void * columns, int n, float * out) {
    if (n == kWide) matrix_tile<kWide>(group, n_cells, (const Cell *) columns, n, out);
    else matrix_tile<0>(group, n_cells, (const Cell *) columns, n, out);
}
#else
inline void configure(int) {}
inline void release_tiles() {}
#endif

// ---- floats

// F32 and F16: column after column of 16 rows. BF16: pairs of columns, a row's two values in each lane. Columns of a tile
// lie beside each other, each value or pair of values as it is multiplied.
template <int TYPE, int N, int P> inline void float_tile(const uint8_t * group, int64_t n_cells, const float * columns, float * out) {
    constexpr int PARTS = kRows / W;
    constexpr int BYTES = TYPE == ggml::F32 ? 4 : 2, CELL = kCell * kRows * BYTES;
    for (int part = 0; part < PARTS; part += P) {
        F sums[N][P];
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) sums[j][p] = zero();
        const uint8_t * w = group + part * W * (TYPE == ggml::BF16 ? 4 : BYTES);
        const float * x = columns;
        for (int64_t b = 0; b < n_cells; b++) {
            F part_sums[N][P];  // of a cell: sums of sums are nearer to the truth than one long sum
            for (int j = 0; j < N; j++)
                for (int p = 0; p < P; p++) part_sums[j][p] = zero();
            // processors fetch ahead by themselves, but too little where several columns take long
            for (int at = 0; at < (N < 4 ? 64 : CELL); at += 64) __builtin_prefetch(w + 4096 + at);
            if constexpr (TYPE == ggml::BF16) {
#if defined(UAD_BF16)
                for (int k = 0; k < kCell; k += 2, w += 64, x += N)
                    for (int p = 0; p < P; p++)
                        for (int j = 0; j < N; j++) part_sums[j][p] = _mm512_dpbf16_ps(part_sums[j][p], (__m512bh) iload(w + p * W * 4), (__m512bh) word(x + j));
#else
                for (int k = 0; k < kCell; k += 2, w += 64, x += 2 * N) {
                    // one value of the pairs after the other: both at once need more than 16 registers
                    F values[P];
                    for (int p = 0; p < P; p++) values[p] = as_float(left32<16>(iload(w + p * W * 4)));
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) part_sums[j][p] = fma(values[p], set(x[j]), part_sums[j][p]);
                    for (int p = 0; p < P; p++) values[p] = as_float(iand(iload(w + p * W * 4), iset((int32_t) 0xffff0000)));
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) part_sums[j][p] = fma(values[p], set(x[N + j]), part_sums[j][p]);
                }
#endif
            } else {
                for (int k = 0; k < kCell; k++, w += kRows * BYTES, x += N) {
                    F values[P];
                    for (int p = 0; p < P; p++) {
                        if constexpr (TYPE == ggml::F32) values[p] = load((const float *) w + p * W);
                        else values[p] = halves((const uint16_t *) w + p * W);
                    }
                    for (int j = 0; j < N; j++)
                        for (int p = 0; p < P; p++) part_sums[j][p] = fma(values[p], set(x[j]), part_sums[j][p]);
                }
            }
            for (int j = 0; j < N; j++)
                for (int p = 0; p < P; p++) sums[j][p] = add(sums[j][p], part_sums[j][p]);
        }
        for (int j = 0; j < N; j++)
            for (int p = 0; p < P; p++) store(out + j * kRows + (part + p) * W, sums[j][p]);
    }
}

template <int TYPE> void pack_floats(int64_t k, int64_t rows, const uint8_t * from, uint8_t * to, int64_t first, int64_t last) {
    constexpr int BYTES = TYPE == ggml::F32 ? 4 : 2, WIDTH = TYPE == ggml::BF16 ? 2 : 1;  // WIDTH: columns side by side
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
constexpr int kTile = 8, kParts = 1, kFloatTile = 8, kFloatParts = 1;
#elif defined(UAD_NEON)
constexpr int kTile = 4, kParts = 4, kFloatTile = 4, kFloatParts = 4;
#else
constexpr int kTile = 8, kParts = 2, kFloatTile = 6, kFloatParts = 2;
#endif
// Columns of a tile. With 16 registers the sums of 5 columns by 2 vectors stay in them, beside 2 vectors of weights. Where
// unpacking or scaling takes longer than moving sums does, 8 columns are faster.
template <class T> constexpr int tile_columns() {
    constexpr bool is_quick = !kScalesPairs || (T::BITS == 4 && !T::SIGNED);
    return W == 8 && is_quick ? 5 : kTile;
}

struct Type {
    int number;
    int columns;      // of a block
    int offset;       // that columns are quantized for
    int tile;         // columns of a tile, at most
    bool is_float;
    size_t block;     // bytes of a group's block
    void (*pack)(int64_t k, int64_t rows, const uint8_t * from, uint8_t * to, int64_t first, int64_t last);
    void (*tiles[9])(const uint8_t * group, int64_t n_cells, const void * columns, float * out);  // by number of columns
    // the tile on matrix units, where there are any
    void (*wide)(const uint8_t * group, int64_t n_cells, const void * columns, int n, float * out) = nullptr;
};

template <int TYPE, int N> void one_tile(const uint8_t * group, int64_t n_cells, const void * columns, float * out) {
    if constexpr (TYPE == ggml::F32 || TYPE == ggml::F16 || TYPE == ggml::BF16) {
        if constexpr (N <= kFloatTile) float_tile<TYPE, N, kFloatParts>(group, n_cells, (const float *) columns, out);
    } else if constexpr (N <= tile_columns<Format<TYPE>>()) quantized_tile<Format<TYPE>, N, kParts>(group, n_cells, (const Cell *) columns, out);
}

template <int TYPE> constexpr Type row_of() {
    Type row{};
    if constexpr (TYPE == ggml::F32 || TYPE == ggml::F16 || TYPE == ggml::BF16)
        row = {TYPE, 1, 0, kFloatTile, true, (TYPE == ggml::F32 ? 4u : 2u) * kRows * kCell, pack_floats<TYPE>, {}};
    else {
        using T = Format<TYPE>;
        row = {TYPE, T::COLUMNS, T::SIGNED ? kBias : T::OFFSET, tile_columns<T>(), false, (size_t) Place<T>::BLOCK, pack_groups<T>, {}};
#if defined(UAD_AMX)
        if (TYPE == ggml::Q8_0) row.tile = kWide, row.wide = wide_tile;
#endif
    }
    row.tiles[1] = one_tile<TYPE, 1>, row.tiles[2] = one_tile<TYPE, 2>, row.tiles[3] = one_tile<TYPE, 3>, row.tiles[4] = one_tile<TYPE, 4>;
    row.tiles[5] = one_tile<TYPE, 5>, row.tiles[6] = one_tile<TYPE, 6>, row.tiles[7] = one_tile<TYPE, 7>, row.tiles[8] = one_tile<TYPE, 8>;
    return row;
}

const Type kTypes[] = {
    row_of<ggml::Q8_0>(), row_of<ggml::Q4_0>(), row_of<ggml::Q4_1>(), row_of<ggml::Q5_0>(), row_of<ggml::Q5_1>(),
    row_of<ggml::Q2_K>(), row_of<ggml::Q3_K>(), row_of<ggml::Q4_K>(), row_of<ggml::Q5_K>(), row_of<ggml::Q6_K>(),
    row_of<ggml::IQ4_NL>(), row_of<ggml::IQ4_XS>(), row_of<ggml::MXFP4>(), row_of<ggml::BF16>(), row_of<ggml::F16>(),
    row_of<ggml::F32>(),
};

inline const Type * type_of(int number) {
    for (const Type & type : kTypes)
        if (type.number == number) return &type;
    return nullptr;
}

// ---- whole operations

inline bool takes(int type) { return type_of(type) != nullptr; }

inline size_t group_bytes(const Type & type, int64_t k) {
    return type.is_float ? (size_t) ((k + kCell - 1) / kCell) * type.block : (size_t) (k / type.columns) * type.block;
}

// Bytes of a repacked matrix, or 0 where its columns fill no blocks.
inline size_t matrix_bytes(int number, int64_t k, int64_t rows) {
    const Type * type = type_of(number);
    if (!type || k % type->columns) return 0;
    return group_bytes(*type, k) * ((rows + kRows - 1) / kRows);
}

inline void repack(int number, int64_t k, int64_t rows, const void * from, void * to, int64_t first, int64_t last) {
    type_of(number)->pack(k, rows, (const uint8_t *) from, (uint8_t *) to, first, last);
}

// The group of the repacked tensor that a view of it begins at, -1 where the view is none of whole groups.
inline int64_t group_offset(const ggml::Tensor * w) {
    const ggml::Tensor * whole = w->view_src;
    if (!whole) return 0;
    if (w->ne[0] != whole->ne[0] || w->nb[0] != whole->nb[0] || w->nb[1] != whole->nb[1] || w->view_offs % whole->nb[1]) return -1;
    const int64_t row = (int64_t) (w->view_offs / whole->nb[1]);
    if (w->ne[1] == whole->ne[1] && w->nb[2] == whole->nb[2] && w->nb[3] == whole->nb[3])  // whole matrices
        return row % whole->ne[1] ? -1 : row / whole->ne[1] * ((whole->ne[1] + kRows - 1) / kRows);
    // rows may be cut or joined at will where groups have no rows of padding; of a single matrix the last group may be cut
    const bool is_dense = whole->ne[1] % kRows == 0 && w->ne[1] % kRows == 0 && w->nb[2] == w->nb[1] * w->ne[1] && w->nb[3] == w->nb[2] * w->ne[2];
    const bool is_single = whole->ne[2] * whole->ne[3] == 1 && w->ne[2] * w->ne[3] == 1;
    return row % kRows == 0 && (is_dense || is_single) ? row / kRows : -1;
}

// One column of a product: where it is read and where its results go.
struct Column {
    const char * x;
    float * y;
};

// Columns that one matrix of the weights is multiplied by: `first` of all columns, and how many.
struct Part {
    int64_t first, n;
};

// What threads share in an operation's scratch.
struct Shared {
    std::atomic<int64_t> next;
};

struct Plan {
    const ggml::Tensor *w, *x, *ids, *op;
    const Type * type;
    int64_t k, rows, n_cells, n_columns, n_matrices, n_groups;
    size_t cell_bytes;  // of a column's cell
    size_t matrix;      // bytes of a repacked matrix
    const uint8_t * weights;

    int64_t by2, by3;   // matrices of x for each of the weights

    Shared * shared;
    Part * parts = nullptr;  // of matrices, and their columns: tables for experts only
    Column * columns = nullptr;
    char * cells;

    explicit Plan(const ggml::Tensor * product) {
        op = product;
        w = op->src[0], x = op->src[1], ids = op->src[2];
        type = type_of(w->type);
        k = w->ne[0], rows = w->ne[1];
        n_cells = (k + kCell - 1) / kCell;
        n_matrices = w->ne[2] * w->ne[3];
        n_columns = ids ? ids->ne[0] * ids->ne[1] : ggml::n_rows(x);
        by2 = ids ? 1 : x->ne[2] / w->ne[2], by3 = ids ? 1 : x->ne[3] / w->ne[3];
        n_groups = (rows + kRows - 1) / kRows;
        cell_bytes = !type->is_float ? sizeof(Cell) : bf16_pairs() ? 2 * kCell : 4 * kCell;
        matrix = group_bytes(*type, k) * n_groups;
        const ggml::Tensor * whole = w->view_src ? w->view_src : w;
        weights = (const uint8_t *) whole->data + std::max<int64_t>(0, group_offset(w)) * group_bytes(*type, k);
    }

    bool bf16_pairs() const {
#if defined(UAD_BF16)
        return type->number == ggml::BF16;
#else
        return false;
#endif
    }

    // Groups that a thread takes at once: what it reads again and again for each tile of columns stays in a near cache.
    int64_t most_groups() const {
        const int64_t near = type->wide && n_columns > kNarrow ? kNear : 128 << 10;
        return std::max<int64_t>(1, near / (int64_t) group_bytes(*type, k));
    }

    size_t size() const {
        return 256 + (ids ? sizeof(Part) * n_matrices + sizeof(Column) * n_columns : 0) + cell_bytes * n_cells * n_columns + 64;
    }

    void lay_out(void * scratch) {
        uintptr_t at = aligned(scratch);
        shared = (Shared *) at, at += 64;
        if (ids) {
            parts = (Part *) at, at += sizeof(Part) * n_matrices;
            columns = (Column *) at, at += sizeof(Column) * n_columns;
        }
        cells = (char *) aligned((void *) at);
    }

    Part part(int64_t m) const {
        const int64_t n = x->ne[1] * by2 * by3;
        return ids ? parts[m] : Part{m * n, n};
    }

    // Column i of a matrix's part. Of MUL_MAT: a matrix of the weights may serve several of x.
    Column column(int64_t m, int64_t i) const {
        if (ids) return columns[parts[m].first + i];
        const int64_t i1 = i % x->ne[1], of = i / x->ne[1];
        const int64_t i2 = m % w->ne[2] * by2 + of % by2, i3 = m / w->ne[2] * by3 + of / by2;
        return {(const char *) x->data + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3],
                (float *) ((char *) op->data + i1 * op->nb[1] + i2 * op->nb[2] + i3 * op->nb[3])};
    }

    // The columns of MUL_MAT_ID, by expert: ids[u, t] is the expert that multiplies x[:, u, t].
    void list_experts() const {
        auto expert = [&](int64_t u, int64_t t) { return *(const int32_t *) ((const char *) ids->data + u * ids->nb[0] + t * ids->nb[1]); };
        for (int64_t m = 0; m < n_matrices; m++) parts[m] = {0, 0};
        for (int64_t t = 0; t < ids->ne[1]; t++)
            for (int64_t u = 0; u < ids->ne[0]; u++) parts[expert(u, t)].n++;
        for (int64_t m = 1; m < n_matrices; m++) parts[m].first = parts[m - 1].first + parts[m - 1].n;
        for (int64_t m = 0; m < n_matrices; m++) parts[m].n = 0;
        for (int64_t t = 0; t < ids->ne[1]; t++)
            for (int64_t u = 0; u < ids->ne[0]; u++) {
                Part & part = parts[expert(u, t)];
                columns[part.first + part.n++] = {(const char *) x->data + u % x->ne[1] * x->nb[1] + t * x->nb[2],
                                                  (float *) ((char *) op->data + u * op->nb[1] + t * op->nb[2])};
            }
    }

    // Columns of each tile but the last, where so many are shared out. Tiles of equal width beat wide ones and a remainder,
    // but on matrix units a wide one costs no more.
    int64_t width(int64_t n) const {
        const int64_t n_tiles = (n + type->tile - 1) / type->tile;
        return type->wide ? type->tile : (n + n_tiles - 1) / n_tiles;
    }

    // Where the cells of the tile that begins at this column of a part lie: those of earlier columns are before it.
    char * tile(int64_t column) const { return cells + column * n_cells * cell_bytes; }

    // Quantizes (or copies) cells `first` to `last` of a column of matrix m's part into its tile.
    void prepare(int64_t m, int64_t at, int64_t first, int64_t last) const {
        const Part part = this->part(m);
        const int64_t width = this->width(part.n), begin = at / width * width, n = std::min(width, part.n - begin), j = at - begin;
        char * to = tile(part.first + begin);
        const char * from = column(m, at).x;
        const size_t stride = x->nb[0];
        for (int64_t b = first; b < last; b++) {
            const char * values = from + b * kCell * stride;
            if (!type->is_float) {
                quantize((const float *) values, stride, type->offset, ((Cell *) to)[b * n + j]);
                continue;
            }
            float v[kCell];
            for (int i = 0; i < kCell; i++) v[i] = b * kCell + i < k ? *(const float *) (values + i * stride) : 0.0f;
#if defined(UAD_BF16)
            if (bf16_pairs()) {
                for (int i = 0; i < kCell; i += 2) ((uint32_t *) to)[(b * kCell + i) / 2 * n + j] = to_bf16(v[i]) | to_bf16(v[i + 1]) << 16;
                continue;
            }
#endif
            for (int i = 0; i < kCell; i++) ((float *) to)[(b * kCell + i) * n + j] = v[i];
        }
    }

#if defined(UAD_BF16)
    static uint32_t to_bf16(float x) {  // to nearest, ties to even; quiet NaNs stay so
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 64;
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
#endif

    // Groups of a matrix by all the columns of its part. Several groups are taken by one tile of columns after the
    // other, so that both stay in the nearest caches.
    void multiply(int64_t m, int64_t first, int64_t last) const {
        const Part part = this->part(m);
        const size_t bytes = group_bytes(*type, k);
        const uint8_t * groups = weights + m * matrix;
        float out[kWide * kRows];
        int64_t configured = 0;
        const int64_t width = this->width(part.n);
        for (int64_t at = 0; at < part.n; at += width) {
            const int64_t n = std::min(width, part.n - at);
            float * to[kWide];
            for (int64_t j = 0; j < n; j++) to[j] = column(m, at + j).y;
            if (n > kNarrow && n != configured) configure((int) (configured = n));
            for (int64_t g = first; g < last; g++) {
                const int64_t n_rows = std::min<int64_t>(kRows, rows - g * kRows);
                if (n > kNarrow) type->wide(groups + g * bytes, n_cells, tile(part.first + at), (int) n, out);
                else type->tiles[n](groups + g * bytes, n_cells, tile(part.first + at), out);
                for (int64_t j = 0; j < n; j++) memcpy(to[j] + g * kRows, out + j * kRows, n_rows * sizeof(float));
            }
        }
        if (configured) release_tiles();
    }
};

inline size_t product_size(int, const ggml::Tensor * op) { return Plan(op).size(); }

inline void product(ggml::Compute * compute, ggml::Tensor * op) {
    Plan plan(op);
    plan.lay_out(compute->wdata);
    const int64_t ith = compute->ith, nth = compute->nth;
    if (ith == 0) plan.shared->next.store(0, std::memory_order_relaxed);
    if (plan.ids) {
        if (ith == 0) plan.list_experts();
        calls.barrier(compute->threadpool);
    }

    // cells are prepared in equal shares; a single column's, too
    const int64_t n = plan.n_columns * plan.n_cells, begin = n * ith / nth, end = n * (ith + 1) / nth;
    int64_t before = 0;
    for (int64_t m = 0; m < plan.n_matrices && before < end; m++) {
        const Part part = plan.part(m);
        const int64_t last = before + part.n * plan.n_cells;
        for (int64_t i = std::max(begin, before); i < std::min(end, last);) {
            const int64_t column = (i - before) / plan.n_cells, cell = (i - before) % plan.n_cells;
            const int64_t until = std::min(plan.n_cells, cell + std::min(end, last) - i);
            plan.prepare(m, column, cell, until);
            i += until - cell;
        }
        before = last;
    }
    calls.barrier(compute->threadpool);

    // groups are taken as threads get to them: a thread that the system has stopped holds up nobody for long
    int64_t n_used = 0;
    for (int64_t m = 0; m < plan.n_matrices; m++) n_used += plan.part(m).n > 0;
    const int64_t total = n_used * plan.n_groups;
    const int64_t take = nth == 1 ? plan.most_groups() : std::max<int64_t>(1, std::min<int64_t>(total / (nth * 8), plan.most_groups()));
    for (;;) {
        const int64_t first = plan.shared->next.fetch_add(take, std::memory_order_relaxed);
        if (first >= total) break;
        int64_t m = -1, used = first / plan.n_groups;  // the used-th matrix that has columns
        for (int64_t seen = -1; seen < used;) seen += plan.part(++m).n > 0;
        int64_t g = first % plan.n_groups;
        for (int64_t left = std::min(take, total - first); left > 0;) {
            const int64_t n = std::min(left, plan.n_groups - g);
            plan.multiply(m, g, g + n);
            left -= n, g = 0;
            if (left > 0) while (!plan.part(++m).n) {}
        }
    }
}
