// A product of weights by columns, for counting its instructions (arm_counts.py): uad|llama TYPE COLUMNS TIMES K ROWS
// Exit code 3: llama.cpp has no kernel for rearranged weights of this type, and multiplied them as they are.
#include <cstring>

#include "../kernels/tests/driver.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

using namespace uad;

struct Sizes {
    int type, n, times, k, rows;
};

void multiply(const Sizes & s, std::vector<uint8_t> & file, std::vector<float> & x) {
    const Kind & kind = UAD_KIND;
    const size_t row = file.size() / s.rows;
    std::vector<uint8_t> packed(kind.matrix_bytes(s.type, s.k, s.rows) + 64);
    std::vector<float> y((size_t) s.rows * s.n);
    ggml::Tensor w{}, in{}, op{};
    w.type = s.type, w.data = (void *) aligned(packed.data()), w.ne[0] = s.k, w.ne[1] = s.rows, w.nb[1] = row;
    kind.repack(s.type, s.k, s.rows, file.data(), w.data, 0, (s.rows + kGroup - 1) / kGroup);
    in.data = x.data(), op.data = y.data(), in.ne[0] = s.k, op.ne[0] = s.rows, in.ne[1] = op.ne[1] = s.n;
    in.nb[0] = op.nb[0] = 4, in.nb[1] = 4 * s.k, op.nb[1] = 4 * s.rows;
    for (ggml::Tensor * t : {&w, &in, &op}) t->ne[2] = t->ne[3] = 1, t->nb[2] = t->nb[1] * t->ne[1], t->nb[3] = t->nb[2];
    op.src[0] = &w, op.src[1] = &in;
    std::vector<char> scratch(kind.product_size(1, &op) + 64);
    calls.barrier = [](void *) {};
    for (int i = 0; i < s.times; i++) {
        ggml::Compute compute{0, 1, scratch.size(), scratch.data(), nullptr, false};
        kind.product(&compute, &op);
    }
}

// The same by llama.cpp, whose kernels are used as it uses them. Whether it rearranges such weights.
bool multiply_in_llama(const Sizes & s, std::vector<uint8_t> & file, std::vector<float> & x) {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_t backend = ggml_backend_dev_init(cpu, nullptr);
    ggml_backend_cpu_set_n_threads(backend, 1);
    const ggml_init_params params{1 << 20, nullptr, true};
    ggml_context *weights = ggml_init(params), *rest = ggml_init(params);
    ggml_tensor * w = ggml_new_tensor_2d(weights, (ggml_type) s.type, s.k, s.rows);
    ggml_tensor *in = ggml_new_tensor_2d(rest, GGML_TYPE_F32, s.k, s.n), *op = ggml_mul_mat(rest, w, in);
    auto more = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t buffers = more(cpu)[0];
    w->buffer = ggml_backend_buft_alloc_buffer(buffers, 0);
    const bool is_rearranged = ggml_backend_dev_supports_op(cpu, op);
    w->buffer = nullptr;
    ggml_backend_alloc_ctx_tensors_from_buft(weights, is_rearranged ? buffers : ggml_backend_get_default_buffer_type(backend));
    ggml_backend_alloc_ctx_tensors(rest, backend);
    ggml_backend_tensor_set(w, file.data(), 0, file.size());
    ggml_backend_tensor_set(in, x.data(), 0, x.size() * 4);
    ggml_cgraph * graph = ggml_new_graph(rest);
    ggml_build_forward_expand(graph, op);
    for (int i = 0; i < s.times; i++) ggml_backend_graph_compute(backend, graph);
    return is_rearranged;
}

int main(int n_words, char ** words) {
    if (n_words != 7) return 2;
    int type = -1;
#define UAD_NAMED(NAME, NUMBER, TEXT, COLUMNS, BYTES) if (!strcmp(words[2], TEXT)) type = NUMBER;
    UAD_TYPES(UAD_NAMED)
    if (type < 0) return 2;
    const Sizes s{type, atoi(words[3]), atoi(words[4]), atoi(words[5]), atoi(words[6])};
    const ggml::Block block = ggml::block_of(s.type);
    std::vector<uint8_t> file((size_t) (s.k / block.columns) * block.bytes * s.rows, 1);
    std::vector<float> x((size_t) s.k * s.n, 1.0f);
    if (!strcmp(words[1], "llama")) return multiply_in_llama(s, file, x) ? 0 : 3;
    multiply(s, file, x);
    return 0;
}
