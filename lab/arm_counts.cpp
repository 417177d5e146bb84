// A product of uad's kernels by itself, for counting its instructions (arm_counts.py): TYPE COLUMNS TIMES K ROWS.
#include <cstdio>
#include <cstring>

#include "../kernels/tests/driver.h"

using namespace uad;

int main(int n_words, char ** words) {
    if (n_words != 6) return 2;
    const int type = atoi(words[1]), n = atoi(words[2]), times = atoi(words[3]), k = atoi(words[4]), rows = atoi(words[5]);
    calls.barrier = [](void *) {};
    ops = {1, 2, 3};
    const Kind & kind = UAD_KIND;
    const ggml::Block block = ggml::block_of(type);
    const size_t row = (size_t) (k / block.columns) * block.bytes;
    std::vector<uint8_t> file(row * rows, 1), packed(kind.matrix_bytes(type, k, rows) + 64);
    uint8_t * to = (uint8_t *) aligned(packed.data());
    kind.repack(type, k, rows, file.data(), to, 0, (rows + kGroup - 1) / kGroup);
    std::vector<float> x((size_t) k * n, 1.0f), y((size_t) rows * n);
    ggml::Tensor w{}, in{}, op{};
    w.type = type, w.data = to, w.ne[0] = k, w.ne[1] = rows, w.nb[0] = block.bytes, w.nb[1] = row;
    in.type = op.type = ggml::F32, in.data = x.data(), op.data = y.data(), in.ne[0] = k, op.ne[0] = rows, in.ne[1] = op.ne[1] = n;
    in.nb[0] = op.nb[0] = 4, in.nb[1] = 4 * k, op.nb[1] = 4 * rows;
    for (ggml::Tensor * t : {&w, &in, &op}) t->ne[2] = t->ne[3] = 1, t->nb[2] = t->nb[1] * t->ne[1], t->nb[3] = t->nb[2];
    op.op = ops.mul_mat, op.src[0] = &w, op.src[1] = &in;
    std::vector<char> scratch(kind.product_size(1, &op) + 64);
    for (int i = 0; i < times; i++) {
        ggml::Compute compute{0, 1, scratch.size(), scratch.data(), nullptr, false};
        kind.product(&compute, &op);
    }
    printf("%g\n", y[0]);
}
