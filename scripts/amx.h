/* Put before llama.cpp's C++ sources where GCC compiles them for a processor with AMX (scripts/pip_install.py).

   GCC 12's _tile_loadconfig tells the optimiser that it reads 8 bytes of the configuration, not 64. The rest, which llama.cpp writes just
   before, is dropped as never read, and the first instruction on a tile ends the process (llama.cpp issue 20824). Here all of memory counts
   as read. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__AMX_TILE__)
#include <immintrin.h>
#define _tile_loadconfig(config)                               \
    (__extension__({                                           \
        const void *config_ = (config);                        \
        __asm__ volatile("" : : "r"(config_) : "memory");      \
        (_tile_loadconfig)(config_);                           \
    }))
#endif
