// Checks attend.h by itself: against a plain reference in double, and its bits against themselves; and times it.
//
//   g++ -std=c++17 -O2 -ffp-contract=off -mavx2 -mfma -mf16c -DUAD_AVX2 -I../src attend_check.cpp -o check -pthread
//   ./check                                    a line for each kind of check; exit status 1 if one fails
//   ./check time ROWS CELLS THREADS [HEADS KV_HEADS HEAD_SIZE TYPE]
//
// AVX-512 by simde on any processor with AVX2: -DUAD_AVX512 -DUAD_EMULATED. NEON: aarch64-linux-gnu-g++ -static -DUAD_NEON.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "intrinsics.h"
#include "kind.h"
#if defined(UAD_AMX)
#include "tiles.h"
#endif

namespace uad {
Ggml calls;
std::atomic<bool> attention_in_tiles{true};
namespace {
#include "planes.h"
#include "vec.h"
#include "attend.h"
}  // namespace
}  // namespace uad

using ggml::Tensor;
constexpr int BF16 = ggml::BF16, F16 = ggml::F16, F32 = ggml::F32;

struct Barrier {
    std::mutex lock;
    std::condition_variable all;
    int n, waiting = 0, round = 0;
    void wait() {
        std::unique_lock<std::mutex> held(lock);
        const int mine = round;
        if (++waiting == n) waiting = 0, round++, all.notify_all();
        else all.wait(held, [&] { return round != mine; });
    }
};

uint64_t state = 1;
double uniform() {  // 0 to 1
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double) (state >> 11) / (double) (1ull << 53);
}
// What is asked for millions of times is computed once for each of 65,536: an emulator takes a minute for it otherwise.
template <float of(int)> float remembered(uint16_t i) {
    static const std::vector<float> all = [] {
        std::vector<float> made;
        for (int j = 0; j < 65536; j++) made.push_back(of(j));
        return made;
    }();
    return all[i];
}
float new_normal(int) { return (float) (std::sqrt(-2 * std::log(uniform() + 1e-12)) * std::cos(6.283185307 * uniform())); }
float normal() { return remembered<new_normal>((uint16_t) (uniform() * 65536)); }

float half(int h) {
    const int e = h >> 10 & 31, m = h & 1023;
    const double x = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
    return (float) (h >> 15 ? -x : x);
}
float from_half(uint16_t h) { return remembered<half>(h); }
uint16_t to_half(float x) {  // to nearest, without subnormal results
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    x = std::fabs(x);
    if (std::isinf(x)) return sign | 0x7c00;
    if (x < 6.2e-5f) return sign;
    int e;
    const double m = std::frexp(x, &e);
    return (uint16_t) (sign + ((e + 13) << 10) + (int) std::lrint(m * 2048));
}

// A type of K or V: random rows, and what they stand for.
struct Format {
    int type, n_values, n_bytes;
    const char * name;
};
const Format formats[] = {
    {ggml::F16, 1, 2, "f16"}, {ggml::BF16, 1, 2, "bf16"}, {ggml::F32, 1, 4, "f32"}, {ggml::Q8_0, 32, 34, "q8_0"}, {ggml::Q4_0, 32, 18, "q4_0"},
    {ggml::Q4_1, 32, 20, "q4_1"}, {ggml::Q5_0, 32, 22, "q5_0"}, {ggml::Q5_1, 32, 24, "q5_1"}, {ggml::IQ4_NL, 32, 18, "iq4_nl"},
};
const Format & format(int type) {
    for (const Format & f : formats)
        if (f.type == type) return f;
    abort();
}
void fill(int type, uint8_t * p, int64_t n) {
    for (int64_t i = 0; i < n; i += format(type).n_values, p += format(type).n_bytes) {
        const float x = normal();
        uint32_t bits;
        memcpy(&bits, &x, 4);
        const uint16_t half = to_half(x), top = (uint16_t) (bits >> 16);
        if (type == F32) memcpy(p, &x, 4);
        else if (type == F16) memcpy(p, &half, 2);
        else if (type == BF16) memcpy(p, &top, 2);
        else {
            for (int b = 0; b < format(type).n_bytes; b++) p[b] = (uint8_t) (uniform() * 256);
            const float scale = type == ggml::Q8_0 || type == ggml::IQ4_NL ? 0.02f : type == ggml::Q4_0 || type == ggml::Q4_1 ? 0.2f : 0.1f;
            const uint16_t d = to_half(scale * (float) (0.5 + uniform())), m = to_half(-1.5f * (float) uniform());
            memcpy(p, &d, 2);
            if (type == ggml::Q4_1 || type == ggml::Q5_1) memcpy(p + 2, &m, 2);
        }
    }
}
double value(int type, const uint8_t * row, int64_t i) {
    const uint8_t * p = row + i / format(type).n_values * format(type).n_bytes;
    uint16_t word, second;
    memcpy(&word, p, 2), memcpy(&second, p + 2, 2);
    uint32_t bits = (uint32_t) word << 16;
    if (type == F32) memcpy(&bits, p, 4);
    float x;
    memcpy(&x, &bits, 4);
    if (type == F32 || type == BF16) return x;
    const double d = from_half(word), m = from_half(second);
    if (type == F16) return d;
    const int j = i % 32;
    if (type == ggml::Q8_0) return d * (int8_t) p[2 + j];
    auto four = [&](const uint8_t * q) { return j < 16 ? q[j] & 15 : q[j - 16] >> 4; };
    auto fifth = [&](const uint8_t * q) { return (q[j / 8] >> (j % 8) & 1) << 4; };
    static const int table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    switch (type) {
        case ggml::Q4_0: return d * (four(p + 2) - 8);
        case ggml::Q4_1: return d * four(p + 4) + m;
        case ggml::Q5_0: return d * ((four(p + 6) | fifth(p + 2)) - 16);
        case ggml::Q5_1: return d * (four(p + 8) | fifth(p + 4)) + m;
        default: return d * table[four(p + 2)];
    }
}

enum Mask { Absent, Causal, Window, Slots, Random, Empty };  // Empty: every third row sees no cell

struct Case {
    int rows = 3, heads = 4, kv_heads = 2, d = 64, dv = 64, k_type = F16, v_type = F16, cells = 300, streams = 1;
    Mask mask = Causal;
    int mask_heads = 1, mask_streams = 1;
    float max_bias = 0, cap = 0;
    bool sinks = false, v_in_k = false;
    std::string name() const {
        char text[200];
        snprintf(text, sizeof(text), "rows %d heads %d/%d size %d/%d %s/%s cells %d streams %d mask %d (%d, %d) alibi %g cap %g sinks %d view %d",
                 rows, heads, kv_heads, d, dv, format(k_type).name, format(v_type).name, cells, streams, mask, mask_heads, mask_streams, max_bias, cap,
                 sinks, v_in_k);
        return text;
    }
};

struct Problem {
    Case c;
    int capacity;  // cells that K and V have room for
    std::vector<float> q, sinks;
    std::vector<uint8_t> k, v;
    std::vector<uint16_t> mask;  // [stream][head][row][cell of capacity]
    float scale;

    size_t k_row() const { return (size_t) c.d / format(c.k_type).n_values * format(c.k_type).n_bytes; }
    size_t v_row() const { return c.v_in_k ? k_row() : (size_t) c.dv / format(c.v_type).n_values * format(c.v_type).n_bytes; }

    explicit Problem(const Case & the_case, int spare = 300) : c(the_case), capacity(c.cells + spare), scale(1.0f / std::sqrt((float) c.d)) {
        state = 12345;
        for (int64_t i = 0; i < (int64_t) c.d * c.heads * c.rows * c.streams; i++) q.push_back(normal() * 1.5f);
        for (int i = 0; i < c.heads; i++) sinks.push_back(normal());
        const size_t n = (size_t) capacity * c.kv_heads * c.streams;
        k.resize(n * k_row()), v.resize(c.v_in_k ? 0 : n * v_row());
        for (size_t i = 0; i < n; i++) {
            fill(c.k_type, &k[i * k_row()], c.d);
            if (!c.v_in_k) fill(c.v_type, &v[i * v_row()], c.dv);
        }
        for (int s = 0; s < c.mask_streams; s++)
            for (int h = 0; h < c.mask_heads; h++)
                for (int r = 0; r < c.rows; r++)
                    for (int cell = 0; cell < capacity; cell++) {
                        const int at = c.cells - c.rows + r - 3 * s;  // the row's own cell
                        bool sees = cell <= at;
                        if (c.mask == Window) sees = sees && cell > at - 40;
                        if (c.mask == Slots) sees = sees && cell % 3 == r % 3;
                        if (c.mask == Random) sees = cell < c.cells && uniform() < 0.5;
                        if (c.mask == Empty) sees = sees && r % 3 != 1;
                        const float x = c.max_bias > 0 ? (float) (cell - at) / 16 : c.mask == Random ? -(float) uniform() : 0.0f;
                        mask.push_back(sees ? to_half(x) : 0xfc00);
                    }
    }
    uint8_t * k_at(int s, int h, int cell) { return &k[(((size_t) s * capacity + cell) * c.kv_heads + h) * k_row()]; }
    uint8_t * v_at(int s, int h, int cell) {
        return c.v_in_k ? k_at(s, h, cell) : &v[(((size_t) s * capacity + cell) * c.kv_heads + h) * v_row()];
    }
    uint16_t mask_at(int s, int h, int r, int cell) const {
        return mask[(((size_t) (s % c.mask_streams) * c.mask_heads + h % c.mask_heads) * c.rows + r) * capacity + cell];
    }
};

// Rows first to first + n - 1 of streams s0 to s0 + ns - 1, over `cells` cells: [stream][row][head][dv]
std::vector<float> run(Problem & p, int n_threads, int first, int n, int cells, int s0, int ns, double * seconds = nullptr, int times = 1) {
    const Case & c = p.c;
    std::vector<uint16_t> mask;
    const bool one = c.mask_streams == 1;
    const int mask_s = one ? 1 : ns;
    if (c.mask != Absent)
        for (int s = 0; s < mask_s; s++)
            for (int h = 0; h < c.mask_heads; h++)
                for (int r = first; r < first + n; r++)
                    for (int cell = 0; cell < cells; cell++) mask.push_back(p.mask_at(one ? 0 : s0 + s, h, r, cell));
    std::vector<float> out((size_t) c.dv * c.heads * n * ns, -77.0f);
    Tensor q{}, k{}, v{}, m{}, sinks{}, op{};
    auto shape = [](Tensor & t, int type, int64_t a, int64_t b, int64_t x, int64_t y, size_t s0, size_t s1, size_t s2, size_t s3, void * data) {
        t.type = type, t.data = data;
        t.ne[0] = a, t.ne[1] = b, t.ne[2] = x, t.ne[3] = y;
        t.nb[0] = s0, t.nb[1] = s1, t.nb[2] = s2, t.nb[3] = s3;
    };
    const size_t qd = c.d * 4;
    shape(q, F32, c.d, n, c.heads, ns, 4, qd * c.heads, qd, qd * c.heads * c.rows,
          p.q.data() + ((size_t) s0 * c.rows + first) * c.heads * c.d);
    shape(k, c.k_type, c.d, cells, c.kv_heads, ns, format(c.k_type).n_bytes, p.k_row() * c.kv_heads, p.k_row(),
          p.k_row() * c.kv_heads * p.capacity, p.k_at(s0, 0, 0));
    shape(v, c.v_in_k ? c.k_type : c.v_type, c.dv, cells, c.kv_heads, ns, format(c.v_in_k ? c.k_type : c.v_type).n_bytes, p.v_row() * c.kv_heads,
          p.v_row(), p.v_row() * c.kv_heads * p.capacity, p.v_at(s0, 0, 0));
    const size_t mr = (size_t) cells * 2;
    shape(m, F16, cells, n, c.mask_heads, mask_s, 2, mr, mr * n, mr * n * c.mask_heads, mask.data());
    shape(sinks, F32, c.heads, 1, 1, 1, 4, qd, qd, qd, p.sinks.data());
    const size_t od = c.dv * 4;
    shape(op, F32, c.dv, c.heads, n, ns, 4, od, od * c.heads, od * c.heads * n, out.data());
    const float params[3] = {p.scale, c.max_bias, c.cap};
    memcpy(op.op_params, params, sizeof(params));
    op.src[0] = &q, op.src[1] = &k, op.src[2] = &v;
    op.src[3] = c.mask != Absent ? &m : nullptr, op.src[4] = c.sinks ? &sinks : nullptr;
    if (!uad::attends(&op)) {
        printf("not taken: %s\n", c.name().c_str());
        exit(1);
    }
    const size_t size = uad::attend_size(n_threads, &op);
    std::vector<uint8_t> scratch(size + 64, 0xff);  // NaN wherever nothing was written
    Barrier barrier;
    barrier.n = n_threads;
    uad::calls.barrier = [](void * b) { ((Barrier *) b)->wait(); };
    auto work = [&](int i) {
        for (int t = 0; t < times; t++) {
            ggml::Compute compute{i, n_threads, size, scratch.data(), &barrier, false};
            uad::attend(&compute, &op);
            barrier.wait();
        }
    };
    std::vector<std::thread> threads;
    const auto begin = std::chrono::steady_clock::now();
    const clock_t cpu = clock();
    for (int i = 1; i < n_threads; i++) threads.emplace_back(work, i);
    work(0);
    for (auto & t : threads) t.join();
    if (seconds) {
        seconds[0] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
        seconds[1] = (double) (clock() - cpu) / CLOCKS_PER_SEC / times;
    }
    for (size_t i = size; i < size + 64; i++)
        if (scratch[i] != 0xff) printf("wrote beyond its scratch: %s\n", c.name().c_str()), exit(1);
    return out;
}

// What K or V of a case stand for: [stream][head][cell][n]. Decoded once: each row and head of Q needs all of it.
std::vector<double> decoded(Problem & p, bool is_k) {
    const Case & c = p.c;
    const int type = is_k || c.v_in_k ? c.k_type : c.v_type, n = is_k ? c.d : c.dv;
    std::vector<double> out;
    out.reserve((size_t) c.streams * c.kv_heads * c.cells * n);
    for (int s = 0; s < c.streams; s++)
        for (int h = 0; h < c.kv_heads; h++)
            for (int cell = 0; cell < c.cells; cell++)
                for (int i = 0; i < n; i++) out.push_back(value(type, is_k ? p.k_at(s, h, cell) : p.v_at(s, h, cell), i));
    return out;
}

std::vector<double> expected(Problem & p) {
    const Case & c = p.c;
    const std::vector<double> all_k = decoded(p, true), all_v = decoded(p, false);
    std::vector<double> out;
    int n2 = 1;
    while (n2 * 2 <= c.heads) n2 *= 2;
    for (int s = 0; s < c.streams; s++)
        for (int r = 0; r < c.rows; r++)
            for (int h = 0; h < c.heads; h++) {
                const int kh = h / (c.heads / c.kv_heads);
                const double slope = c.max_bias <= 0 ? 1 : h < n2 ? std::pow(2.0, -c.max_bias / n2 * (h + 1)) : std::pow(2.0, -c.max_bias / 2 / n2 * (2 * (h - n2) + 1));
                const double * k = &all_k[(size_t) (s * c.kv_heads + kh) * c.cells * c.d], * v = &all_v[(size_t) (s * c.kv_heads + kh) * c.cells * c.dv];
                const float * q = &p.q[(((size_t) s * c.rows + r) * c.heads + h) * c.d];
                std::vector<double> x(c.cells), o(c.dv);
                double most = c.sinks ? p.sinks[h] : -INFINITY, sum = 0;
                for (int cell = 0; cell < c.cells; cell++) {
                    double dot = 0;
                    for (int i = 0; i < c.d; i++) dot += (double) q[i] * k[(size_t) cell * c.d + i];
                    dot *= p.scale;
                    if (c.cap != 0) dot = c.cap * std::tanh(dot / c.cap);
                    if (c.mask != Absent) dot += slope * from_half(p.mask_at(s, h, r, cell));
                    x[cell] = dot, most = std::max(most, dot);
                }
                if (c.sinks) sum = std::exp(p.sinks[h] - most);
                for (int cell = 0; cell < c.cells && most > -INFINITY; cell++) {
                    const double w = std::exp(x[cell] - most);
                    sum += w;
                    if (w > 0)
                        for (int i = 0; i < c.dv; i++) o[i] += w * v[(size_t) cell * c.dv + i];
                }
                for (double y : o) out.push_back(sum > 0 ? y / sum : 0);
            }
    return out;
}

int n_checks = 0, n_failed = 0;
void check(bool good, const char * what, const Case & c) {
    n_checks++;
    if (!good) n_failed++, printf("FAILED %s: %s\n", what, c.name().c_str());
}
#if defined(UAD_AMX)
constexpr bool kHasTiles = true;
#else
constexpr bool kHasTiles = false;
#endif
double worst = 0;
bool is_close(const std::vector<float> & a, const std::vector<double> & b) {
    double most = 0, off = 0;
    for (size_t i = 0; i < b.size(); i++) {
        if (!std::isfinite(a[i])) return false;
        most = std::max(most, std::fabs(b[i])), off = std::max(off, std::fabs(a[i] - b[i]));
    }
    worst = std::max(worst, most > 0 ? off / most : off);
    return off <= (kHasTiles ? 8e-3 : uad::attention::kAtOnce == 2 ? 5e-3 : 1e-5) * most;  // BF16 has 8 bits
}
bool same(const std::vector<float> & a, const float * b) { return !memcmp(a.data(), b, a.size() * 4); }

// NaN into cells of K and V that a row does not see: all of them, or those that another row sees.
void poison(Problem & p, int row, bool has_other) {
    for (int s = 0; s < p.c.streams; s++)
        for (int cell = 0; cell < p.capacity; cell++) {
            bool hidden = true, seen = false;
            for (int h = 0; h < p.c.mask_heads; h++) {
                for (int r = 0; r < p.c.rows; r++) seen |= p.mask_at(s, h, r, cell) != 0xfc00;
                for (int r = 0; r < p.c.rows; r++) hidden &= (row >= 0 && r != row) || p.mask_at(s, h, r, cell) == 0xfc00;
            }
            if (!hidden || seen != has_other) continue;
            for (int h = 0; h < p.c.kv_heads; h++) {
                memset(p.k_at(s, h, cell), 0xff, p.k_row());
                if (!p.c.v_in_k) memset(p.v_at(s, h, cell), 0xff, p.v_row());
            }
        }
}

// The same cells, n places further on; those before are seen by no row.
Problem moved(const Problem & from, int n) {
    Problem p = from;
    for (int s = 0; s < p.c.streams; s++)
        for (int cell = p.capacity - 1; cell >= n; cell--)
            for (int h = 0; h < p.c.kv_heads; h++) {
                memcpy(p.k_at(s, h, cell), p.k_at(s, h, cell - n), p.k_row());
                if (!p.c.v_in_k) memcpy(p.v_at(s, h, cell), p.v_at(s, h, cell - n), p.v_row());
            }
    for (size_t row = 0; row < p.mask.size(); row += p.capacity) {
        std::copy_backward(&p.mask[row], &p.mask[row] + p.capacity - n, &p.mask[row] + p.capacity);
        std::fill_n(&p.mask[row], n, 0xfc00);
    }
    return p;
}

// Operations whose K and V end with their last cell: a sanitizer sees what is read beyond it.
void touch_all(const Case & c) {
    Problem p(c, 0);
    run(p, 2, 0, c.rows, c.cells, 0, c.streams);
    run(p, 1, c.rows - 1, 1, c.cells, c.streams - 1, 1);
}

void check_case(const Case & c) {
    touch_all(c);
    Problem p(c);
    const auto whole = run(p, 1, 0, c.rows, c.cells, 0, c.streams);
    check(is_close(whole, expected(p)), "value", c);
    const size_t of_row = (size_t) c.dv * c.heads, of_stream = of_row * c.rows;
    for (int threads = 2; threads <= 3; threads++) check(same(whole, run(p, threads, 0, c.rows, c.cells, 0, c.streams).data()), "threads", c);
    for (int r = 0; r < c.rows; r += c.rows > 8 ? 7 : 1)
        for (int s = 0; s < c.streams; s++)
            check(same(run(p, 1 + r % 3, r, 1, c.cells, s, 1), &whole[s * of_stream + r * of_row]), "row alone", c);
    if (c.rows > 2) check(same(run(p, 2, 1, 2, c.cells, 0, 1), &whole[of_row]), "two rows", c);
    if (c.mask == Absent) return;
    for (int cells : {c.cells + 1, c.cells + 37, c.cells + 300})
        check(same(whole, run(p, 2, 0, c.rows, cells, 0, c.streams).data()), "empty cells after", c);
    uad::attention_in_tiles = false;
    const auto on_vectors = run(p, 1, 0, c.rows, c.cells, 0, c.streams);
    check(is_close(on_vectors, expected(p)), "value on vectors", c);
    for (int n : {1, 6, 32}) {
        if (c.cells + n > uad::attention::kChunk) continue;
        Problem other = moved(p, n);
        check(same(on_vectors, run(other, 2, 0, c.rows, c.cells + n, 0, c.streams).data()), "cells elsewhere in their chunk", c);
    }
    uad::attention_in_tiles = true;
    poison(p, -1, false);
    check(same(whole, run(p, 2, 0, c.rows, c.cells + 300, 0, c.streams).data()), "NaN in cells that no row sees", c);
    poison(p, 0, true);
    const auto with_other = run(p, 2, 0, c.rows, c.cells, 0, c.streams);
    for (int s = 0; s < c.streams; s++)
        check(!memcmp(&whole[s * of_stream], &with_other[s * of_stream], of_row * 4), "NaN in cells that other rows see", c);
}

// A row's NaN is shown, not hidden.
void check_nan(Case c) {
    Problem p(c);
    p.q[0] = NAN;
    auto out = run(p, 1, 0, c.rows, c.cells, 0, 1);
    check(std::isnan(out[0]) && std::isfinite(out[(size_t) c.dv]), "NaN in q", c);
    p = Problem(c);
    memset(p.k_at(0, 0, 5), 0xff, p.k_row());
    check(std::isnan(run(p, 1, 0, c.rows, c.cells, 0, 1)[0]), "NaN in K", c);
    p = Problem(c);
    memset(p.v_at(0, 0, 5), 0xff, p.v_row());
    check(std::isnan(run(p, 1, 0, c.rows, c.cells, 0, 1)[0]), "NaN in V", c);
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const Format & f : formats)
        for (const Format & g : formats) {
            Case c;
            c.k_type = f.type, c.v_type = g.type, c.cells = 70;
            if (f.type == g.type || f.type == F16 || g.type == F16) all.push_back(c);
        }
    for (int d : {64, 80, 96, 112, 128, 192, 256, 512, 36, 7}) {
        Case c;
        c.d = c.dv = d;
        all.push_back(c);
    }
    for (int n : {1, 2, 5, 6, 7, 13, 40}) {
        for (Mask mask : {Absent, Causal, Window, Slots, Random, Empty}) {
            Case c;
            c.rows = n, c.mask = mask, c.heads = 6, c.cells = 601 + n, c.d = c.dv = 32, c.sinks = n == 6, c.max_bias = n == 5 && mask ? 8.0f : 0.0f;
            c.cap = n == 7 ? 2.0f : 0.0f;
            all.push_back(c);
        }
    }
    Case mla;  // V lies in K
    mla.d = 576, mla.dv = 512, mla.kv_heads = 1, mla.heads = 16, mla.v_in_k = true, mla.cells = 290, mla.rows = 9;
    all.push_back(mla);
    mla.k_type = ggml::Q8_0, mla.rows = 2;
    all.push_back(mla);
    Case wide;
    wide.d = 192, wide.dv = 128, wide.kv_heads = 4, wide.k_type = BF16;
    all.push_back(wide);
    Case streams;
    streams.streams = 3, streams.mask_streams = 3, streams.rows = 4, streams.cells = 1100, streams.d = streams.dv = 32;
    all.push_back(streams);
    streams.mask_streams = 1, streams.mask = Random;
    all.push_back(streams);
    streams.mask_streams = 3, streams.mask_heads = 4;
    all.push_back(streams);
    streams.mask_heads = 2, streams.sinks = true, streams.max_bias = 4, streams.heads = 12, streams.kv_heads = 4;
    all.push_back(streams);
    Case few;
    for (int cells : {3, 31, 32, 33, 255, 256, 257, 3000}) {
        few.cells = cells, few.rows = 3, few.heads = 2, few.kv_heads = cells % 2 ? 2 : 1, few.d = few.dv = 32;
        all.push_back(few);
    }
    Case cut;  // 1, 2 and 3 threads take ranges of all, 2 and 1 chunks
    cut.rows = 2, cut.heads = cut.kv_heads = 6, cut.d = cut.dv = 16, cut.cells = 3000;
    for (Mask mask : {Absent, Causal, Window}) {
        cut.mask = mask;
        all.push_back(cut);
    }
    Case empty_sinks;
    empty_sinks.mask = Empty, empty_sinks.sinks = true;
    all.push_back(empty_sinks);
    return all;
}

int main(int argc, char ** argv) {
    if (argc > 1 && std::string(argv[1]) == "time") {
        auto number = [&](int i, int or_else) { return argc > i ? atoi(argv[i]) : or_else; };
        Case c;
        c.rows = number(2, 1), c.cells = number(3, 2048), c.heads = number(5, 12), c.kv_heads = number(6, 2), c.d = c.dv = number(7, 128);
        c.k_type = c.v_type = number(8, F16);
        Problem p(c, 0);
        double s[2], best = 1e9, cpu = 1e9;
        const double flop = [&] {
            double n = 0;
            for (int r = 0; r < c.rows; r++) n += (c.cells - c.rows + r + 1) * 4.0 * c.d * c.heads;
            return n;
        }();
        const int times = (int) std::max(1.0, 2e9 / flop);
        for (int i = 0; i < 9; i++) {
            run(p, number(4, 2), 0, c.rows, c.cells, 0, 1, s, times);
            best = std::min(best, s[0]), cpu = std::min(cpu, s[1]);
        }
        const double bytes = (double) (p.k_row() + p.v_row()) * c.kv_heads * c.cells;
        printf("rows %d cells %d: %.1f us, %.1f GB/s of K and V, %.1f GFLOP/s; a second of a core: %.1f GB, %.1f GFLOP\n", c.rows, c.cells,
               best * 1e6, bytes / best / 1e9, flop / best / 1e9, bytes / cpu / 1e9, flop / cpu / 1e9);
        return 0;
    }
    for (const Case & c : cases()) check_case(c);
    Case c;
    check_nan(c);
    c.rows = 20, c.cells = 700;
    check_nan(c);
    printf("%d checks, %d failed, largest error %.1e of the largest value, %d lanes\n", n_checks, n_failed, worst, uad::kLanes);
    return n_failed > 0;
}
