// Types of weights that lie denser than planes of bits: with grids, and with three values of which five share a byte. Their
// cells are unpacked into bytes, eight vectors of 64 as planes.h has those of 8 bits: a block at a time, or a whole group
// for several tiles of columns.
//
// A grid is a table of groups of values (IQ1, IQ2: eight; IQ3: four), of which a weight has the number. An entry has codes
// of 3 bits (kind.h); with a fourth for the sign VALUES has what they stand for, OFFSET too large. Numbers of entries have
// 8 to 11 bits. A cell:  low 8 bits of each entry of 16 rows | a byte of further ones for each row | the last ones, a
// nibble for each row | signs. Entries are looked up one by one: processors gather no faster.

// Where signs are: of each value a plane of 1 bit, step i in bit i / 2 + i % 2 * 4; of each entry a nibble for each row; of the
// cell bit 3 of its scale. Those of entries are bits of their numbers, too.
enum class Signs { Values, Entries, Cell };

inline uint8_t even(int signs) { return (uint8_t) (signs | __builtin_parity((unsigned) signs) << 7); }  // the eighth makes them even

// A byte for each of 16 rows, on any processor
typedef uint8_t Bytes16 __attribute__((vector_size(16)));
inline Bytes16 bytes_of(const uint8_t * p) {
    Bytes16 x;
    memcpy(&x, p, 16);
    return x;
}
inline Bytes16 nibbles_of(const uint8_t * p) {  // of 8 bytes: low ones first, then high ones
    uint64_t x;
    memcpy(&x, p, 8);
    const uint64_t both[2] = {x & 0x0f0f0f0f0f0f0f0full, x >> 4 & 0x0f0f0f0f0f0f0f0full};
    return bytes_of((const uint8_t *) both);
}
// 16 numbers of 16 bits: low bytes, high bytes
inline void store_words(uint16_t * to, Bytes16 low, Bytes16 high) {
#if defined(UAD_NEON)
    vst1q_u8((uint8_t *) to, vzip1q_u8((uint8x16_t) low, (uint8x16_t) high));
    vst1q_u8((uint8_t *) (to + 8), vzip2q_u8((uint8x16_t) low, (uint8x16_t) high));
#else
    _mm_storeu_si128((__m128i *) to, _mm_unpacklo_epi8((__m128i) low, (__m128i) high));
    _mm_storeu_si128((__m128i *) (to + 8), _mm_unpackhi_epi8((__m128i) low, (__m128i) high));
#endif
}

template <int TYPE, Scale SCALE, int OFFSET, int N_SCALES, int WIDTH, int INDEX_BITS, Signs SIGNS>
struct Grid : Layout<TYPE, 8, SCALE, OFFSET, N_SCALES> {
    static constexpr bool SIGNED = false, IN_BYTES = true, NIBBLES = true;
    static constexpr int LARGEST = 2 * OFFSET;
    static constexpr int N = kCell / WIDTH;  // entries of a row's cell
    static constexpr int PER_BYTE = 8 / N;   // further bits of each entry in a row's byte
    static constexpr bool HAS_MORE = INDEX_BITS >= 8 + PER_BYTE, HAS_LAST = N == 4 && INDEX_BITS % 2 == 1;
    static constexpr int MORE_AT = N * kRows, LAST_AT = MORE_AT + (HAS_MORE ? kRows : 0), SIGNS_AT = LAST_AT + (HAS_LAST ? kRows / 2 : 0);
    static constexpr int CELL = SIGNS_AT + (SIGNS == Signs::Values ? kRows * 4 : SIGNS == Signs::Entries ? kRows / 2 : 0);

    static void set_signs(Row & row, int at, int signs) {  // of eight values from number `at` on
        for (int i = 0; i < 8; i++) row.q[at + i] = signs >> i & 1;
    }

    static void pack(const Row * rows, uint8_t * cells) {
        memset(cells, 0, CELL * 8);
        for (int c = 0; c < 8; c++)
            for (int r = 0; r < kRows; r++) {
                uint8_t * cell = cells + c * CELL;
                const int in_nibble = r % 8, shift = r / 8 * 4;
                const uint8_t * signs = rows[r].q + c * kCell;
                for (int i = 0; i < N; i++) {
                    const int index = rows[r].index[c * N + i];
                    cell[i * kRows + r] = (uint8_t) index;
                    if (HAS_MORE) cell[MORE_AT + r] |= (index >> 8 & ((1 << PER_BYTE) - 1)) << (i * PER_BYTE);
                    if (HAS_LAST) cell[LAST_AT + in_nibble] |= (index >> (INDEX_BITS - 1) & 1) << (shift + i);
                    if (SIGNS == Signs::Entries) cell[SIGNS_AT + in_nibble] |= signs[i * WIDTH] << (shift + i);
                }
                if (SIGNS == Signs::Values)
                    for (int i = 0; i < kCell; i++) cell[SIGNS_AT + r * 4 + i % 4] |= signs[i] << (i / 8 + i / 4 % 2 * 4);
            }
    }

    // Codes of cell c: vector v has steps 2 v in its low nibbles, 2 v + 1 in its high ones.
    template <class T> static void look_up_entries(const uint8_t * block, int c, uint32_t (&to)[4][kRows]) {
        const uint8_t * cell = block + Place<T>::CELLS + c * CELL;
        const uint32_t * grid = T::grid();
        constexpr bool IS_WIDE = INDEX_BITS > 8;
        uint16_t index[N][kRows];
        for (int at = 0; at < CELL; at += 64) __builtin_prefetch(cell + 4096 + at);
        if constexpr (IS_WIDE) {
            Bytes16 signs{};  // bit i for entry i
            if (SIGNS == Signs::Entries) signs = nibbles_of(cell + SIGNS_AT);
            if (SIGNS == Signs::Cell) signs = -(bytes_of(block + Place<T>::SCALES + c / 2 * kRows) >> (c % 2 * 4 + 3) & 1);
            for (int i = 0; i < N; i++) {
                Bytes16 high{};
                if (HAS_MORE) high |= bytes_of(cell + MORE_AT) >> (i * PER_BYTE) & (uint8_t) ((1 << PER_BYTE) - 1);
                if (HAS_LAST) high |= (nibbles_of(cell + LAST_AT) >> i & 1) << (INDEX_BITS - 9);
                if (SIGNS != Signs::Values) high |= (signs >> i & 1) << (INDEX_BITS - 8);
                store_words(index[i], bytes_of(cell + i * kRows), high);
            }
        }
        auto entry = [&](int i, int r) { return grid + (IS_WIDE ? index[i][r] : cell[i * kRows + r]); };
        for (int v = 0; v < 4; v++)
            for (int r = 0; r < kRows; r++) {
                uint32_t codes = N == 4 ? *entry(v, r) : *entry(2 * v, r) | entry(2 * v + 1, r)[1 << INDEX_BITS];
                asm("" : "+r"(codes));  // compilers would gather
                to[v][r] = codes;
            }
    }

    template <class T> static void unpack(const uint8_t * block, uint8_t * to) {
        alignas(64) uint32_t codes[2][4][kRows];  // a cell ahead: what was just stored in parts is slow to load at once
        look_up_entries<T>(block, 0, codes[0]);
        for (int c = 0; c < 8; c++, to += kBytes) {
            if (c + 1 < 8) look_up_entries<T>(block, c + 1, codes[(c + 1) % 2]);
            const uint8_t *from = (const uint8_t *) codes[c % 2], *signs_at = block + Place<T>::CELLS + c * CELL + SIGNS_AT;
            for (int lane = 0; lane < 4 * kRows; lane += 4 * kLanes) {
                const Ints signs = SIGNS == Signs::Values ? iload(signs_at + lane) : izero();
                times<4>([&](auto vector) {
                    constexpr int v = decltype(vector)::value;
                    Ints both = iload(from + v * 64 + lane);
                    if constexpr (SIGNS == Signs::Values) both = ior(both, iand(moved<v, 3>(signs), bytes(0x88)));
                    const Ints even = look_up(T::VALUES, iand(both, bytes(15))), odd = look_up(T::VALUES, field<4, 0, 4>(both));
#if defined(UAD_I8MM)
                    uint8_t * rows = to + (lane / 16 + v / 2 * 4) * 64 + v % 2 * 16;  // word_at(2 v, lane / 4)
                    istore(rows, vzip1q_s32(even, odd));
                    istore(rows + 32, vzip2q_s32(even, odd));
#else
                    istore(to + v * 128 + lane, even);
                    istore(to + v * 128 + 64 + lane, odd);
#endif
                });
            }
        }
    }
};

constexpr int8_t kOfIq1[16] = {2, 10, 18, 0, 0, 0, 0, 0, 0, 8, 16};  // eighths: -1, 0, 1, each an eighth more or less
constexpr int8_t kOfIq2[16] = {51, 68, 86, 0, 0, 0, 0, 0, 35, 18, 0};
constexpr int8_t kOfIq3Xxs[16] = {33, 37, 41, 45, 49, 53, 57, 62, 29, 25, 21, 17, 13, 9, 5, 0};  // half of the values
constexpr int8_t kOfIq3S[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};

template <> struct Format<ggml::IQ1_S> : Grid<ggml::IQ1_S, Scale::Whole, 9, 4, 8, 11, Signs::Cell> {
    static constexpr const int8_t * VALUES = kOfIq1;
    static constexpr float UNIT = 0.125f;
    static constexpr int MOST = 7;
    static const uint32_t * grid() { return grids.iq1; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p);
        for (int c = 0; c < 8; c++) {
            const int high = half_at(p + 34 + 2 * c);
            for (int i = 0; i < 4; i++) row.index[4 * c + i] = (uint16_t) (p[2 + 4 * c + i] | (high >> (3 * i) & 7) << 8);
            row.scales[c / 2] |= high >> 12 << (c % 2 * 4);
        }
    }
};
template <> struct Format<ggml::IQ1_M> : Grid<ggml::IQ1_M, Scale::Halves, 9, 8, 8, 11, Signs::Entries> {
    static constexpr const int8_t * VALUES = kOfIq1;
    static constexpr float UNIT = 0.125f;
    static const uint32_t * grid() { return grids.iq1; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        for (int c = 0; c < 8; c++) {
            const int scales = half_at(p + 48 + c / 2 * 2) >> (c % 2 * 6);
            row.scales[c] = (uint8_t) ((scales & 7) | (scales >> 3 & 7) << 4);
            if (c % 2) row.scale |= (half_at(p + 48 + c / 2 * 2) >> 12) << (c / 2 * 4);
            for (int i = 0; i < 4; i++) {
                const int high = p[32 + 2 * c + i / 2] >> (i % 2 * 4);
                row.index[4 * c + i] = (uint16_t) (p[4 * c + i] | (high & 7) << 8);
                row.q[kCell * c + 8 * i] = high >> 3 & 1;
            }
        }
    }
};
template <> struct Format<ggml::IQ2_XXS> : Grid<ggml::IQ2_XXS, Scale::Whole, 43, 4, 8, 8, Signs::Values> {
    static constexpr const int8_t * VALUES = kOfIq2;
    static constexpr float UNIT = 0.125f;
    static const uint32_t * grid() { return grids.iq2_xxs; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p);
        for (int c = 0; c < 8; c++) {
            uint32_t signs;
            memcpy(&signs, p + 6 + 8 * c, 4);
            for (int i = 0; i < 4; i++) {
                row.index[4 * c + i] = p[2 + 8 * c + i];
                set_signs(row, kCell * c + 8 * i, even(signs >> (7 * i) & 127));
            }
            row.scales[c / 2] |= signs >> 28 << (c % 2 * 4);
        }
    }
};
template <> struct Format<ggml::IQ2_XS> : Grid<ggml::IQ2_XS, Scale::Halves, 43, 8, 8, 9, Signs::Values> {
    static constexpr const int8_t * VALUES = kOfIq2;
    static constexpr float UNIT = 0.125f;
    static const uint32_t * grid() { return grids.iq2_xs; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p);
        memcpy(row.scales, p + 66, 8);
        for (int i = 0; i < 32; i++) {
            const int both = half_at(p + 2 + 2 * i);
            row.index[i] = both & 511;
            set_signs(row, 8 * i, even(both >> 9));
        }
    }
};
template <> struct Format<ggml::IQ2_S> : Grid<ggml::IQ2_S, Scale::Halves, 43, 8, 8, 10, Signs::Values> {
    static constexpr const int8_t * VALUES = kOfIq2;
    static constexpr float UNIT = 0.125f;
    static const uint32_t * grid() { return grids.iq2_s; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p);
        memcpy(row.scales, p + 74, 8);
        for (int i = 0; i < 32; i++) {
            row.index[i] = (uint16_t) (p[2 + i] | (p[66 + i / 4] >> (i % 4 * 2) & 3) << 8);
            set_signs(row, 8 * i, p[34 + i]);
        }
    }
};
template <> struct Format<ggml::IQ3_XXS> : Grid<ggml::IQ3_XXS, Scale::Whole, 31, 4, 4, 8, Signs::Values> {
    static constexpr const int8_t * VALUES = kOfIq3Xxs;
    static constexpr float UNIT = 0.5f;
    static const uint32_t * grid() { return grids.iq3_xxs; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p);
        for (int i = 0; i < 64; i++) row.index[i] = p[2 + i];
        for (int c = 0; c < 8; c++) {
            uint32_t signs;
            memcpy(&signs, p + 66 + 4 * c, 4);
            for (int i = 0; i < 4; i++) set_signs(row, kCell * c + 8 * i, even(signs >> (7 * i) & 127));
            row.scales[c / 2] |= signs >> 28 << (c % 2 * 4);
        }
    }
};
template <> struct Format<ggml::IQ3_S> : Grid<ggml::IQ3_S, Scale::Whole, 15, 4, 4, 9, Signs::Values> {
    static constexpr const int8_t * VALUES = kOfIq3S;
    static const uint32_t * grid() { return grids.iq3_s; }
    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p);
        memcpy(row.scales, p + 106, 4);
        for (int i = 0; i < 64; i++) row.index[i] = (uint16_t) (p[2 + i] | (p[66 + i / 8] >> (i % 8) & 1) << 8);
        for (int i = 0; i < 32; i++) set_signs(row, 8 * i, p[74 + i]);
    }
};

// Five digits to the base of 3 in a byte: as a number of 256ths, whose first digit is what exceeds 1 when it is multiplied
// by 3; then comes the next one. A digit is 3 less what is multiplied, which is the value plus 2. Vector v of a block's 13
// has steps v, v + 13 ... v + 52 of its 64.
template <> struct Format<ggml::TQ1_0> : Layout<ggml::TQ1_0, 8, Scale::Whole, 2> {
    static constexpr bool SIGNED = false, IN_BYTES = true;
    static constexpr int LARGEST = 3, VECTORS = 13, CELL = VECTORS * 64 / 8;

    static void read(const uint8_t * p, Row & row) {
        row = Row();
        row.scale = half_at(p + 52);
        uint8_t * q = row.q;
        auto digits = [&q](const uint8_t * from, int n_bytes, int n_digits) {
            for (int t = 0, power = 1; t < n_digits; t++, power *= 3)
                for (int i = 0; i < n_bytes; i++) *q++ = (uint8_t) ((uint8_t) (from[i] * power) * 3 >> 8);
        };
        digits(p, 32, 5);
        digits(p + 32, 16, 5);
        digits(p + 48, 4, 4);
    }
    static void pack(const Row * rows, uint8_t * cells) {
        uint8_t q[64 + 1][kRows][4];
        memset(q[64], 2, sizeof(q[64]));
        for (int step = 0; step < 64; step++)
            for (int r = 0; r < kRows; r++) memcpy(q[step / 8 * 8 + word_at(step % 8, r).step][word_at(step % 8, r).lane], rows[r].q + 4 * step, 4);
        for (int v = 0; v < VECTORS; v++)
            for (int i = 0; i < 4 * kRows; i++) {
                int number = 0;
                for (int t = 0; t < 5; t++) number = 3 * number + 2 - q[v + t * VECTORS][i / 4][i % 4];
                cells[v * 64 + i] = (uint8_t) ((number * 256 + 242) / 243);
            }
    }
    template <class T> static void unpack(const uint8_t * block, uint8_t * to) {
        for (int v = 0; v < VECTORS; v++)
            for (int lane = 0; lane < 4 * kRows; lane += 4 * kLanes) {
                const uint8_t * from = block + Place<T>::CELLS + v * 64 + lane;
                __builtin_prefetch(from + 4096);
                Ints x = iload(from);
                for (int step = v; step < 64; step += VECTORS) {
                    const Ints rest = ixor(x, bytes(255));  // means of rests are rounded as the digit has to be
                    istore(to + step * 64 + lane, iand(right<6>(mean_bytes(rest, mean_bytes(rest, bytes(255)))), bytes(3)));
                    x = add_bytes(x, add_bytes(x, x));
                }
            }
    }
};

template <class T> inline void unpack_block(const uint8_t * block, uint8_t * to) { T::template unpack<T>(block, to); }

template <class T> void unpack_group(const uint8_t * group, int64_t n_cells, uint8_t * to) {
    for (int64_t b = 0; b < n_cells; b += Place<T>::N_CELLS, group += Place<T>::BLOCK) unpack_block<T>(group, to + b * kBytes);
}
