// How weights lie in memory: planes of bits of 16 rows side by side, and how they come there from a file's blocks.
//
// A group is 16 rows. 32 columns of it are a cell, whose values are q[row][column], unsigned, of BITS bits (8: signed).
// Step i of a cell (0 to 7) is 64 bytes: four values, of columns 4 i to 4 i + 3, of each of the 16 rows. So a row's four
// values fill one 32-bit lane, and one instruction multiplies them by four values of a column. Bits lie in planes:
//   4 bits: four vectors of 64 bytes; vector v has step v in its low nibbles, step v + 4 in its high ones
//   2 bits: two vectors; vector v has steps v, v + 2, v + 4, v + 6 from its low bits up
//   1 bit:  one vector, with step i in bit i
//   8 bits: eight vectors
// BITS 5 is a plane of 4 and one of 1 above it, 6 is 4 and 2, 3 is 2 and 1; a value of a single bit is 0 or 2. Other types
// lie denser, and are unpacked into eight vectors of bytes before they are multiplied (grids.h). A block of the file's type (32 or 256 columns)
// is a header with scales of 16 rows, and the planes of its cells.
constexpr int kRows = kGroup;  // of a group
constexpr int kCell = 32;  // columns of a cell
constexpr int kBytes = kRows * kCell;  // of a cell that is unpacked

// Where step i of row r lies. For i8mm two steps of two rows come together: 16 bytes that are multiplied at once.
struct Word {
    int step, lane;
};
constexpr Word word_at(int i, int r) {
#if defined(UAD_I8MM)
    return {r / 4 + i / 4 * 4, r / 2 % 2 * 8 + i / 2 % 2 * 4 + r % 2 * 2 + i % 2};
#else
    return {i, r};
#endif
}

// How a cell is scaled. With s the sum of a column's quantized values, S its scale:
enum class Scale {
    Whole,   // d S dot                                Q8_0 Q4_0 Q5_0 IQ4_NL MXFP4 IQ4_XS Q1_0 Q2_0 TQ1_0 TQ2_0 IQ1_S IQ2_XXS IQ3_XXS IQ3_S
    Min,     // d S dot + m S s                        Q4_1 Q5_1 Q4_K Q5_K
    Halves,  // d S (c0 dot0 + c1 dot1)                Q6_K Q3_K IQ1_M IQ2_XS IQ2_S: an integer scale for each 16 columns
    HalvesMin,  // the same, + m S (n0 s0 + n1 s1)     Q2_K
    Floats,  // d0 S dot0 + d1 S dot1                  NVFP4: a scale of 8 bits, a float, for each 16 columns
};

// Bytes of a group's block, before they are packed: of one row.
struct Row {
    uint16_t scale = 0, minimum = 0;  // d and m above, as halves (MXFP4: the exponent's byte)
    uint8_t scales[16] = {};          // of cells, or of halves of cells
    uint8_t mins[8] = {};             // of cells
    uint8_t q[256] = {};              // values; of types with grids (grids.h), signs
    uint16_t index[64] = {};          // of entries of a grid
};

inline uint16_t half_at(const uint8_t * p) {
    uint16_t x;
    memcpy(&x, p, 2);
    return x;
}

inline void nibbles(const uint8_t * from, uint8_t * q, int n) {  // low ones first, then high ones
    for (int i = 0; i < n; i++) {
        q[i] = from[i] & 15;
        q[i + n] = from[i] >> 4;
    }
}

inline void fifth_bits(const uint8_t * from, uint8_t * q) {
    uint32_t bits;
    memcpy(&bits, from, 4);
    for (int i = 0; i < 32; i++) q[i] |= (bits >> i & 1) << 4;
}

// 256 values of 2 bits: in each half, byte i has those of columns i, i + 32, i + 64 and i + 96
inline void pairs_of_bits(const uint8_t * from, uint8_t * q) {
    for (int half = 0; half < 2; half++)
        for (int u = 0; u < 4; u++)
            for (int i = 0; i < 32; i++) q[128 * half + 32 * u + i] = from[32 * half + i] >> (2 * u) & 3;
}

// 256 single bits, moved to bit `to`: byte i has those of columns i, i + 32 ... i + 224
inline void add_bits(const uint8_t * from, uint8_t * q, int to) {
    for (int u = 0; u < 8; u++)
        for (int i = 0; i < 32; i++) q[32 * u + i] |= (from[i] >> u & 1) << to;
}

// 8 scales and 8 minima of 6 bits in 12 bytes
inline void scales_and_mins(const uint8_t * p, Row & row) {
    for (int i = 0; i < 4; i++) {
        row.scales[i] = p[i] & 63;
        row.mins[i] = p[i + 4] & 63;
        row.scales[i + 4] = (p[i + 8] & 15) | (p[i] >> 6 << 4);
        row.mins[i + 4] = (p[i + 8] >> 4) | (p[i + 4] >> 6 << 4);
    }
}

// One type of weights. COLUMNS of a block, FILE: its bytes in the file; OFFSET is taken off each value; N_SCALES, N_MINS:
// bytes a row for each block. read: a block of the file.
template <int TYPE> struct Format;

template <int TYPE, int BITS_, Scale SCALE_, int OFFSET_ = 0, int N_SCALES_ = 0, int N_MINS_ = 0> struct Layout {
    static constexpr int COLUMNS = ggml::block_of(TYPE).columns, FILE = ggml::block_of(TYPE).bytes;
    static constexpr int BITS = BITS_, OFFSET = OFFSET_, N_SCALES = N_SCALES_, N_MINS = N_MINS_;
    static constexpr Scale SCALE = SCALE_;
    static constexpr bool HAS_MIN = SCALE == Scale::Min || SCALE == Scale::HalvesMin;
    static constexpr bool HAS_TABLE = false;          // nibbles stand for the values of TABLE
    static constexpr bool SIGNED = BITS == 8;         // the values that are multiplied have all of a byte's range
    static constexpr int SCALE_BYTES = 2;             // of d. 1: the exponent of a power of two
    static constexpr float UNIT = 1.0f;               // d is this times the file's
    static constexpr bool NIBBLES = false;            // scales are odd numbers: (n & MOST) 2 + 1 of nibbles n, low ones first
    static constexpr int MOST = 15;
    static constexpr bool IN_BYTES = false;           // cells are unpacked before they are multiplied
    static constexpr int CELL = kBytes * BITS / 8;    // bytes of a cell
    static constexpr int LARGEST = BITS == 1 ? 2 : (1 << BITS) - 1;  // of unsigned values
};

template <> struct Format<ggml::Q8_0> : Layout<ggml::Q8_0, 8, Scale::Whole> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        memcpy(row.q, p + 2, 32);
    }
};
template <> struct Format<ggml::Q4_0> : Layout<ggml::Q4_0, 4, Scale::Whole, 8> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        nibbles(p + 2, row.q, 16);
    }
};
template <> struct Format<ggml::Q4_1> : Layout<ggml::Q4_1, 4, Scale::Min> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        row.minimum = half_at(p + 2);
        nibbles(p + 4, row.q, 16);
    }
};
template <> struct Format<ggml::Q5_0> : Layout<ggml::Q5_0, 5, Scale::Whole, 16> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        nibbles(p + 6, row.q, 16);
        fifth_bits(p + 2, row.q);
    }
};
template <> struct Format<ggml::Q5_1> : Layout<ggml::Q5_1, 5, Scale::Min> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        row.minimum = half_at(p + 2);
        nibbles(p + 8, row.q, 16);
        fifth_bits(p + 4, row.q);
    }
};
constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kFp4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};  // twice the value, plus 12

template <> struct Format<ggml::IQ4_NL> : Layout<ggml::IQ4_NL, 4, Scale::Whole> {
    static constexpr bool HAS_TABLE = true;
    static constexpr const int8_t * TABLE = kIq4;
    static constexpr bool SIGNED = true;
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        nibbles(p + 2, row.q, 16);
    }
};
template <> struct Format<ggml::MXFP4> : Layout<ggml::MXFP4, 4, Scale::Whole, 12> {
    static constexpr bool HAS_TABLE = true;
    static constexpr const int8_t * TABLE = kFp4;
    static constexpr int SCALE_BYTES = 1;
    static constexpr int LARGEST = 24;
    static void read(const uint8_t * p, Row & row) {
        row.scale = p[0];
        nibbles(p + 1, row.q, 16);
    }
};
template <> struct Format<ggml::NVFP4> : Layout<ggml::NVFP4, 4, Scale::Floats, 12, 4> {
    static constexpr bool HAS_TABLE = true;
    static constexpr const int8_t * TABLE = kFp4;
    static constexpr int SCALE_BYTES = 0;
    static constexpr int LARGEST = 24;
    static void read(const uint8_t * p, Row & row) {
        for (int i = 0; i < 4; i++) {
            row.scales[i] = p[i] == 127 ? 0 : p[i] & 127;  // no number counts as 0; scales have no sign
            nibbles(p + 4 + 8 * i, row.q + 16 * i, 8);
        }
    }
};
template <> struct Format<ggml::Q1_0> : Layout<ggml::Q1_0, 1, Scale::Whole, 1> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        for (int i = 0; i < 128; i++) row.q[i] = p[2 + i / 8] >> (i % 8) & 1;
    }
};
template <> struct Format<ggml::Q2_0> : Layout<ggml::Q2_0, 2, Scale::Whole, 1> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        for (int i = 0; i < 64; i++) row.q[i] = p[2 + i / 4] >> (i % 4 * 2) & 3;
    }
};
template <> struct Format<ggml::TQ2_0> : Layout<ggml::TQ2_0, 2, Scale::Whole, 1> {
    static void read(const uint8_t * p, Row & row) {
        pairs_of_bits(p, row.q);
        row.scale = half_at(p + 64);
    }
};
template <> struct Format<ggml::Q2_K> : Layout<ggml::Q2_K, 2, Scale::HalvesMin, 0, 16> {  // scale and minimum in one byte
    static void read(const uint8_t * p, Row & row) {
        memcpy(row.scales, p, 16);
        pairs_of_bits(p + 16, row.q);
        row.scale = half_at(p + 80);
        row.minimum = half_at(p + 82);
    }
};
template <> struct Format<ggml::Q3_K> : Layout<ggml::Q3_K, 3, Scale::Halves, 4, 16> {
    static void read(const uint8_t * p, Row & row) {
        pairs_of_bits(p + 32, row.q);
        add_bits(p, row.q, 2);
        const uint8_t * s = p + 96;  // 16 scales of 6 bits, 32 too large
        for (int i = 0; i < 16; i++) {
            const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> (i / 4 * 2) & 3;
            row.scales[i] = (uint8_t) ((low | high << 4) - 32);
        }
        row.scale = half_at(p + 108);
    }
};
template <> struct Format<ggml::Q4_K> : Layout<ggml::Q4_K, 4, Scale::Min, 0, 8, 8> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        row.minimum = half_at(p + 2);
        scales_and_mins(p + 4, row);
        for (int i = 0; i < 4; i++) nibbles(p + 16 + 32 * i, row.q + 64 * i, 32);
    }
};
template <> struct Format<ggml::Q5_K> : Layout<ggml::Q5_K, 5, Scale::Min, 0, 8, 8> {
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        row.minimum = half_at(p + 2);
        scales_and_mins(p + 4, row);
        for (int i = 0; i < 4; i++) nibbles(p + 48 + 32 * i, row.q + 64 * i, 32);
        add_bits(p + 16, row.q, 4);
    }
};
template <> struct Format<ggml::Q6_K> : Layout<ggml::Q6_K, 6, Scale::Halves, 32, 16> {
    static void read(const uint8_t * p, Row & row) {
        uint8_t high[256];
        pairs_of_bits(p + 128, high);
        for (int half = 0; half < 2; half++) nibbles(p + 64 * half, row.q + 128 * half, 64);
        for (int i = 0; i < 256; i++) row.q[i] |= high[i] << 4;
        memcpy(row.scales, p + 192, 16);
        row.scale = half_at(p + 208);
    }
};
template <> struct Format<ggml::IQ4_XS> : Layout<ggml::IQ4_XS, 4, Scale::Whole, 0, 8> {
    static constexpr bool HAS_TABLE = true;
    static constexpr const int8_t * TABLE = kIq4;
    static constexpr bool SIGNED = true;
    static void read(const uint8_t * p, Row & row) {
        row.scale = half_at(p);
        const int high = half_at(p + 2);
        for (int i = 0; i < 8; i++) {
            row.scales[i] = (uint8_t) (((p[4 + i / 2] >> (i % 2 * 4) & 15) | (high >> (2 * i) & 3) << 4) - 32);
            nibbles(p + 8 + 16 * i, row.q + 32 * i, 16);
        }
    }
};

// Offsets in a group's block:  d of 16 rows | m | scales | mins | cells. Planes of a cell, each 64 bytes for a vector:
//
//   BITS   0 ... 127       128 ... 255    256 ... 383
//   1      1 bit (64)
//   2      2 bits
//   3      2 bits          1 bit (64)
//   4      4 bits .......................
//   5      4 bits .......................  1 bit (64)
//   6      4 bits .......................  2 bits
template <class T> struct Place {
    static constexpr int BLOCK_SCALE = 0;
    static constexpr int BLOCK_MIN = BLOCK_SCALE + kRows * T::SCALE_BYTES;
    static constexpr int SCALES = BLOCK_MIN + (T::HAS_MIN ? kRows * 2 : 0);
    static constexpr int MINS = SCALES + kRows * T::N_SCALES;
    static constexpr int CELLS = MINS + kRows * T::N_MINS;
    static constexpr int CELL = T::CELL;
    static constexpr int FOUR_BITS = 0, TWO_BITS = T::BITS == 6 ? 256 : 0, ONE_BIT = T::BITS == 5 ? 256 : T::BITS == 3 ? 128 : 0;
    static constexpr int N_CELLS = T::COLUMNS / kCell;
    static constexpr int BLOCK = CELLS + CELL * N_CELLS;
};

// The 16 rows' 32 values of a cell into planes. w: word_at says where each step of a row is.
template <class T> inline void pack(const uint32_t w[8][kRows], uint8_t * cell) {
    using At = Place<T>;
    uint32_t * out = (uint32_t *) cell;
    auto plane = [&](int at, int n_vectors, int bits, int shift) {  // `bits` bits of each value, from bit `shift` on
        const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
        for (int v = 0; v < n_vectors; v++) {
            uint32_t * to = out + at / 4 + v * kRows;
            for (int r = 0; r < kRows; r++) to[r] = w[v][r] >> shift & mask;
            for (int u = 1; u < 8 / n_vectors; u++)
                for (int r = 0; r < kRows; r++) to[r] |= (w[v + n_vectors * u][r] >> shift & mask) << (bits * u);
        }
    };
    if constexpr (T::BITS == 8) memcpy(cell, w, 8 * kRows * 4);
    if constexpr (T::BITS == 4 || T::BITS == 5 || T::BITS == 6) plane(At::FOUR_BITS, 4, 4, 0);
    if constexpr (T::BITS == 2 || T::BITS == 3) plane(At::TWO_BITS, 2, 2, 0);
    if constexpr (T::BITS == 6) plane(At::TWO_BITS, 2, 2, 4);
    if constexpr (T::BITS == 5) plane(At::ONE_BIT, 1, 1, 4);
    if constexpr (T::BITS == 3) plane(At::ONE_BIT, 1, 1, 2);
    if constexpr (T::BITS == 1) plane(At::ONE_BIT, 1, 1, 0);
}

// A matrix of k columns (whole blocks) and any number of rows into groups; rows that a group lacks are zero. groups: from
// and to, for threads that share the work.
template <class T> void pack_groups(int64_t k, int64_t rows, const uint8_t * from, uint8_t * to, int64_t first, int64_t last) {
    using At = Place<T>;
    const int64_t n_blocks = k / T::COLUMNS;
    for (int64_t g = first; g < last; g++)
        for (int64_t b = 0; b < n_blocks; b++) {
            uint8_t * block = to + (g * n_blocks + b) * At::BLOCK;
            static thread_local Row row[kRows];
            for (int r = 0; r < kRows; r++) {
                if (g * kRows + r < rows) T::read(from + ((g * kRows + r) * n_blocks + b) * T::FILE, row[r]);
                else row[r] = Row();
                if (T::SCALE_BYTES == 1) block[At::BLOCK_SCALE + r] = (uint8_t) row[r].scale;
                if (T::SCALE_BYTES == 2) memcpy(block + At::BLOCK_SCALE + 2 * r, &row[r].scale, 2);
                if (T::HAS_MIN) memcpy(block + At::BLOCK_MIN + 2 * r, &row[r].minimum, 2);
                for (int i = 0; i < T::N_SCALES; i++) block[At::SCALES + i * kRows + r] = row[r].scales[i];
                for (int i = 0; i < T::N_MINS; i++) block[At::MINS + i * kRows + r] = row[r].mins[i];
            }
            if constexpr (T::IN_BYTES) T::pack(row, block + At::CELLS);
            else for (int c = 0; c < At::N_CELLS; c++) {
                uint32_t w[8][kRows];
                for (int r = 0; r < kRows; r++)
                    for (int i = 0; i < 8; i++) memcpy(&w[word_at(i, r).step][word_at(i, r).lane], row[r].q + kCell * c + 4 * i, 4);
                pack<T>(w, block + At::CELLS + At::CELL * c);
            }
        }
}
