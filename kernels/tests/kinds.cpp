// Prints the kinds that this processor runs, the fastest first.
#include <cstdio>

#include "../src/library.h"

int main() { puts(uad_kernels_kinds()); }
