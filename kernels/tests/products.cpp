// Products of every type without ggml: bits for any number of columns, place, thread and kind of processor.
//
// Prints a line for each type: its name's number and a hash of all results of random products. Kinds of processors that
// agree on quantized types print the same lines. Ends with 1 where a column has other bits beside others than alone,
// or where NaN and infinities are lost.
// `products N values` prints the first result of each of the N examples instead, to compare kinds that round otherwise.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

using namespace uad;

namespace {

struct Shape {
    int number, columns, bytes, scale, n_scales;  // of a block in a file; where its halves are
};
const Shape shapes[] = {
    {ggml::Q8_0, 32, 34, 0, 1}, {ggml::Q4_0, 32, 18, 0, 1}, {ggml::Q4_1, 32, 20, 0, 2}, {ggml::Q5_0, 32, 22, 0, 1}, {ggml::Q5_1, 32, 24, 0, 2},
    {ggml::Q2_K, 256, 84, 80, 2}, {ggml::Q3_K, 256, 110, 108, 1}, {ggml::Q4_K, 256, 144, 0, 2}, {ggml::Q5_K, 256, 176, 0, 2},
    {ggml::Q6_K, 256, 210, 208, 1}, {ggml::IQ4_NL, 32, 18, 0, 1}, {ggml::IQ4_XS, 256, 136, 0, 1}, {ggml::MXFP4, 32, 17, 0, 0},
    {ggml::NVFP4, 64, 36, 0, 0}, {ggml::Q1_0, 128, 18, 0, 1}, {ggml::Q2_0, 64, 18, 0, 1}, {ggml::TQ1_0, 256, 54, 52, 1}, {ggml::TQ2_0, 256, 66, 64, 1},
    {ggml::IQ1_S, 256, 50, 0, 1}, {ggml::IQ1_M, 256, 56, 0, 0}, {ggml::IQ2_XXS, 256, 66, 0, 1}, {ggml::IQ2_XS, 256, 74, 0, 1},
    {ggml::IQ2_S, 256, 82, 0, 1}, {ggml::IQ3_XXS, 256, 98, 0, 1}, {ggml::IQ3_S, 256, 110, 0, 1},
    {ggml::BF16, 1, 2, 0, 1}, {ggml::F16, 1, 2, 0, 1}, {ggml::F32, 1, 4, 0, 0},
};

// Bytes of random blocks: any bytes are values, but halves must be finite numbers of a usual size.
std::vector<uint8_t> blocks(const Shape & shape, int64_t n) {
    std::vector<uint8_t> all(n * shape.bytes);
    for (auto & byte : all) byte = (uint8_t) random_word();
    for (int64_t i = 0; i < n; i++) {
        uint8_t * p = all.data() + i * shape.bytes;
        for (int s = 0; s < shape.n_scales; s++) {
            uint16_t half;
            memcpy(&half, p + shape.scale + 2 * s, 2);
            half = shape.number == ggml::BF16 ? (half & 0x80ff) | 0x3f00 : (half & 0x83ff) | 0x2c00;
            memcpy(p + shape.scale + 2 * s, &half, 2);
        }
        if (shape.number == ggml::IQ1_M) p[53] = (p[53] & 15) | 0xc0, p[55] = (p[55] & 15) | 0x20;  // its half's high nibbles
        if (shape.number == ggml::MXFP4) p[0] = 110 + p[0] % 20;
        if (shape.number == ggml::F32) {
            const float x = random_float();
            memcpy(p, &x, 4);
        }
    }
    return all;
}

ggml::Tensor tensor(int type, const std::vector<int64_t> & ne, size_t nb0, size_t nb1, void * data) {
    ggml::Tensor t{};
    t.type = type, t.data = data;
    for (int i = 0; i < 4; i++) t.ne[i] = i < (int) ne.size() ? ne[i] : 1;
    t.nb[0] = nb0, t.nb[1] = nb1, t.nb[2] = nb1 * t.ne[1], t.nb[3] = t.nb[2] * t.ne[2];
    return t;
}

void run(const Kind & kind, ggml::Tensor & op, int n_threads) {
    std::vector<char> scratch(kind.product_size(n_threads, &op) + 64);
    on_threads(n_threads, scratch, [&](ggml::Compute * compute) { kind.product(compute, &op); });
}

struct Weights {
    std::unique_ptr<uint8_t, decltype(&free)> packed;  // aligned, and not a byte longer than the matrices
    ggml::Tensor t;
};
Weights repacked(const Kind & kind, const Shape & shape, const std::vector<uint8_t> & file, int64_t k, int64_t rows, int64_t n) {
    const size_t row = k / shape.columns * shape.bytes, bytes = kind.matrix_bytes(shape.number, k, rows);
    void * place = nullptr;
    if (posix_memalign(&place, 64, bytes * n)) abort();
    uint8_t * to = (uint8_t *) place;
    Weights w{{to, free}, {}};
    for (int64_t m = 0; m < n; m++) kind.repack(shape.number, k, rows, file.data() + m * row * rows, to + m * bytes, 0, (rows + kGroup - 1) / kGroup);
    w.t = tensor(shape.number, {k, rows, n}, shape.bytes, row, to);
    return w;
}

// MUL_MAT of columns `first` to `first + n`; strides of x: a column after the other, or (permuted) a row after the other.
std::vector<float> product(const Kind & kind, Weights & w, std::vector<float> & x, int64_t first, int64_t n, int n_threads, bool is_permuted) {
    const int64_t k = w.t.ne[0], rows = w.t.ne[1], n_all = (int64_t) x.size() / k;
    std::vector<float> permuted;
    ggml::Tensor in = tensor(ggml::F32, {k, n}, 4, k * 4, x.data() + first * k);
    if (is_permuted) {
        permuted.resize(x.size());
        for (int64_t j = 0; j < n_all; j++)
            for (int64_t i = 0; i < k; i++) permuted[i * n_all + j] = x[j * k + i];
        in = tensor(ggml::F32, {k, n}, n_all * 4, 4, permuted.data() + first);
    }
    std::vector<float> y(n * rows, -77.0f);
    ggml::Tensor op = tensor(ggml::F32, {rows, n}, 4, rows * 4, y.data());
    op.op = ops.mul_mat, op.src[0] = &w.t, op.src[1] = &in;
    run(kind, op, n_threads);
    return y;
}

// MUL_MAT_ID of columns of which each token has `n_each`, by two experts for each token.
std::vector<float> experts(const Kind & kind, Weights & w, std::vector<float> & x, std::vector<int32_t> & ids, int64_t n_each, int n_threads) {
    const int64_t k = w.t.ne[0], rows = w.t.ne[1], n = (int64_t) x.size() / k / n_each;
    ggml::Tensor in = tensor(ggml::F32, {k, n_each, n}, 4, k * 4, x.data()), chosen = tensor(ggml::I32, {2, n}, 4, 8, ids.data());
    std::vector<float> y(2 * n * rows);
    ggml::Tensor op = tensor(ggml::F32, {rows, 2, n}, 4, rows * 4, y.data());
    op.op = ops.mul_mat_id, op.src[0] = &w.t, op.src[1] = &in, op.src[2] = &chosen;
    if (n > 0) run(kind, op, n_threads);
    return y;
}

// Whether a product with this expert's number for the last column ends the process, before it writes anywhere.
bool is_refused(const Kind & kind, const Shape & shape, int32_t expert) {
    const int64_t k = 256, rows = 16, n = 3;
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        Weights three = repacked(kind, shape, blocks(shape, 3 * rows * (k / shape.columns)), k, rows, 3);
        std::vector<float> x(n * k, 1.0f);
        std::vector<int32_t> ids{0, 1, 1, 2, 2, expert};
        experts(kind, three, x, ids, 1, 2);
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

// Whether such a value shows in all results of its column, and in no other's.
bool shows(const Kind & kind, const Shape & shape, float value) {
    const int64_t k = 512, rows = 20, n = 3;
    Weights w = repacked(kind, shape, blocks(shape, rows * (k / shape.columns)), k, rows, 1);
    std::vector<float> x(n * k, 1.0f);
    x[k + random_below(k)] = value;
    const auto y = product(kind, w, x, 0, n, 1, false);
    for (int64_t i = 0; i < n * rows; i++)
        if (std::isfinite(y[i]) == (i / rows == 1)) return false;
    return true;
}

uint64_t hash(uint64_t h, const std::vector<float> & x) {
    for (float v : x) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        h = (h ^ bits) * 1099511628211ull;
    }
    return h;
}

bool check(const Kind & kind, const Shape & shape, uint64_t & h, std::vector<float> & firsts) {
    const int64_t usual = shape.columns == 256 ? 256 * (1 + random_below(3)) : shape.columns > 1 ? shape.columns * (1 + random_below(640 / shape.columns)) : 1 + random_below(300);
    const int64_t k = usual + (random_below(8) ? 0 : 6 * 256);  // sometimes long: matrix units take it in two panels
    const int64_t rows = 1 + random_below(70), n = 1 + random_below(40);
    auto file = blocks(shape, 3 * rows * (k / shape.columns));
    std::vector<float> x(n * k);
    for (auto & value : x) value = random_float() * (random_below(50) ? 1.0f : 30.0f);
    Weights w = repacked(kind, shape, {file.begin(), file.begin() + rows * (k / shape.columns) * shape.bytes}, k, rows, 1);
    const auto all = product(kind, w, x, 0, n, 1, false);
    h = hash(h, all);
    firsts.push_back(all[0]);
    for (int i = 0; i < 4; i++) {
        const int64_t first = random_below((int) n), some = 1 + random_below((int) (n - first));
        const auto part = product(kind, w, x, first, some, 1 + random_below(3), random_below(2));
        if (memcmp(part.data(), all.data() + first * rows, part.size() * 4)) return false;
    }
    // a view of the rows from the 16th on
    if (rows > kGroup) {
        Weights view = repacked(kind, shape, {file.begin(), file.begin() + rows * (k / shape.columns) * shape.bytes}, k, rows, 1);
        view.t.view_src = &w.t, view.t.view_offs = w.t.nb[1] * kGroup, view.t.ne[1] = rows - kGroup;
        view.t.nb[2] = view.t.nb[3] = view.t.nb[1] * view.t.ne[1];
        if (kind.group_offset(&view.t) != 1) return false;
        const auto part = product(kind, view, x, 0, n, 2, false);
        for (int64_t j = 0; j < n; j++)
            if (memcmp(part.data() + j * (rows - kGroup), all.data() + j * rows + kGroup, (rows - kGroup) * 4)) return false;
    }
    // experts: each token asks two of three; the same as the products of their matrices. Both multiply the token's one
    // column, or each has a column of its own
    Weights three = repacked(kind, shape, file, k, rows, 3);
    std::vector<int32_t> ids(2 * n);
    for (int64_t t = 0; t < n; t++) ids[2 * t] = random_below(3), ids[2 * t + 1] = (ids[2 * t] + 1 + random_below(2)) % 3;
    const int n_threads = 1 + random_below(3);
    const auto shared = experts(kind, three, x, ids, 1, n_threads), own = experts(kind, three, x, ids, 2, n_threads);
    for (int m = 0; m < 3; m++) {
        const auto begin = file.begin() + m * rows * (k / shape.columns) * shape.bytes;
        Weights alone = repacked(kind, shape, {begin, begin + rows * (k / shape.columns) * shape.bytes}, k, rows, 1);
        const auto wanted = product(kind, alone, x, 0, n, 1, false);
        for (int64_t i = 0; i < 2 * n; i++) {
            if (ids[i] != m) continue;
            if (memcmp(shared.data() + i * rows, wanted.data() + i / 2 * rows, rows * 4)) return false;
            if (i < n / 2 * 2 && memcmp(own.data() + i * rows, wanted.data() + i * rows, rows * 4)) return false;
        }
    }
    return true;
}

}  // namespace

int main(int n_words, char ** words) {
    const int n_times = n_words > 1 ? atoi(words[1]) : 20;
    calls.barrier = barrier;
    ops = {1, 2, 3};
    // any grids will do, with codes that are among their values
    for (uint32_t & entry : grids.iq1) entry = (uint32_t) random_word() & 0x11111111;
    for (uint32_t & entry : grids.iq2_xxs) entry = (uint32_t) random_word() & 0x11111111;
    for (uint32_t & entry : grids.iq2_xs) entry = (uint32_t) random_word() & 0x22222222;
    for (uint32_t & entry : grids.iq2_s) entry = (uint32_t) random_word() & 0x11111111;
    for (uint32_t & entry : grids.iq3_xxs) entry = (uint32_t) random_word() & 0x07070707;
    for (uint32_t & entry : grids.iq3_s) entry = (uint32_t) random_word() & 0x07070707;
    grids.double_them();
    bool is_good = true;
    for (const Shape & shape : shapes) {
        uint64_t h = 14695981039346656037ull;
        std::vector<float> firsts;
        state = 88172645463325252ull + shape.number;
        for (int i = 0; i < n_times; i++)
            if (!check(UAD_KIND, shape, h, firsts)) {
                printf("%d: other bits than alone, example %d\n", shape.number, i);
                is_good = false;
                break;
            }
        for (float value : {NAN, -NAN, INFINITY, -INFINITY})
            if (!shows(UAD_KIND, shape, value)) {
                printf("%d: %f is lost, or spreads\n", shape.number, value);
                is_good = false;
            }
        for (int32_t expert : {3, 1 << 30, -1, INT32_MIN})
            if (!is_refused(UAD_KIND, shape, expert)) {
                printf("%d: expert %d of 3 is computed\n", shape.number, expert);
                is_good = false;
            }
        printf("%d", shape.number);
        if (n_words > 2) for (float first : firsts) printf(" %.9g", first);
        else printf(" %016llx", (unsigned long long) h);
        printf("\n");
    }
    return is_good ? 0 : 1;
}
