// Finding the runs in a warp's addresses (ranges.h).
#include "softgpu/machine/ranges.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

// The addresses of the lanes of `mask`, side by side; answers how many there are. `packed` has room
// for a vector more.
static int pack(uint64_t *packed, const uint64_t address[32], uint32_t mask) {
    int count = 0;
#ifdef __AVX512F__
    for (int l = 0; l < 32; l += 8) {
        __mmask8 lanes = (__mmask8)(mask >> l);
        _mm512_storeu_si512(packed + count,
                            _mm512_maskz_compress_epi64(lanes, _mm512_loadu_si512(address + l)));
        count += __builtin_popcount(lanes);
    }
#else
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) packed[count++] = address[l];
#endif
    return count;
}

// Bit k: packed[k] does not go on where packed[k - 1] begins or ends.
static uint32_t breaks_in(const uint64_t packed[32], unsigned size) {
    uint32_t breaks = 1;
#ifdef __AVX512F__
    __m512i sizes = _mm512_set1_epi64(size), last = _mm512_setzero_si512();
    for (int k = 0; k < 32; k += 8) {
        __m512i here = _mm512_loadu_si512(packed + k);
        __m512i step = _mm512_sub_epi64(here, _mm512_alignr_epi64(here, last, 7));
        __mmask8 moved = _mm512_test_epi64_mask(step, step);
        breaks |= (uint32_t)_mm512_mask_cmpneq_epi64_mask(moved, step, sizes) << k;
        last = here;
    }
#else
    for (int k = 1; k < 32; k++) {
        uint64_t step = packed[k] - packed[k - 1];
        breaks |= (uint32_t)(step != 0 && step != size) << k;
    }
#endif
    return breaks | 1;
}

void ranges_of(Ranges *ranges, const uint64_t address[32], unsigned size, uint32_t mask) {
    uint64_t own[32 + 8];
    const uint64_t *packed = address;
    uint32_t valid = mask;
    if (mask != UINT32_MAX) {
        int count = pack(own, address, mask);
        for (int k = count; k < 32; k++) own[k] = 0;
        packed = own;
        valid = count < 32 ? (1u << count) - 1 : UINT32_MAX;
    }
    uint32_t breaks = breaks_in(packed, size) & valid;
    int last = 31 - __builtin_clz(valid), count = 0;
    while (breaks) {
        int from = __builtin_ctz(breaks);
        breaks &= breaks - 1;
        int to = breaks ? __builtin_ctz(breaks) - 1 : last;
        ranges->range[count++] = (Range){packed[from], packed[to] - packed[from] + size};
    }
    ranges->count = count;
}
