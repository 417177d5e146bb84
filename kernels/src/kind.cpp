// Compiled once for each kind of processor, with that kind's instructions: -DUAD_KIND=avx2 -DUAD_AVX2 -mavx2 ...
// -DUAD_LEFT_OUT: where the compiler does not know them.
#if defined(UAD_LEFT_OUT)
#include "kind.h"
namespace uad {
const Kind UAD_KIND{};
}
#else
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "intrinsics.h"
#include "kind.h"
#if defined(UAD_AMX)
#include "tiles.h"
#endif

#define UAD_JOIN(a, b) a##b
#define UAD_IN(kind) UAD_JOIN(in_, kind)
#define UAD_SPACE UAD_IN(UAD_KIND)

namespace uad {
namespace UAD_SPACE {
// Everything compiled for this kind has internal linkage: the linker would keep one of several equal inline functions,
// and a processor without AVX-512 might get that of AVX-512.
namespace {
#include "planes.h"
#include "vec.h"
#include "grids.h"
#include "product.h"
#include "attend.h"
#include "activations.h"
}  // namespace
}  // namespace UAD_SPACE

#define UAD_TEXT(x) #x
#define UAD_NAME(x) UAD_TEXT(x)
#define UAD_OWN(function) UAD_SPACE::function
const Kind UAD_KIND = {
    UAD_NAME(UAD_KIND), UAD_OWN(matrix_bytes), UAD_OWN(repack), UAD_OWN(group_offset), UAD_OWN(product_size), UAD_OWN(product),
    UAD_OWN(attends), UAD_OWN(attend_size), UAD_OWN(attend),
    UAD_OWN(is_of_activations), UAD_OWN(of_activations_size), UAD_OWN(of_activations),
};
}  // namespace uad
#endif
