// Reads the tables of types with grids from ggml: its own functions say what a block with this number stands for.
#include <cstdint>
#include <cstring>

#include "kind.h"

namespace uad {

Grids grids;

namespace {

// A grid, and a block of the file that has a number of it first: a scale so that values are those of the grid, the low 8
// bits, and the further ones. levels: what values may be, each at its code. IQ1's are an eighth more in such a block.
struct Source {
    const char * name;
    int types[2];
    uint32_t * grid;
    int n, width;
    uint16_t scale;
    int high_at;
    float levels[8];
    bool is_read;
};
Source sources[] = {
    {"dequantize_row_iq1_s", {ggml::IQ1_S, ggml::IQ1_M}, grids.iq1, 2048, 8, 0x3c00, 34, {-0.875f, 0.125f, 1.125f}, false},
    {"dequantize_row_iq2_xxs", {ggml::IQ2_XXS}, grids.iq2_xxs, 256, 8, 0x4800, 3, {8, 25, 43}, false},
    {"dequantize_row_iq2_xs", {ggml::IQ2_XS}, grids.iq2_xs, 512, 8, 0x4800, 3, {8, 25, 43}, false},
    {"dequantize_row_iq2_s", {ggml::IQ2_S}, grids.iq2_s, 1024, 8, 0x4800, 66, {8, 25, 43}, false},
    {"dequantize_row_iq3_xxs", {ggml::IQ3_XXS}, grids.iq3_xxs, 256, 4, 0x4400, 3, {4, 12, 20, 28, 36, 44, 52, 62}, false},
    {"dequantize_row_iq3_s", {ggml::IQ3_S}, grids.iq3_s, 512, 4, 0x3c00, 66, {1, 3, 5, 7, 9, 11, 13, 15}, false},
};

// The codes of a grid's values; false for one that cannot be.
bool read_entry(const Source & source, const float * values, uint32_t & entry) {
    entry = 0;
    for (int i = 0; i < source.width; i++) {
        uint32_t code = 0;
        while (code < 8 && (source.levels[code] == 0 || source.levels[code] != values[i])) code++;
        if (code == 8) return false;
        entry |= code << (i % 4 * 8 + i / 4 * 4);
    }
    return true;
}

}  // namespace

const char * const kGridFunctions =
    "dequantize_row_iq1_s dequantize_row_iq2_xxs dequantize_row_iq2_xs dequantize_row_iq2_s dequantize_row_iq3_xxs dequantize_row_iq3_s";

bool has_grid(int type) {
    for (const Source & source : sources)
        for (int one : source.types)
            if (one == type && type != 0) return source.is_read;
    return true;
}

void read_grid(const char * name, Dequantize dequantize) {
    for (Source & source : sources) {
        if (strcmp(source.name, name)) continue;
        source.is_read = true;
        for (int i = 0; i < source.n; i++) {
            uint8_t block[256] = {};
            float values[256];
            memcpy(block, &source.scale, 2);
            block[2] = (uint8_t) i;
            block[source.high_at] |= i >> 8;
            dequantize(block, values, 256);
            source.is_read &= read_entry(source, values, source.grid[i]);
        }
    }
    grids.double_them();
}

}  // namespace uad
