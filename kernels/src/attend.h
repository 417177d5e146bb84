// Attention (FLASH_ATTN_EXT): a row has the same bits whatever rows, slots, empty cells and threads are beside it.
//
// For each head: out = sum over cells of p[cell] v[cell], p = softmax over cells of scale q k[cell] + slope mask[cell].
// All of it in F32; K and V are widened. Where processors multiply BF16, p and V are rounded to it: K would lose too much.
// Matrix units (AMX) take q in BF16, too, and K as the sum of two numbers in BF16, which holds all bits of a half. They add
// a step's products in an order of their own, so a row's bits depend on where in their steps its cells lie. Texts that
// share a pass lie anywhere, so these are multiplied on vectors (`attention_in_tiles`).
// The words used here:
//   pair    a row of q (a token) and one of the heads that share a head of K and V; row 3, head 2 of 6 is pair 20
//   tile    up to 96 pairs of a head of K and V: they share what is widened
//   step    32 cells, from a multiple of 32: widened at once, for the pairs of a tile that see one of them (`live`)
//   chunk   8 steps, from a multiple of 256 cells: its greatest score, sum of e^(score - greatest) and sum of V
//   range   2^n chunks, from a multiple of 2^n: what a thread takes; longer ones where there is much else to share
// Each sum is one chain of fused multiply-adds in the order of cells (or of a head's elements), started anew for each
// chunk, and chunks are joined as the leaves of a binary tree over their numbers (Tree). A masked cell adds an exact
// zero, a step or chunk without a live cell is left out and would have added zeros. So nothing but a row's own cells and
// their places counts.
namespace attention {

constexpr int kStep = 32, kSteps = 8, kChunk = kStep * kSteps, kPairs = 96;
constexpr int kBlock = kLanes == 16 ? 12 : 6;           // pairs of the largest block of sums in registers
constexpr int kSums = kLanes == 8 ? 12 : 24;            // registers for sums
constexpr int kLevels = 40;                        // of a Tree
constexpr float kNone = -3.0e38f;                  // greatest score of no cell: below all others, and finite
constexpr float kLeastMask = -65520.0f;            // below all finite halves
constexpr uint16_t kMasked = 0xfc00;               // minus infinity, a half
#if defined(UAD_BF16)
constexpr int kAtOnce = 2;                         // cells of V that one instruction multiplies, in BF16
#else
constexpr int kAtOnce = 1;
#endif
constexpr int kTilePairs = 16, kTileValues = 32;   // tiles of matrix units: 16 pairs, or 32 values of 16 cells or columns
constexpr int kPaired = 1 << 8;                    // added to a plain type: two rows of it, to be multiplied at once
constexpr int kPairOfRows = 1 << 9;                // two such rows as one, in BF16, their numbers side by side

inline int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

inline float exp1(float x) {
    float v[kLanes];
    store(v, exp(set(x)));
    return v[0];
}

inline Floats tanh(Floats x) {  // (a - b) / (a + b), a = e^(-2 max(-x, 0)), b = e^(-2 max(x, 0))
    const Floats a = exp(mul(set(-2.0f), max(zero(), sub(zero(), x)))), b = exp(mul(set(-2.0f), max(zero(), x)));
    return div(sub(a, b), add(a, b));
}

template <int TYPE> constexpr bool is_plain = ggml::block_of(TYPE).columns == 1;
template <int TYPE> constexpr int bytes_of = TYPE == kPairOfRows ? 4 : ggml::block_of(TYPE & ~kPaired).bytes;  // plain types

template <int TYPE> Floats floats(const char * p) {
    if constexpr (TYPE == ggml::F32) return load((const float *) p);
    else if constexpr (TYPE == ggml::F16) return halves((const uint16_t *) p);
    else return bfloats((const uint16_t *) p);
}

// n values of a row of K or V as floats. Up to kLanes - 1 more are written.
template <int TYPE> void widen(const char * row, int64_t n, float * to) {
    if constexpr (is_plain<TYPE>) {
        constexpr int size = bytes_of<TYPE>;
        int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) store(to + i, floats<TYPE>(row + i * size));
        if (i == n) return;
        char last[4 * kLanes] = {};
        memcpy(last, row + i * size, (n - i) * size);
        store(to + i, floats<TYPE>(last));
    } else {
        using T = Format<TYPE>;
        for (int64_t b = 0; b < n; b += T::COLUMNS, row += T::FILE) {
            Row block;
            T::read((const uint8_t *) row, block);
            if constexpr (T::HAS_TABLE)
                for (int i = 0; i < T::COLUMNS; i += 4 * kLanes) istore(block.q + i, look_up(T::TABLE, iload(block.q + i)));
            const Floats scale = set_half(block.scale), minimum = set_half(block.minimum);
            for (int i = 0; i < T::COLUMNS; i += kLanes) {
                const Ints q = T::SIGNED ? signed_bytes(block.q + i) : unsigned_bytes(block.q + i);
                const Floats x = to_float(isub(q, iset(T::OFFSET)));
                store(to + b + i, T::HAS_MIN ? fma(x, scale, minimum) : mul(x, scale));
            }
        }
    }
}

// Keys of kLanes cells side by side, element by element: to[element][cell]. Only n are there, the others are zeros. rows: kLanes
// rows of scratch.
template <int TYPE> void turn(const char * k, size_t stride, int64_t n, int64_t head_size, float * rows, float * to) {
    if constexpr (is_plain<TYPE>) {
        if (n >= kLanes && head_size % kLanes == 0) {
            for (int64_t j = 0; j < head_size; j += kLanes) {
                Floats r[kLanes];
                for (int i = 0; i < kLanes; i++) r[i] = floats<TYPE>(k + i * stride + j * bytes_of<TYPE>);
                transpose(r);
                for (int i = 0; i < kLanes; i++) store(to + (j + i) * kStep, r[i]);
            }
            return;
        }
    }
    const int64_t width = up(head_size, kLanes), row = width + 16;  // rows of 2^n floats would share few places of the cache
    for (int64_t i = 0; i < kLanes; i++) {
        if (i < n) widen<TYPE>(k + i * stride, head_size, rows + i * row);
        else memset(rows + i * row, 0, width * 4);
    }
    turn<ggml::F32>((const char *) rows, row * 4, kLanes, width, nullptr, to);
}

// A vector of b that is multiplied at once. next: bytes to the row after p's. Instructions add the product of a pair's
// upper half first, so that is the earlier row.
template <int TYPE> Floats operand(const char * p, [[maybe_unused]] size_t next) {
    if constexpr (TYPE == kPairOfRows) return load((const float *) p);
#if defined(UAD_BF16)
    else if constexpr ((TYPE & kPaired) != 0) return as_float(interleaved(to_bf16(floats<TYPE - kPaired>(p + next), floats<TYPE - kPaired>(p))));
#endif
    else return floats<TYPE>(p);
}
template <int TYPE> Floats product(Floats a, Floats b, Floats sum) {
#if defined(UAD_BF16)
    if constexpr (TYPE >= kPaired) return dot_bf16(sum, as_ints(a), as_ints(b));
#endif
    return fma(a, b, sum);
}

// c = a b, or c += a b: R rows of a (n columns), N vectors of columns of b (n rows, or pairs of them, b_row in bytes). Each
// sum is one chain, from 0 to n.
template <int TYPE, bool adds, int R, int N>
void block(const float * a, size_t a_row, const char * b, size_t b_row, int64_t n, float * c, size_t c_row) {
    Floats s[R][N];
    for (int i = 0; i < R; i++)
        for (int j = 0; j < N; j++) s[i][j] = adds ? load(c + i * c_row + j * kLanes) : zero();
    for (int64_t k = 0; k < n; k++) {
        Floats v[N];
        for (int j = 0; j < N; j++) v[j] = operand<TYPE>(b + k * (TYPE & kPaired ? 2 : 1) * b_row + j * kLanes * bytes_of<TYPE>, b_row);
        for (int i = 0; i < R; i++) {
            const Floats x = set(a[i * a_row + k]);
            for (int j = 0; j < N; j++) s[i][j] = product<TYPE>(x, v[j], s[i][j]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int j = 0; j < N; j++) store(c + i * c_row + j * kLanes, s[i][j]);
}

constexpr int vectors(int n_rows) {  // as many as there are registers for, and divide a step
    int n = kStep / kLanes;
    while (n * n_rows > kSums) n /= 2;
    return n;
}

template <int TYPE, bool adds, int R = kBlock> void multiply(const float * a, size_t a_row, int64_t n_rows, const char * b, size_t b_row,
                                                             int64_t n, float * c, size_t c_row, int64_t width) {
    constexpr int N = vectors(R);
    for (; n_rows >= R; n_rows -= R, a += R * a_row, c += R * c_row) {
        int64_t j = 0;
        for (; j + N * kLanes <= width; j += N * kLanes) block<TYPE, adds, R, N>(a, a_row, b + j * bytes_of<TYPE>, b_row, n, c + j, c_row);
        for (; j < width; j += kLanes) block<TYPE, adds, R, 1>(a, a_row, b + j * bytes_of<TYPE>, b_row, n, c + j, c_row);
    }
    if constexpr (R > 1)
        if (n_rows) multiply<TYPE, adds, R - 1>(a, a_row, n_rows, b, b_row, n, c, c_row, width);
}

// A type of K and V.
struct CacheType {
    int number, n_values, n_bytes;  // of a block
    decltype(&widen<ggml::F32>) widen;
    decltype(&turn<ggml::F32>) turn;
    decltype(&multiply<ggml::F32, true>) add;  // without widening; null where that is not possible
};
template <int TYPE> constexpr CacheType plain() {
    return {TYPE, 1, bytes_of<TYPE>, widen<TYPE>, turn<TYPE>, multiply<kAtOnce == 2 ? TYPE + kPaired : TYPE, true>};
}
template <int TYPE> constexpr CacheType quantized() { return {TYPE, Format<TYPE>::COLUMNS, Format<TYPE>::FILE, widen<TYPE>, turn<TYPE>, nullptr}; }

inline const CacheType * cache_type(const ggml::Tensor * t) {
    static constexpr CacheType types[] = {
        plain<ggml::F32>(), plain<ggml::F16>(), plain<ggml::BF16>(), quantized<ggml::Q8_0>(), quantized<ggml::Q4_0>(),
        quantized<ggml::Q4_1>(), quantized<ggml::Q5_0>(), quantized<ggml::Q5_1>(), quantized<ggml::IQ4_NL>(),
    };
    for (const CacheType & type : types)
        if (type.number == t->type) return t->ne[0] % type.n_values == 0 && t->nb[0] == (size_t) type.n_bytes ? &type : nullptr;
    return nullptr;
}

// Of some cells, for each pair: the greatest score, the sum of e^(score - greatest), and with that the sum of V.
struct Sums {
    float *greatest = nullptr, *sum = nullptr, *v = nullptr;

    Sums of_pair(int64_t i, int64_t v_row) const { return {greatest + i, sum + i, v + i * v_row}; }
};

// Joins sums of chunks (or ranges) that come in rising order of their numbers; those without live cells do not come.
// The order of joins is that of a binary tree over all numbers, so it is the same whatever is missing, and wherever
// threads cut (at multiples of a power of two): of 0 1 2 5, 0 is joined with 1, that with 2, and all that with 5. Two
// neighbours are joined before `next` comes if the branch that holds both does not hold it: the bits in which their
// numbers differ are lower than those in which the second differs from `next`. 0 ^ 1 = 1 < 1 ^ 2 = 3.
struct Tree {
    int64_t n_pairs, v_row;
    int depth = 0;
    int64_t number[kLevels];
    Sums sums[kLevels] = {};

    Tree(int64_t pairs, int64_t row) : n_pairs(pairs), v_row(row) {}
    void make_room(int64_t next) {
        while (depth > 1 && (number[depth - 2] ^ number[depth - 1]) < (number[depth - 1] ^ next)) join();
    }
    void put(int64_t i, Sums s) { number[depth] = i, sums[depth++] = s; }
    void close() {
        while (depth > 1) join();
    }
    void join() {
        depth--;
        const Sums & a = sums[depth - 1], & b = sums[depth];
        for (int64_t i = 0; i < n_pairs; i++) {
            if (b.sum[i] == 0.0f) continue;
            const float greatest = std::max(a.greatest[i], b.greatest[i]);
            const float x = exp1(a.greatest[i] - greatest), y = exp1(b.greatest[i] - greatest);
            a.greatest[i] = greatest;
            a.sum[i] = a.sum[i] * x + b.sum[i] * y;
            for (float *p = a.v + i * v_row, *q = b.v + i * v_row, *end = p + v_row; p < end; p += kLanes, q += kLanes)
                store(p, fma(load(q), set(y), mul(load(p), set(x))));
        }
    }
};

// An operation: its sizes, how it is shared out, and where things are in the scratch.
struct AttentionPlan {
    const ggml::Tensor *op, *q, *k, *v, *mask, *sinks;
    const CacheType *k_type, *v_type;
    int64_t n_rows, n_heads, n_kv_heads, group, n_streams;  // group: heads that share a head of K and V
    int64_t head_size, v_width, v_row, n_cells, n_chunks, n_steps;  // v_width: floats of V, v_row: of a row of sums
    int64_t mask_heads, mask_streams, live_rows;
    int64_t n_tiles, tile, range, n_ranges, n_tasks;  // of a head of K and V; pairs of a tile; chunks of a range
    int64_t n_threads, sums_size, tree_slots;
    bool in_tiles;
    float scale, max_bias, cap;

    AttentionPlan(const ggml::Tensor * o, int n) : op(o), q(o->src[0]), k(o->src[1]), v(o->src[2]), mask(o->src[3]), sinks(o->src[4]) {
        k_type = cache_type(k), v_type = cache_type(v);
        n_threads = n;
#if defined(UAD_AMX)
        in_tiles = attention_in_tiles;
#else
        in_tiles = false;
#endif
        head_size = q->ne[0], n_rows = q->ne[1], n_heads = q->ne[2], n_streams = q->ne[3];
        n_kv_heads = k->ne[2], group = n_heads / n_kv_heads;
        n_cells = k->ne[1], n_chunks = (n_cells + kChunk - 1) / kChunk, n_steps = n_chunks * kSteps;
        v_width = up(v->ne[0], kLanes), v_row = v_width + 16;  // rows of 2^n floats would share few places of the cache
        mask_heads = mask ? mask->ne[2] : 1, mask_streams = mask ? mask->ne[3] : 1;
        live_rows = mask ? n_rows * mask_heads * mask_streams : 1;
        float params[3];
        memcpy(params, o->op_params, sizeof(params));
        cap = params[2], scale = cap != 0.0f ? params[0] / cap : params[0], max_bias = params[1];

        const int64_t pairs = n_rows * group;
        n_tiles = (pairs + kPairs - 1) / kPairs;
        tile = std::min(up(pairs, in_tiles ? kTilePairs : 1), up((pairs + n_tiles - 1) / n_tiles, in_tiles ? 2 * kTilePairs : kBlock));
        n_tiles = (pairs + tile - 1) / tile;
        const int64_t units = n_streams * n_kv_heads * n_tiles;  // 4 to 32 tasks a thread, if there are that many
        range = 1;
        while (range < n_chunks && units * ((n_chunks + range - 1) / range) > 32 * n_threads) range *= 2;
        if (units >= 4 * n_threads) range = std::max<int64_t>(1, n_chunks);
        n_ranges = std::max<int64_t>(1, (n_chunks + range - 1) / range);
        n_tasks = units * n_ranges;
        sums_size = up(2 * tile, 16) + tile * v_row;
        tree_slots = 2;
        for (int64_t i = 1; i < n_chunks; i *= 2) tree_slots++;
    }

    // The scratch: the next task, `live`, sums of all tasks if ranges have to be joined, and a part for each thread.
    size_t live_size() const { return up(live_rows * n_steps, 64); }
    size_t parts_size() const { return n_ranges > 1 ? up(n_tasks * sums_size * 4, 64) : 0; }
    size_t thread_size() const {
        return up(4 * (up(tile * q_row(), 16) + tile * kChunk + keys_size() + values_size() + rows_size() + (tree_slots + in_tiles) * sums_size), 64);
    }
    int64_t values_in_tiles() const { return up(head_size, kTileValues); }
    int64_t q_row() const { return in_tiles ? values_in_tiles() / 2 : head_size; }  // floats, or pairs in BF16
    int64_t keys_size() const { return up(head_size, kLanes) * kStep + (in_tiles ? values_in_tiles() * kStep : 0); }
    int64_t widened() const { return (in_tiles ? kSteps : 1) * kStep / kAtOnce; }  // rows of V that are widened before they are multiplied
    int64_t values_size() const { return (widened() + kAtOnce) * v_row; }
    int64_t rows_size() const { return kLanes * (up(head_size, kLanes) + 16); }
    size_t size() const { return 128 + live_size() + parts_size() + n_threads * thread_size(); }

    Sums sums_at(float * p) const { return {p, p + tile, p + up(2 * tile, 16)}; }
    float slope(int64_t head) const {  // ALiBi
        if (max_bias <= 0.0f) return 1.0f;
        int64_t n = 1;
        while (n * 2 <= n_heads) n *= 2;
        return head < n ? std::pow(std::pow(2.0f, -max_bias / n), (float) (head + 1))
                        : std::pow(std::pow(2.0f, -max_bias / 2.0f / n), (float) (2 * (head - n) + 1));
    }
    const uint16_t * mask_row(int64_t row, int64_t head, int64_t stream) const {
        const char * p = (const char *) mask->data + row * mask->nb[1] + head % mask_heads * mask->nb[2];
        return (const uint16_t *) (p + stream % mask_streams * mask->nb[3]);
    }
};

// What a thread does: its part of the scratch, and the tile it works on.
struct AttentionWorker {
    const AttentionPlan & plan;
    uint8_t * live;     // [stream and head of the mask][row][step]: does the row see one of its cells?
    float * parts;      // sums of tasks
    float *q, *scores, *keys, *values, *rows, *stack;
    int64_t stream, head, first, n_pairs;  // of the tile: a head of K and V, pairs from `first` on
    const uint8_t * pair_live[kPairs];     // of each pair, by step

    AttentionWorker(const AttentionPlan & p, void * scratch, int ith) : plan(p) {
        char * at = (char *) aligned(scratch) + 64;
        live = (uint8_t *) at, at += p.live_size();
        parts = (float *) at, at += p.parts_size();
        q = (float *) (at + ith * p.thread_size());
        scores = q + up(p.tile * p.q_row(), 16), keys = scores + p.tile * kChunk, values = keys + p.keys_size();
        rows = values + p.values_size(), stack = rows + p.rows_size();
    }

    int64_t row(int64_t pair) const { return (first + pair) / plan.group; }
    int64_t q_head(int64_t pair) const { return head * plan.group + (first + pair) % plan.group; }

    // A thread's share of `live`.
    void look_at_mask(int64_t ith) const {
        const int64_t n = plan.live_rows * plan.n_steps;
        for (int64_t i = n * ith / plan.n_threads; i < n * (ith + 1) / plan.n_threads; i++) {
            const int64_t r = i / plan.n_steps, cell = i % plan.n_steps * kStep, end = std::min(plan.n_cells, cell + kStep);
            bool any = !plan.mask && cell < end;
            if (plan.mask) {
                const uint16_t * m = plan.mask_row(r % plan.n_rows, r / plan.n_rows % plan.mask_heads, r / plan.n_rows / plan.mask_heads);
                uint16_t differs = 0;
                if (end == cell + kStep)
                    for (int64_t c = 0; c < kStep; c++) differs |= m[cell + c] ^ kMasked;
                else
                    for (int64_t c = cell; c < end; c++) differs |= m[c] ^ kMasked;
                any = differs;
            }
            live[i] = any;
        }
    }

    void take_tile(int64_t s, int64_t h, int64_t t) {
        stream = s, head = h, first = t * plan.tile;
        n_pairs = std::min(plan.tile, plan.n_rows * plan.group - first);
        for (int64_t i = 0; i < n_pairs; i++) {
            const char * from = (const char *) plan.q->data + row(i) * plan.q->nb[1] + q_head(i) * plan.q->nb[2] + s * plan.q->nb[3];
            memcpy(plan.in_tiles ? rows : q + i * plan.q_row(), from, plan.head_size * 4);
#if defined(UAD_AMX)
            if (plan.in_tiles) {
                const int64_t n = plan.values_in_tiles();
                std::fill(rows + plan.head_size, rows + n, 0.0f);
                for (int64_t j = 0; j < n; j += 2 * kLanes) istore(q + i * plan.q_row() + j / 2, to_bf16(load(rows + j), load(rows + j + kLanes)));
            }
#endif
            const int64_t of_mask = (s % plan.mask_streams * plan.mask_heads + q_head(i) % plan.mask_heads) * plan.n_rows + row(i);
            pair_live[i] = live + (plan.mask ? of_mask : 0) * plan.n_steps;
        }
    }

    // Whether some pair sees a step of the chunk; is_live: the same of each step.
    bool find_live(int64_t chunk, uint8_t * is_live) const {
        uint64_t all = 0;
        for (int64_t i = 0; i < n_pairs; i++) {
            uint64_t steps;
            memcpy(&steps, pair_live[i] + chunk * kSteps, kSteps);
            all |= steps;
        }
        memcpy(is_live, &all, kSteps);
        return all != 0;
    }

    // Pairs that see a step, by runs of neighbours.
    template <class Body> void runs(int64_t step, Body body) const {
        for (int64_t i = 0, end; i < n_pairs; i = end) {
            for (end = i; end < n_pairs && pair_live[end][step];) end++;
            if (end > i) body(i, end - i);
            else end++;
        }
    }

    // A step's cells on their way into the nearest cache: rows of a head are too short for the processor to guess them.
    void fetch(const ggml::Tensor * t, const CacheType & type, int64_t step) const {
        const char * p = (const char *) t->data + step * kStep * t->nb[1] + head * t->nb[2] + stream * t->nb[3];
        const int64_t n = std::min<int64_t>(kStep, plan.n_cells - step * kStep), bytes = t->ne[0] / type.n_values * type.n_bytes;
        for (int64_t i = 0; i < n; i++, p += t->nb[1])
            for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(p + b);
    }

    void turn_keys(int64_t step) const {
        const char * k = (const char *) plan.k->data + head * plan.k->nb[2] + stream * plan.k->nb[3];
        for (int64_t i = 0, cell = step * kStep; i < kStep; i += kLanes, cell += kLanes)
            plan.k_type->turn(k + cell * plan.k->nb[1], plan.k->nb[1], plan.n_cells - cell, plan.head_size, rows, keys + i);
    }

    const char * values_at(int64_t cell) const {
        return (const char *) plan.v->data + cell * plan.v->nb[1] + head * plan.v->nb[2] + stream * plan.v->nb[3];
    }

    // A step's values, kAtOnce cells in a row. p: of its cells, as `soften` leaves it; those of p = 0 become zeros.
    void widen_values(int64_t step, const void * p, float * to) const {
        constexpr int size = 4 / kAtOnce;                                      // bytes of a cell's p
        float * const scratch = values + plan.widened() * plan.v_row;  // two rows, until they are joined
        for (int64_t i = 0, cell = step * kStep; i < kStep; i++, cell++) {
            float * row = kAtOnce == 1 ? to + i * plan.v_row : scratch + i % 2 * plan.v_row;
            uint32_t bits_of_p = 1;
            if (p) memcpy(&bits_of_p, (const char *) p + (i ^ (kAtOnce - 1)) * size, size);
            if (cell < plan.n_cells && bits_of_p != 0) plan.v_type->widen(values_at(cell), plan.v->ne[0], row);
            else memset(row, 0, plan.v_row * 4);
            if (kAtOnce == 1 || i % 2 == 0) continue;
            float * joined = to + i / 2 * plan.v_row;
            for (int64_t j = 0; j < plan.v_row; j += kLanes)
                store(joined + j, operand<ggml::F32 + kPaired>((const char *) (scratch + j), plan.v_row * 4));
        }
    }

    // Scores of a pair become p = e^(score - greatest). In BF16 those of a step lie in the first half of its place, the
    // earlier one of two cells in the upper half of a pair.
    void soften(int64_t pair, int64_t chunk, Sums to) const {
        static const uint16_t none[kStep] = {};
        const Floats scale = set(plan.scale), cap = set(plan.cap), slope = set(plan.slope(q_head(pair)));
        const uint16_t * mask = plan.mask ? plan.mask_row(row(pair), q_head(pair), stream) : nullptr;
        const uint8_t * is_live = pair_live[pair] + chunk * kSteps;
        float * s = scores + pair * kChunk;
        Floats most = set(kNone), total = zero();
        for (int step = 0; step < kSteps; step++) {
            if (!is_live[step]) continue;
            const int64_t cell = chunk * kChunk + step * kStep, n = plan.n_cells - cell;
            const uint16_t * m = mask ? mask + cell : none;
            uint16_t last[kStep];
            if (n < kStep) {
                for (int i = 0; i < kStep; i++) last[i] = i < n ? m[i] : kMasked;
                m = last;
            }
            for (int i = 0; i < kStep; i += kLanes) {
                const Floats bias = halves(m + i);
                Floats x = keep_above(load(s + step * kStep + i), bias, kLeastMask);  // whatever K of a masked cell holds
                if (plan.cap != 0.0f) x = fma(cap, tanh(mul(x, scale)), mul(bias, slope));
                else x = fma(x, scale, mul(bias, slope));
                store(s + step * kStep + i, x);
                most = max(x, most);
            }
        }
        *to.greatest = greatest(most);
        for (int step = 0; step < kSteps; step++) {
            if (!is_live[step]) {
                if (plan.in_tiles) memset(s + step * kStep, 0, kStep * 2);  // another pair of its tile may see it
                continue;
            }
            Floats p[kStep / kLanes];
            for (int i = 0; i < kStep / kLanes; i++) p[i] = exp(sub(load(s + step * kStep + i * kLanes), set(*to.greatest)));
#if defined(UAD_BF16)
            const Ints rounded = to_bf16(p[0], p[1]);
            const uint16_t * in_order = (const uint16_t *) (s + step * kStep);
            istore(s + step * kStep, rounded);
            p[0] = bfloats(in_order), p[1] = bfloats(in_order + kLanes);
            istore(s + step * kStep, halves_swapped(rounded));
#else
            for (int i = 0; i < kStep / kLanes; i++) store(s + step * kStep + i * kLanes, p[i]);
#endif
            for (int i = 0; i < kStep / kLanes; i++) total = add(total, p[i]);
        }
        *to.sum = sum(total);
    }

    // p of a chunk's pairs. score(step): stores a live step's scores, once its keys are turned.
    template <class Score> void weigh_chunk(int64_t chunk, const uint8_t * is_live, Sums to, Score score) const {
        for (int64_t step = 0, at = chunk * kSteps; step < kSteps; step++, at++) {
            if (!is_live[step]) continue;
            fetch(plan.k, *plan.k_type, at + 1);
            fetch(plan.v, *plan.v_type, at);
            turn_keys(at);
            score(step);
        }
        for (int64_t i = 0; i < n_pairs; i++) soften(i, chunk, to.of_pair(i, plan.v_row));
    }

    bool is_finite(const float * p) const {
        Floats x = zero();
        for (int64_t i = 0; i < plan.v_width; i += kLanes) x = add(x, sub(load(p + i), load(p + i)));
        return sum(x) == 0.0f;
    }

#if defined(UAD_AMX)
    // c = a b, two tiles by two, or fewer where they are not there; each sum goes over n tiles in order. a(i), b(i): where
    // number i begins; those of further rows and columns follow.
    template <class A, class B>
    static void square(int64_t n, bool two_rows, bool two_columns, A a, int64_t a_row, B b, int64_t b_row, int64_t b_next, float * c, int64_t c_row) {
        zero_tile<0>(), zero_tile<1>(), zero_tile<2>(), zero_tile<3>();
        for (int64_t i = 0; i < n; i++) {
            load_tile<4>(a(i), 4 * a_row), load_tile<6>(b(i), 4 * b_row);
            multiply_tiles<0, 4, 6>();
            if (two_columns) load_tile<7>(b(i) + b_next, 4 * b_row), multiply_tiles<1, 4, 7>();
            if (!two_rows) continue;
            load_tile<5>(a(i) + kTilePairs * a_row, 4 * a_row);
            multiply_tiles<2, 5, 6>();
            if (two_columns) multiply_tiles<3, 5, 7>();
        }
        store_tile<0>(c, 4 * c_row);
        if (two_columns) store_tile<1>(c + 16, 4 * c_row);
        if (two_rows) store_tile<2>(c + kTilePairs * c_row, 4 * c_row);
        if (two_rows && two_columns) store_tile<3>(c + kTilePairs * c_row + 16, 4 * c_row);
    }

    // Turned keys as tiles of 32 values of 16 cells: of each 32 values those of both halves of the step, then what rounding
    // has taken from these.
    void split_keys() const {
        float * to = tiles_of_keys();
        for (int64_t j = 0; j < plan.values_in_tiles(); j += 2)
            for (int half = 0; half < 2; half++) {
                float * tile = to + (j / kTileValues * 4 + half) * 256 + j % kTileValues / 2 * 16;
                const float *first = keys + j * kStep + half * kLanes, *second = first + kStep;
                const bool is_there = j < up(plan.head_size, kLanes);
                const Floats x = is_there ? load(first) : zero(), y = is_there ? load(second) : zero();
                const Ints pair = interleaved(to_bf16(x, y));
                istore(tile, pair);
                istore(tile + 2 * 256, interleaved(to_bf16(sub(x, as_float(left32<16>(pair))), sub(y, as_float(iand(pair, iset((int32_t) 0xffff0000)))))));
            }
    }
    float * tiles_of_keys() const { return keys + up(plan.head_size, kLanes) * kStep; }

    void attend_chunk_in_tiles(int64_t chunk, const uint8_t * is_live, Sums to) const {
        weigh_chunk(chunk, is_live, to, [&](int64_t step) {
            split_keys();
            for (int64_t i = 0; i < n_pairs; i += 2 * kTilePairs)
                square(plan.values_in_tiles() / kTileValues * 2, i + kTilePairs < n_pairs, true, [&](int64_t t) { return q + i * plan.q_row() + t / 2 * 16; }, plan.q_row(),
                       [&](int64_t t) { return tiles_of_keys() + t * 2 * 256; }, 16, 256, scores + i * kChunk + step * kStep, kChunk);
        });
        for (int step = 0; step < kSteps; step++)
            if (is_live[step]) widen_values(chunk * kSteps + step, nullptr, values_of(step));
        for (int64_t i = 0; i < n_pairs; i += 2 * kTilePairs) add_in_tiles(i, i + kTilePairs < n_pairs, is_live, to.v + i * plan.v_row);
        for (int64_t i = 0; i < n_pairs; i++)
            if (!is_finite(to.v + i * plan.v_row)) repair_in_tiles(i, chunk, is_live, to.v + i * plan.v_row);
    }
    float * values_of(int step) const { return values + step * kStep / kAtOnce * plan.v_row; }

    void add_in_tiles(int64_t pair, bool two_rows, const uint8_t * is_live, float * to) const {
        int live[kSteps], n = 0;
        for (int step = 0; step < kSteps; step++)
            if (is_live[step]) live[n++] = step;
        for (int64_t j = 0; j < plan.v_width; j += 2 * kLanes)
            square(n, two_rows, j + kLanes < plan.v_width, [&](int64_t t) { return scores + pair * kChunk + live[t] * kStep; }, kChunk,
                   [&](int64_t t) { return values_of(live[t]) + j; }, plan.v_row, kLanes, to + j, plan.v_row);
    }

    // As `repair`. The tile is that of the pair; its other rows go elsewhere.
    void repair_in_tiles(int64_t pair, int64_t chunk, const uint8_t * is_live, float * to) const {
        for (int step = 0; step < kSteps; step++)
            if (is_live[step]) widen_values(chunk * kSteps + step, scores + pair * kChunk + step * kStep, values_of(step));
        float * sums = stack + plan.tree_slots * plan.sums_size;
        add_in_tiles(pair / kTilePairs * kTilePairs, false, is_live, sums);
        memcpy(to, sums + pair % kTilePairs * plan.v_row, plan.v_width * 4);
    }
#endif

    void attend_chunk(int64_t chunk, const uint8_t * is_live, Sums to) const {
        const int64_t step0 = chunk * kSteps;
        weigh_chunk(chunk, is_live, to, [&](int64_t step) {
            runs(step0 + step, [&](int64_t i, int64_t n) {
                float * to = scores + i * kChunk + step * kStep;
                multiply<ggml::F32, false>(q + i * plan.head_size, plan.head_size, n, (const char *) keys, kStep * 4, plan.head_size, to, kChunk, kStep);
            });
        });
        memset(to.v, 0, n_pairs * plan.v_row * 4);
        for (int step = 0; step < kSteps; step++) {
            if (!is_live[step]) continue;
            const int64_t cell = (step0 + step) * kStep;
            if (n_pairs <= kBlock && plan.v_type->add && plan.v->ne[0] % kLanes == 0 && cell + kStep <= plan.n_cells) {  // they are used once
                runs(step0 + step, [&](int64_t i, int64_t n) { add_values(plan.v_type->add, values_at(cell), plan.v->nb[1], i, n, step, to); });
            } else {
                widen_values(step0 + step, nullptr, values);
                runs(step0 + step, [&](int64_t i, int64_t n) { add_widened(i, n, step, to); });
            }
        }
        for (int64_t i = 0; i < n_pairs; i++)
            if (!is_finite(to.v + i * plan.v_row)) repair(i, chunk, to);
    }

    template <class Add> void add_values(Add add, const char * from, size_t stride, int64_t pair, int64_t n, int step, Sums to) const {
        add(scores + pair * kChunk + step * kStep, kChunk, n, from, stride, kStep / kAtOnce, to.v + pair * plan.v_row, plan.v_row, plan.v_width);
    }
    void add_widened(int64_t pair, int64_t n, int step, Sums to) const {
        add_values(multiply<kAtOnce == 2 ? kPairOfRows : (int) ggml::F32, true>, (const char *) values, plan.v_row * 4, pair, n, step, to);
    }

    // 0 times infinity is no zero: a pair's sums again, without what cells that it does not see hold (a neighbour's).
    void repair(int64_t pair, int64_t chunk, Sums to) const {
        memset(to.v + pair * plan.v_row, 0, plan.v_row * 4);
        for (int step = 0; step < kSteps; step++) {
            if (!pair_live[pair][chunk * kSteps + step]) continue;
            widen_values(chunk * kSteps + step, scores + pair * kChunk + step * kStep, values);
            add_widened(pair, 1, step, to);
        }
    }

    // Joins what chunks of the range give; false: no pair of the tile sees a cell of it.
    bool attend_range(int64_t range, Sums & result) const {
        Tree tree(n_pairs, plan.v_row);
        for (int64_t chunk = range * plan.range; chunk < std::min(plan.n_chunks, (range + 1) * plan.range); chunk++) {
            uint8_t is_live[kSteps];
            if (!find_live(chunk, is_live)) continue;
            tree.make_room(chunk);
            const Sums to = plan.sums_at(stack + tree.depth * plan.sums_size);
#if defined(UAD_AMX)
            if (plan.in_tiles) attend_chunk_in_tiles(chunk, is_live, to);
            else
#endif
                attend_chunk(chunk, is_live, to);
            tree.put(chunk, to);
        }
        tree.close();
        result = tree.sums[0];
        return tree.depth;
    }

    // Writes a pair's result: with the sink's share of the softmax, if there is one. No cell at all gives zeros.
    void finish(int64_t pair, Sums s) const {
        float factor = 0.0f;
        if (plan.sinks && s.v) {
            const float sink = ((const float *) plan.sinks->data)[q_head(pair)], most = std::max(*s.greatest, sink);
            const float x = exp1(*s.greatest - most);
            factor = x / (*s.sum * x + exp1(sink - most));
        } else if (s.v && *s.sum != 0.0f) {
            factor = 1.0f / *s.sum;
        }
        float * to = (float *) ((char *) plan.op->data + ((stream * plan.n_rows + row(pair)) * plan.n_heads + q_head(pair)) * plan.op->nb[1]);
        for (int64_t i = 0; i < plan.v->ne[0]; i++) to[i] = s.v ? s.v[i] * factor + 0.0f : 0.0f;  // + 0: no minus zero
    }

    void run(int64_t task) {
        // heads first: they share pages of memory; the last rows of a prompt have the most cells
        const int64_t h = task % plan.n_kv_heads, range = task / plan.n_kv_heads % plan.n_ranges;
        const int64_t unit = task / plan.n_kv_heads / plan.n_ranges;
        take_tile(unit / plan.n_tiles, h, plan.n_tiles - 1 - unit % plan.n_tiles);
        Sums sums;
        const bool any = attend_range(range, sums);
        if (plan.n_ranges == 1) {
            for (int64_t i = 0; i < n_pairs; i++) finish(i, any ? sums.of_pair(i, plan.v_row) : Sums{});
            return;
        }
        const Sums to = plan.sums_at(parts + task * plan.sums_size);
        if (any) memcpy(to.greatest, sums.greatest, plan.sums_size * 4);
        else std::fill(to.sum, to.sum + n_pairs, 0.0f);
    }

    // Joins the ranges of a pair: number i of all heads and tiles.
    void join(int64_t i) {
        const int64_t pair = i % plan.tile, h = i / plan.tile % plan.n_kv_heads, unit = i / plan.tile / plan.n_kv_heads;
        stream = unit / plan.n_tiles, head = h, first = (plan.n_tiles - 1 - unit % plan.n_tiles) * plan.tile;
        if (first + pair >= plan.n_rows * plan.group) return;
        Tree tree(1, plan.v_row);
        for (int64_t range = 0; range < plan.n_ranges; range++) {
            const int64_t task = (unit * plan.n_ranges + range) * plan.n_kv_heads + h;
            const Sums s = plan.sums_at(parts + task * plan.sums_size).of_pair(pair, plan.v_row);
            if (*s.sum == 0.0f) continue;
            tree.make_room(range);
            tree.put(range, s);
        }
        tree.close();
        finish(pair, tree.depth ? tree.sums[0] : Sums{});
    }
};

inline bool attends(const ggml::Tensor * op) {
    const ggml::Tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
    if (ggml::n_rows(q) == 0 || k->ne[2] == 0) return false;  // plans are made for empty passes, too
    if (op->type != ggml::F32 || q->type != ggml::F32 || q->nb[0] != 4 || op->nb[0] != 4) return false;
    if (!cache_type(k) || !cache_type(v) || k->ne[0] != q->ne[0] || k->ne[1] != v->ne[1]) return false;
    if (k->ne[2] != v->ne[2] || q->ne[2] % k->ne[2] || k->ne[3] != q->ne[3] || v->ne[3] != q->ne[3]) return false;
    if (mask && (mask->type != ggml::F16 || mask->nb[0] != 2 || mask->ne[0] < k->ne[1] || mask->ne[1] < q->ne[1])) return false;
    return !sinks || (sinks->type == ggml::F32 && sinks->nb[0] == 4 && sinks->ne[0] == q->ne[2]);
}

inline size_t attend_size(int n_threads, const ggml::Tensor * op) { return AttentionPlan(op, n_threads).size(); }

inline void attend(ggml::Compute * compute, ggml::Tensor * op) {
    const AttentionPlan plan(op, compute->nth);
    auto & next = *(NextTask *) aligned(compute->wdata);
    require(compute->wsize >= plan.size(), "there is too little scratch", op);
    AttentionWorker worker(plan, compute->wdata, compute->ith);
    if (compute->ith == 0) next.store(0, std::memory_order_relaxed);
    worker.look_at_mask(compute->ith);
    calls.barrier(compute->threadpool);
#if defined(UAD_AMX)
    if (plan.in_tiles) {
        TileShapes shapes;
        for (int tile = 0; tile < 8; tile++) shapes.rows[tile] = kTilePairs, shapes.bytes[tile] = 64;
        configure_tiles(shapes);
    }
#endif
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < plan.n_tasks;) worker.run(task);
#if defined(UAD_AMX)
    if (plan.in_tiles) release_tiles();
#endif
    if (plan.n_ranges == 1) return;
    calls.barrier(compute->threadpool);
    const int64_t n = plan.n_streams * plan.n_kv_heads * plan.n_tiles * plan.tile;
    for (int64_t i = n * compute->ith / plan.n_threads; i < n * (compute->ith + 1) / plan.n_threads; i++) worker.join(i);
}

}  // namespace attention
using attention::attend;
using attention::attend_size;
using attention::attends;
