// Reading of grids, with functions that stand for ggml's. Ends with 1, and a line, where a table or its use is wrong.
#include <cstdio>

#include "../src/kind.h"

using namespace uad;

namespace {

int level(int index, int i) { return (index >> (2 * i % 8) ^ index >> 3) & 7; }

void four(const void * block, float * to, int64_t) {  // of IQ3_S
    const uint8_t * p = (const uint8_t *) block;
    for (int i = 0; i < 4; i++) to[i] = (float) (1 + 2 * level(p[2] | (p[66] & 1) << 8, i));
}
void eight(const void * block, float * to, int64_t) {  // of IQ1_S
    const uint8_t * p = (const uint8_t *) block;
    for (int i = 0; i < 8; i++) to[i] = (float) (level(p[2] | (p[34] & 7) << 8, i) % 3) - 0.875f;
}
void other(const void * block, float * to, int64_t) {
    for (int i = 0; i < 8; i++) to[i] = ((const uint8_t *) block)[2] == 77 && i == 5 ? 26.0f : 25.0f;
}
void none(const void *, float * to, int64_t) {
    for (int i = 0; i < 8; i++) to[i] = 0.0f;
}

int n_wrong = 0;
void expect(bool is_so, const char * what) {
    if (is_so) return;
    printf("%s\n", what);
    n_wrong++;
}

}  // namespace

int main() {
    expect(has_grid(ggml::Q8_0) && has_grid(ggml::F32) && has_grid(-1), "a part without a grid needs none");
    expect(!has_grid(ggml::IQ3_S) && !has_grid(ggml::IQ1_M), "a grid that was not read is missing");
    read_grid("dequantize_row_iq3_s", four);
    read_grid("dequantize_row_iq1_s", eight);
    read_grid("dequantize_row_iq2_xs", other);
    read_grid("dequantize_row_iq2_s", none);
    read_grid("dequantize_row_of_another_type", four);
    expect(has_grid(ggml::IQ3_S) && has_grid(ggml::IQ1_S) && has_grid(ggml::IQ1_M), "a grid that was read is there");
    expect(!has_grid(ggml::IQ2_XS) && !has_grid(ggml::IQ2_S), "values that no code stands for are seen");
    for (int n = 0; n < 512; n++)
        for (int i = 0; i < 4; i++) expect((int) (grids.iq3_s[n] >> (8 * i) & 255) == level(n, i), "a code of IQ3_S");
    for (int n = 0; n < 2048; n++)
        for (int i = 0; i < 8; i++) expect((int) (grids.iq1[n] >> (i % 4 * 8 + i / 4 * 4) & 15) == level(n, i) % 3, "a code of IQ1");
    printf("%d wrong\n", n_wrong);
    return n_wrong ? 1 : 0;
}
