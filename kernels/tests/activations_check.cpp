// Checks activations.h by itself: against a plain reference in double, and its bits against themselves.
//
//   g++ -std=c++17 -O2 -ffp-contract=off -mavx2 -mfma -mf16c -DUAD_AVX2 -I../src activations_check.cpp -o check -pthread
//   ./check [CASES]      a line with a hash of all results; exit status 1 if a check fails
//
// A sum has one order whatever the vectors are, so all kinds of processors print the same hash. AVX-512 by simde on any
// processor with AVX2: -DUAD_AVX512 -DUAD_EMULATED. NEON: aarch64-linux-gnu-g++ -static -DUAD_NEON.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "intrinsics.h"
#include "driver.h"

namespace uad {
namespace {
#include "planes.h"
#include "vec.h"
#include "attend.h"
#include "activations.h"
}  // namespace
}  // namespace uad

namespace {

struct Shape {
    int type, columns, bytes;
};
const Shape shapes[] = {{ggml::F16, 1, 2}, {ggml::F32, 1, 4}, {ggml::BF16, 1, 2}, {ggml::Q8_0, 32, 34}};

// A problem: a [n3][n2][rows][k] of a type, its rows `a_row` apart; b [n3][n2 * shared][n][k] in floats, the first `n_set` of each
// column, zeros behind; `crossed`: a column's matrices lie beside each other, as heads of queries do.
struct Problem {
    Shape shape;
    int64_t k, rows, n, n2, n3, shared, n_set;
    bool crossed;
    std::vector<uint8_t> a;
    std::vector<double> values;
    std::vector<float> b;

    int64_t a_row() const { return k / shape.columns * shape.bytes + shape.bytes; }
    int64_t place(int64_t i3, int64_t i2, int64_t i1) const {  // of a column of b, in columns
        const int64_t m2 = n2 * shared;
        return crossed ? (i3 * n + i1) * m2 + i2 : (i3 * m2 + i2) * n + i1;
    }

    void fill() {
        a.resize(n3 * n2 * rows * a_row());
        values.resize(n3 * n2 * rows * k);
        for (int64_t r = 0; r < n3 * n2 * rows; r++) {
            uint8_t * p = a.data() + r * a_row();
            for (int64_t i = 0; i < k; i++) values[r * k + i] = set(p, i);
        }
        b.resize(n3 * n2 * shared * n * k);
        for (size_t i = 0; i < b.size(); i++) b[i] = (int64_t) i % k < n_set ? random_float() : 0.0f;
    }

    double set(uint8_t * row, int64_t i) {  // a random value at i of a row
        if (shape.type == ggml::Q8_0) {
            uint8_t * block = row + i / 32 * 34;
            const uint16_t d = 0x2c00;  // 1 / 16
            memcpy(block, &d, 2);
            const int q = random_below(255) - 127;
            block[2 + i % 32] = (uint8_t) q;
            return q / 16.0;
        }
        if (shape.type == ggml::F16) {  // 1 to 2, or the negative
            const int sign = random_below(2);
            const uint16_t h = (uint16_t) (0x3c00 | random_below(1024) | sign << 15);
            memcpy(row + 2 * i, &h, 2);
            return (1 + (h & 1023) / 1024.0) * (h >> 15 ? -1 : 1);
        }
        const float x = random_float();
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (shape.type == ggml::BF16) {
            const uint16_t top = (uint16_t) (bits >> 16);
            memcpy(row + 2 * i, &top, 2);
            bits &= 0xffff0000;
        } else
            memcpy(row + 4 * i, &x, 4);
        float y;
        memcpy(&y, &bits, 4);
        return y;
    }

    // Columns `first` to `first + some` of each matrix, with only k_used elements; [n3][n2 * shared][some][rows].
    std::vector<float> run(int64_t first, int64_t some, int64_t k_used, int n_threads) {
        std::vector<float> y(n3 * n2 * shared * some * rows, -77.0f);
        const size_t column = (size_t) k * 4, m2 = (size_t) (n2 * shared);
        ggml::Buffer buffer{};
        ggml::Tensor ta{}, tb{}, op{};
        ta.type = shape.type, ta.data = a.data(), ta.buffer = &buffer, tb.data = b.data() + place(0, 0, first) * k, op.data = y.data();
        const int64_t of_a[] = {k_used, rows, n2, n3}, of_b[] = {k_used, some, (int64_t) m2, n3}, of_y[] = {rows, some, (int64_t) m2, n3};
        const size_t by_a[] = {(size_t) shape.bytes, (size_t) a_row(), (size_t) (a_row() * rows), (size_t) (a_row() * rows * n2)};
        const size_t by_b[] = {4, crossed ? column * m2 : column, crossed ? column : column * n, column * n * m2};
        const size_t by_y[] = {4, (size_t) rows * 4, (size_t) (rows * some * 4), (size_t) (rows * some) * m2 * 4};
        for (int i = 0; i < 4; i++) {
            ta.ne[i] = of_a[i], tb.ne[i] = of_b[i], op.ne[i] = of_y[i];
            ta.nb[i] = by_a[i], tb.nb[i] = by_b[i], op.nb[i] = by_y[i];
        }
        op.op = uad::ops.mul_mat, op.src[0] = &ta, op.src[1] = &tb;
        if (!uad::is_of_activations(&op)) return {};
        std::vector<char> scratch(uad::of_activations_size(n_threads, &op));
        on_threads(n_threads, scratch, [&](ggml::Compute * compute) { uad::of_activations(compute, &op); });
        return y;
    }

    double error(const std::vector<float> & y) const {  // the largest, in parts of the sum of sizes
        double worst = y.empty() ? 1 : 0;
        for (int64_t m = 0; m < n3 * n2 * shared && !y.empty(); m++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t r = 0; r < rows; r++) {
                    const int64_t i3 = m / (n2 * shared), i2 = m % (n2 * shared);
                    const double * x = values.data() + ((i3 * n2 + i2 / shared) * rows + r) * k;
                    const float * z = b.data() + place(i3, i2, j) * k;
                    double sum = 0, size = 1e-30;
                    for (int64_t i = 0; i < k; i++) sum += x[i] * z[i], size += std::fabs(x[i] * z[i]);
                    worst = std::max(worst, std::fabs(y[(m * n + j) * rows + r] - sum) / size);
                }
        return worst;
    }
};

uint64_t hash(uint64_t h, const std::vector<float> & x) {
    for (float v : x) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        h = (h ^ bits) * 1099511628211ull;
    }
    return h;
}

const char * check(const Shape & shape, uint64_t & h) {
    const int64_t k = shape.columns > 1 ? 32 * (1 + random_below(20)) : 1 + random_below(random_below(2) ? 70 : 600);
    Problem p{shape, k, 1 + random_below(random_below(2) ? 40 : 600), 1 + random_below(40), 1 + random_below(2), 1 + random_below(2),
              1 + random_below(3), std::max<int64_t>(1, k - random_below((int) k)), random_below(2) > 0, {}, {}, {}};
    p.fill();
    const auto all = p.run(0, p.n, p.k, 1);
    if (!(p.error(all) < 1e-5)) return "is off";
    h = hash(h, all);
    for (int i = 0; i < 4; i++) {
        const int64_t first = random_below((int) p.n), some = 1 + random_below((int) (p.n - first));
        const int64_t used = std::min(p.k, (p.n_set + shape.columns - 1) / shape.columns * shape.columns);  // without the zeros behind
        const auto part = p.run(first, some, i % 2 ? used : p.k, 1 + random_below(3));
        for (int64_t m = 0; m < p.n3 * p.n2 * p.shared; m++)
            if (memcmp(part.data() + m * some * p.rows, all.data() + (m * p.n + first) * p.rows, some * p.rows * 4)) return "has other bits than alone";
    }
    return nullptr;
}

}  // namespace

int main(int n_words, char ** words) {
    const int n_times = n_words > 1 ? atoi(words[1]) : 20;
    uad::calls.barrier = barrier;
    uad::ops = {1, 2, 3};
    uint64_t h = 14695981039346656037ull;
    for (const Shape & shape : shapes) {
        for (int i = 0; i < n_times; i++)
            if (const char * wrong = check(shape, h)) {
                printf("type %d, example %d: %s\n", shape.type, i, wrong);
                return 1;
            }
    }
    printf("%016llx, %d lanes\n", (unsigned long long) h, uad::kLanes);
    return 0;
}
