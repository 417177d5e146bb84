// The emulated product of tiles in BF16 beside Intel's description of it, number by number.
//
// Ends with 1 where they differ: shapes of any size, sums that are there already, denormal numbers (which count as zero,
// also as a result), cancellation, NaN and infinities.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "../src/intrinsics.h"

namespace {

uint64_t state = 88172645463325252ull;
uint64_t random_word() { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }

float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float fused(float a, float b, float c) { return flushed(std::fma(flushed(a), flushed(b), flushed(c))); }
float added(float a, float b) { return flushed(flushed(a) + flushed(b)); }

// Mostly numbers near one; some tiny, some denormal, and rarely those that are none.
uint16_t number() {
    const uint64_t word = random_word();
    const int exponent = word % 7 ? 120 + (int) (word >> 8 & 15) : word % 5 ? (int) (word >> 8 & 127) : word % 11 ? 0 : (int) (word >> 8 & 255);
    return (uint16_t) ((word >> 40 & 0x807f) | exponent << 7);
}

bool check() {
    struct {
        uint8_t palette = 1, start = 0, reserved[14] = {};
        uint16_t bytes[16] = {};
        uint8_t rows[16] = {};
    } shapes;
    const int m = 1 + random_word() % 16, n = 1 + random_word() % 16, k = 1 + random_word() % 16;
    shapes.rows[0] = (uint8_t) m, shapes.bytes[0] = (uint16_t) (4 * n);
    shapes.rows[1] = (uint8_t) m, shapes.bytes[1] = (uint16_t) (4 * k);
    shapes.rows[2] = (uint8_t) k, shapes.bytes[2] = (uint16_t) (4 * n);
    uint16_t a[16][32], b[16][32];
    float c[16][16], out[16][16];
    for (auto & row : a) for (auto & x : row) x = number();
    for (auto & row : b) for (auto & x : row) x = number();
    for (auto & row : c) for (auto & x : row) x = of_bits((uint32_t) number() << 16 | (random_word() & 0xffff));
    amx_emulated::configure(&shapes);
    amx_emulated::load(0, c, 64), amx_emulated::load(1, a, 64), amx_emulated::load(2, b, 64);
    amx_emulated::multiply_bf16(0, 1, 2);
    amx_emulated::store(0, out, 64);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sums[2] = {0, 0};
            for (int p = 0; p < k; p++)
                for (int h = 0; h < 2; h++) sums[h] = fused(of_bits((uint32_t) a[i][2 * p + h] << 16), of_bits((uint32_t) b[p][2 * j + h] << 16), sums[h]);
            const float wanted = added(c[i][j], added(sums[0], sums[1]));
            if (memcmp(&wanted, &out[i][j], 4) && !(std::isnan(wanted) && std::isnan(out[i][j]))) {
                printf("%d x %d x %d: row %d, column %d: %a, wanted %a\n", m, n, k, i, j, out[i][j], wanted);
                return false;
            }
        }
    return true;
}

}  // namespace

int main() {
    for (int i = 0; i < 5000; i++)
        if (!check()) return 1;
    return 0;
}
