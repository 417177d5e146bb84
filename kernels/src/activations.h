// Products of two activations (MUL_MAT of two computed matrices, as in attention without flash attention): a column has
// the same bits whatever columns, slots, later cells and threads are beside it.
//
//   out[row][column] = sum over i of a[i][row] b[i][column]     a: src[0], as a cache of keys or of turned values; b: src[1]
//
// All of it in F32; a is widened. Each sum is one chain of fused multiply-adds, in the order of i. So cells behind those
// that a softmax leaves add exact zeros, however many there are. Words as in attend.h, whose loops these are:
//   tile    up to 96 columns of one matrix of a: those of all matrices of b that share it
//   step    32 rows of a, turned once for all columns of a tile, kElements elements at once
//   block   steps that a task takes together, with its tile: fewer ones where there is little to share
namespace activations {

using attention::kPairs;
using attention::kStep;
using attention::up;
constexpr int kElements = 256;   // of a chunk: a multiple of all blocks of types
constexpr int kMostSteps = 8;    // of a block
constexpr int kWeights = 1;      // ggml's number of the usage of a buffer

struct ActivationPlan {
    const ggml::Tensor *op, *a, *b;
    const attention::CacheType * type;
    int64_t k, n_rows, by2, by3;              // by2, by3: matrices of b that share one of a
    int64_t n_columns, n_tiles, n_matrices;   // of a matrix of a; n_matrices: of a
    int64_t steps, n_blocks, n_tasks;
    int64_t width;                            // of a row of sums

    ActivationPlan(const ggml::Tensor * o, int n_threads) : op(o), a(o->src[0]), b(o->src[1]), type(attention::cache_type(a)) {
        k = a->ne[0], n_rows = a->ne[1];
        by2 = b->ne[2] / a->ne[2], by3 = b->ne[3] / a->ne[3];
        n_columns = b->ne[1] * by2 * by3, n_tiles = (n_columns + kPairs - 1) / kPairs;
        n_matrices = a->ne[2] * a->ne[3];
        const int64_t n_steps = (n_rows + kStep - 1) / kStep;
        steps = kMostSteps;
        while (steps > 1 && n_matrices * n_tiles * ((n_steps + steps - 1) / steps) < 4 * n_threads) steps /= 2;
        n_blocks = (n_steps + steps - 1) / steps, n_tasks = n_matrices * n_tiles * n_blocks;
        width = steps * kStep + 16;           // rows of 2^n floats would share few places of the cache
    }

    size_t thread_size() const { return up(4 * (kPairs * (kElements + 16 + kMostSteps * kStep + 16) + kElements * kStep + kLanes * (kElements + 16)), 64); }
    size_t size(int n_threads) const { return 128 + n_threads * thread_size(); }
};

struct ActivationWorker {
    const ActivationPlan & plan;
    float *columns, *sums, *turned, *rows;

    ActivationWorker(const ActivationPlan & p, void * scratch, int ith) : plan(p) {
        columns = (float *) (aligned(scratch) + 64 + ith * p.thread_size());
        sums = columns + kPairs * (kElements + 16), turned = sums + kPairs * p.width, rows = turned + kElements * kStep;
    }

    // Where column `i` of matrix (m2, m3) of a lies in b, or in the result.
    char * at(const ggml::Tensor * t, int64_t i, int64_t m2, int64_t m3) const {
        const int64_t i1 = i % t->ne[1], i2 = m2 * plan.by2 + i / t->ne[1] % plan.by2, i3 = m3 * plan.by3 + i / t->ne[1] / plan.by2;
        return (char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
    }

    void run(int64_t task) const {
        const int64_t block = task % plan.n_blocks, tile = task / plan.n_blocks % plan.n_tiles, m = task / plan.n_blocks / plan.n_tiles;
        const int64_t m2 = m % plan.a->ne[2], m3 = m / plan.a->ne[2];
        const int64_t first = tile * kPairs, n = std::min<int64_t>(kPairs, plan.n_columns - first);
        const int64_t row = block * plan.steps * kStep, end = std::min(plan.n_rows, row + plan.steps * kStep);
        const char * a = (const char *) plan.a->data + m2 * plan.a->nb[2] + m3 * plan.a->nb[3];
        memset(sums, 0, n * plan.width * 4);
        for (int64_t i = 0; i < plan.k; i += kElements) {
            const int64_t d = std::min<int64_t>(kElements, plan.k - i);
            for (int64_t j = 0; j < n; j++) take(at(plan.b, first + j, m2, m3), i, d, columns + j * (kElements + 16));
            for (int64_t r = row; r < end; r += kStep) {
                const char * from = a + r * plan.a->nb[1] + i / plan.type->n_values * plan.type->n_bytes;
                for (int64_t w = 0; w < kStep; w += kLanes) plan.type->turn(from + w * plan.a->nb[1], plan.a->nb[1], end - r - w, d, rows, turned + w);
                float * to = sums + r - row;
                attention::multiply<ggml::F32, true>(columns, kElements + 16, n, (const char *) turned, kStep * 4, d, to, plan.width, kStep);
            }
        }
        for (int64_t j = 0; j < n; j++) {
            float *to = (float *) at(plan.op, first + j, m2, m3), *from = sums + j * plan.width;
            for (int64_t r = row; r < end; r++) to[r] = from[r - row] + 0.0f;  // no minus zero
        }
    }

    void take(const char * column, int64_t first, int64_t n, float * to) const {
        const size_t stride = plan.b->nb[0];
        if (stride == 4) memcpy(to, column + first * 4, n * 4);
        else
            for (int64_t i = 0; i < n; i++) memcpy(to + i, column + (first + i) * stride, 4);
    }
};

// Whether an operation is such a product: matrices among weights are not activations.
inline bool is_of_activations(const ggml::Tensor * op) {
    const ggml::Tensor *a = op->src[0], *b = op->src[1];
    if (op->op != ops.mul_mat || op->op_params[1] != 0 || op->type != ggml::F32 || op->nb[0] != 4 || b->type != ggml::F32) return false;
    const ggml::Buffer * buffer = a->view_src ? a->view_src->buffer : a->buffer;
    return buffer && buffer->usage != kWeights && attention::cache_type(a);
}

inline size_t of_activations_size(int n_threads, const ggml::Tensor * op) { return ActivationPlan(op, n_threads).size(n_threads); }

inline void of_activations(ggml::Compute * compute, ggml::Tensor * op) {
    const ActivationPlan plan(op, compute->nth);
    auto & next = *(NextTask *) aligned(compute->wdata);
    require(compute->wsize >= plan.size(compute->nth), "there is too little scratch", op);
    const ActivationWorker worker(plan, compute->wdata, compute->ith);
    if (compute->ith == 0) next.store(0, std::memory_order_relaxed);
    calls.barrier(compute->threadpool);
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < plan.n_tasks;) worker.run(task);
}

}  // namespace activations
using activations::of_activations;
using activations::of_activations_size;
using activations::is_of_activations;
