// Compiled once for each kind of processor, with that kind's instructions: -DUAD_KIND=avx2 -DUAD_AVX2 -mavx2 ...
#include <algorithm>
#include <atomic>
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
#include "product.h"
#include "attend.h"
#include "activations.h"
}  // namespace
}  // namespace UAD_SPACE

#define UAD_TEXT(x) #x
#define UAD_NAME(x) UAD_TEXT(x)
const Kind UAD_KIND = {
    UAD_NAME(UAD_KIND), UAD_SPACE::takes, UAD_SPACE::matrix_bytes, UAD_SPACE::repack, UAD_SPACE::group_offset, UAD_SPACE::product_size,
    UAD_SPACE::product, UAD_SPACE::attends, UAD_SPACE::attend_size, UAD_SPACE::attend, UAD_SPACE::crosses,
    UAD_SPACE::cross_size, UAD_SPACE::cross,
};
}  // namespace uad
