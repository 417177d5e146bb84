// What the checks of products share: random numbers, and threads that meet where an operation says so. Included once.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "../src/kind.h"

namespace uad {
Ggml calls;
std::atomic<bool> attention_in_tiles{true};
Ops ops;
Grids grids;
}  // namespace uad

uint64_t state = 88172645463325252ull;
uint64_t random_word() { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }
int random_below(int n) { return (int) (random_word() % (uint64_t) n); }
float random_float() { return (float) (int) (random_word() % 20001) / 10000.0f - 1.0f; }

struct Pool {
    std::atomic<int> n_waiting{0}, turn{0};
    int n = 1;
};

void barrier(void * threadpool) {
    Pool & pool = *(Pool *) threadpool;
    const int turn = pool.turn;
    if (++pool.n_waiting == pool.n) {
        pool.n_waiting = 0;
        pool.turn++;
    } else
        while (pool.turn == turn) std::this_thread::yield();
}

// compute(c) on n threads, with the scratch that it may use in c->wdata.
template <class Compute> void on_threads(int n, std::vector<char> & scratch, Compute compute) {
    Pool pool;
    pool.n = n;
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++)
        threads.emplace_back([&, i] {
            ggml::Compute c{i, n, scratch.size(), scratch.data(), &pool, false};
            compute(&c);
        });
    for (auto & thread : threads) thread.join();
}
