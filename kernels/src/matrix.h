// Products on matrix units (AMX): weights are unpacked, scaled and rounded to BF16, and multiplied by columns in BF16. So
// are all types but F16 and F32, which would lose bits.
//
// One instruction adds the products of a cell's 32 values to the sums of up to 16 columns by 16 rows. A sum goes over cells
// in order, whatever columns are beside it, so its bits are those that it has alone. They are others than those of vectors.
//   columns   of a tile of up to 16: cell after cell, 64 bytes of each column
//   weights   a cell is 16 vectors; lane r of vector k has values 2 k and 2 k + 1 of row r. BF16 weights lie so in memory
//   sums      a row for each column, 16 rows of weights side by side
// Scales are folded into the weights: to scale sums apart, they would have to leave the units after each cell.

// Shapes for n columns, at most two tiles of them. Tiles 0 and 1 are sums of the first 16 columns with two groups of rows,
// 2 and 3 those of the others; 4 and 5 are columns, 6 and 7 weights.
inline void configure(int n) {
    TileShapes shapes;
    auto shape = [&](int tile, int rows) { shapes.rows[tile] = (uint8_t) rows, shapes.bytes[tile] = rows ? 64 : 0; };
    const int first = std::min(n, 16), second = n - first;
    for (int tile : {0, 1, 4}) shape(tile, first);
    for (int tile : {2, 3, 5}) shape(tile, second);
    for (int tile : {6, 7}) shape(tile, 16);
    configure_tiles(shapes);
}

// ---- unpacking

inline Ints joined(Ints x, Ints mask, Ints rest) { return _mm512_ternarylogic_epi32(x, mask, rest, 0xea); }  // x & mask | rest
template <int n> inline Ints shifted(Ints x) {  // 32-bit lanes to the left, or to the right
    if constexpr (n >= 0) return left32<n>(x);
    else return _mm512_srli_epi32(x, -n);
}

// A number u of BITS bits as BASE + u: put to bits AT and up of a float whose other bits are BASE, it needs no conversion.
template <int AT_, int BITS_> struct Placed {
    static constexpr int AT = AT_, BITS = BITS_;
    static constexpr float BASE = (float) (1 << (23 - AT));
    static_assert(AT + BITS <= 23, "a mantissa has 23 bits");

    template <int FROM> static Floats number(Ints lanes) {  // of each lane's bits FROM and up
        return as_float(joined(shifted<AT - FROM>(lanes), iset(((1 << BITS) - 1) << AT), iset((127 + 23 - AT) << 23)));
    }
};

// A weight is scale u + least, where u is the unsigned number that is stored.
struct Affine {
    Floats scale, least;
};

// Two vectors of a tile: four values of each lane, which lie in BITS bits from bits FROM, FROM + 8 ... on.
template <class Number, int FROM> UAD_INLINE void store_pairs(Ints lanes, const Affine & of, char * to) {
    const Floats least = fma(of.scale, set(-Number::BASE), of.least);
    Ints rounded[4];  // to nearest; the lower half of each is dropped
    times<4>([&](auto i) {
        constexpr int from = FROM + 8 * decltype(i)::value;
        rounded[i] = iadd(_mm512_castps_si512(fma(of.scale, Number::template number<from>(lanes), least)), iset(0x8000));
    });
    const Ints upper = iset((int32_t) 0xffff0000);
    istore(to, joined(rounded[1], upper, shifted<-16>(rounded[0])));
    istore(to + 64, joined(rounded[3], upper, shifted<-16>(rounded[2])));
}

// How half h of cell c stands for weights. Halves differ only where a cell has two scales.
template <class T, int h> UAD_INLINE Affine affine(const BlockRows<T, 1> & rows, int c) {
    constexpr int OFFSET = T::SIGNED ? 128 : T::OFFSET;
    Affine of;
    Floats minimum = zero();
    if constexpr (T::SCALE == Scale::Whole || T::SCALE == Scale::Min) {
        of.scale = whole_scale(rows, 0, c);
        if constexpr (T::N_MINS > 0) minimum = whole_minimum(rows, 0, c);
        else if constexpr (T::HAS_MIN) minimum = sub(zero(), whole_minimum(rows, 0, c));  // added, not taken off
    } else {
        const uint8_t * at = rows.block + Place<T>::SCALES + (T::NIBBLES ? c : 2 * c + h) * kRows;
        if constexpr (T::SCALE == Scale::Floats) of.scale = small_floats(at);
        else of.scale = mul(rows.scale[0], to_float(half_scale<T, h>(at)));
        if constexpr (T::HAS_MIN) minimum = mul(rows.minimum[0], to_float(right<4>(unsigned_bytes(at))));
    }
    of.least = nfma(of.scale, set((float) OFFSET), sub(zero(), minimum));
    return of;
}

// Cell c of 16 rows as a tile. Prefetches the memory that follows, a line for each line that is read.
template <class T> UAD_INLINE void cell_to_tile(const BlockRows<T, 1> & rows, int c, char * to) {
    // whether numbers of 8 bits keep their sums with BASE exact depends on the scale's bits; fewer bits always do
    using Number = std::conditional_t<!T::SIGNED, Placed<16, 7>, std::conditional_t<T::N_SCALES == 0, Placed<8, 8>, Placed<15, 8>>>;
    constexpr bool TWO_SCALES = T::SCALE == Scale::Halves || T::SCALE == Scale::HalvesMin || T::SCALE == Scale::Floats;
    const Affine first = affine<T, 0>(rows, c);
    Affine second = first;
    if constexpr (TWO_SCALES) second = affine<T, 1>(rows, c);
    const uint8_t * cell = rows.cell(c, 0);
    if constexpr (T::BITS == 4 && !T::HAS_TABLE) {  // nibbles need not become bytes
        times<4>([&](auto i) {
            constexpr int v = decltype(i)::value;
            __builtin_prefetch(cell + 4096 + 64 * v);
            const Ints both = iload(cell + 64 * v);
            store_pairs<Placed<16, 4>, 0>(both, first, to + 128 * v);
            store_pairs<Placed<12, 4>, 4>(both, second, to + 128 * (v + 4));
        });
    } else
        times<8>([&](auto i) {
            constexpr int step = decltype(i)::value;
            if constexpr (!T::IN_BYTES && 64 * step < T::CELL) __builtin_prefetch(cell + 4096 + 64 * step);
            const Ints q = unpacked<T, step>(cell);
            store_pairs<Number, 0>(T::SIGNED ? ixor(q, bytes(0x80)) : q, step < 4 ? first : second, to + 128 * step);
        });
}

template <class T> UAD_INLINE void block_to_tiles(const uint8_t * block, char * to) {
    alignas(64) uint8_t in_bytes[T::IN_BYTES ? Place<T>::N_CELLS * kBytes : 1];
    if constexpr (T::IN_BYTES) unpack_block<T>(block, in_bytes);
    const BlockRows<T, 1> rows(block, T::IN_BYTES ? in_bytes : block + Place<T>::CELLS);
    for (int c = 0; c < Place<T>::N_CELLS; c++) cell_to_tile<T>(rows, c, to + c * kTileBytes);
}

// Cells `first` to `first + n` of a group as tiles: whole blocks.
template <class T> void group_to_tiles(const uint8_t * group, int64_t first, int64_t n, char * to) {
    constexpr int N = Place<T>::N_CELLS;
    for (int64_t c = 0; c < n; c += N) block_to_tiles<T>(group + (first + c) / N * Place<T>::BLOCK, to + c * kTileBytes);
}

// ---- products

// Columns of a pass of up to kFew: the second tile lies after the first.
struct FewColumns {
    const char *first, *second;
    int64_t stride, second_stride;  // bytes from cell to cell

    FewColumns(const void * columns, int64_t n_cells, int n) {
        first = (const char *) columns, stride = 64 * std::min(n, 16);
        second = n > 16 ? first + stride * n_cells : nullptr, second_stride = 64 * (n - 16);
    }

    // Adds the products of n_cells cells of a group, from number `cell` on, to tiles 0 and 2; those of a second one to 1 and 3.
    template <bool FETCHES, int GROUPS> UAD_INLINE void multiply(const char * const (&weights)[GROUPS], int64_t cell, int64_t n_cells) const {
        for (int64_t c = 0; c < n_cells; c++) {
            if (FETCHES)
                for (int at = 0; at < kTileBytes; at += 64) __builtin_prefetch(weights[0] + c * kTileBytes + 8192 + at);
            load_tile<6>(weights[0] + c * kTileBytes, 64);
            load_tile<4>(first + (cell + c) * stride, 64);
            multiply_tiles<0, 4, 6>();
            if constexpr (GROUPS == 2) {
                load_tile<7>(weights[GROUPS - 1] + c * kTileBytes, 64);
                multiply_tiles<1, 4, 7>();
            }
            if (!second) continue;
            load_tile<5>(second + (cell + c) * second_stride, 64);
            multiply_tiles<2, 5, 6>();
            if constexpr (GROUPS == 2) multiply_tiles<3, 5, 7>();
        }
    }
};

// 16 rows by n columns, up to kFew; out: 16 floats for each column. Eight cells are unpacked while the last eight are
// multiplied: a tile that is loaded from what was just stored waits for it. to_tiles: null where weights lie as tiles.
template <void (*to_tiles)(const uint8_t *, int64_t, int64_t, char *)>
void few_columns(const uint8_t * group, int64_t n_cells, const void * columns, int n, float * out) {
    const FewColumns few(columns, n_cells, n);
    zero_tile<0>();
    if (n > 16) zero_tile<2>();
    if constexpr (to_tiles == nullptr) few.multiply<true, 1>({(const char *) group}, 0, n_cells);
    else {
        constexpr int64_t N = 8;  // a multiple of all blocks' cells
        alignas(64) char tiles[2][N * kTileBytes];
        for (int64_t cell = 0; cell < n_cells + N; cell += N) {
            if (cell < n_cells) to_tiles(group, cell, std::min(N, n_cells - cell), tiles[cell / N % 2]);
            if (cell > 0) few.multiply<false, 1>({tiles[cell / N % 2 ^ 1]}, cell - N, std::min(N, n_cells - cell + N));
        }
    }
    store_tile<0>(out, 64);
    if (n > 16) store_tile<2>(out + 16 * kRows, 64);
}

// Adds the products of `n_cells` cells of two groups and up to two tiles of columns. weights: of both groups; column(j): where
// the sums of a column lie, n_rows of them. is_begun: there are sums already.
template <class Column>
void add_square(const char * const (&weights)[2], const FewColumns & few, int64_t cell, int64_t n_cells, bool is_begun, Column column, int64_t n_rows, int n) {
    alignas(64) float sums[2][kFew][kRows];
    auto move = [&](auto copy) {
        for (int j = 0; j < n; j++)
            for (int64_t g = 0; g * kRows < n_rows; g++) copy(column(j) + g * kRows, sums[g][j], std::min<int64_t>(kRows, n_rows - g * kRows) * sizeof(float));
    };
    zero_tile<0>(), zero_tile<1>();
    if (few.second) zero_tile<2>(), zero_tile<3>();
    if (is_begun) {
        move([](float * result, float * own, size_t size) { memcpy(own, result, size); });
        load_tile<0>(sums[0], 64), load_tile<1>(sums[1], 64);
        if (few.second) load_tile<2>(sums[0][16], 64), load_tile<3>(sums[1][16], 64);
    }
    few.multiply<false, 2>(weights, cell, n_cells);
    store_tile<0>(sums[0], 64), store_tile<1>(sums[1], 64);
    if (few.second) store_tile<2>(sums[0][16], 64), store_tile<3>(sums[1][16], 64);
    move([](float * result, float * own, size_t size) { memcpy(result, own, size); });
}
