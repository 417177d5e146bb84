// The instructions of one kind of processor: real ones, or AVX-512 emulated in plain C for tests on other processors.
#pragma once

#if defined(UAD_NEON)
#include <arm_neon.h>
#elif defined(UAD_EMULATED)
#include "../tests/emulated.h"
#else
#include <immintrin.h>
#endif
#if defined(UAD_EMULATED_TILES)
#include "../../lab/amx_emulated.h"
#endif
