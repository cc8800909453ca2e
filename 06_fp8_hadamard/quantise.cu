// Q, K, V → e4m3 and scales, all three in one kernel at the speed of a copy.
//
// A thread block works on one item at a time: a block of K or of V, or as many blocks of Q as have
// room in that. What it reads of the next item flies meanwhile, as cp.async into shared memory:
//
//     HBM           │ item 1        │ item 2        │ item 3        │
//     shared memory │       item 0  │       item 1  │       item 2  │
//     registers     │  transform, largest, e4m3, store of item 0 │ … of item 1 │
//
// A row belongs to LANES neighbouring lanes of a warp. Two orders of its pieces of 8 numbers, 16
// bytes: copied are neighbouring pieces by neighbouring lanes, so that they ask for whole 32-byte
// sectors; worked on are two neighbouring pieces by one lane, whose 16 e4m3 numbers it stores at
// once. For head_dim 128, pieces 0 … 15 of a row:
//
//     copied by lane       0 1 │ 0 1 │ 0 1 │ 0 1 │ …      in shared memory: a line of THREADS pieces
//     worked on by lane    0 0 │ 1 1 │ 0 0 │ 1 1 │ …      for each "│", and a piece of padding
//
// The padding moves odd lines by 16 bytes: with it the lanes that read together have all banks.
#include "quantise.h"

#include "device/cp_async.h"
#include "device/dispatch.h"
#include "device/e4m3.h"
#include "device/exp2.h"
#include "device/number.h"
#include "hadamard.h"

enum QuantiseWay { PER_TENSOR, PER_BLOCK, TRANSFORMED };
enum Tensor { TENSOR_OF_Q, TENSOR_OF_K, TENSOR_OF_V };

static const float SMALLEST_SCALE = 0x1p-60f;

// Who holds what of an item.
template <int HEAD_DIM> struct QuantiseTile {
    static constexpr int KEYS = KEY_BLOCK(HEAD_DIM); // rows, of which Q may leave some unused
    static constexpr int LANES = HADAMARD_LANES(HEAD_DIM);
    static constexpr int VALUES = HEAD_DIM / LANES; // numbers of a lane
    static constexpr int PIECES = VALUES / 8;
    static constexpr int THREADS = KEYS * LANES;                      // 320, 448, 512
    static constexpr int LAUNCH_BOUNDS = (THREADS + 127) / 128 * 128; // an SM has four parts
    static constexpr int BLOCKS_PER_SM = HEAD_DIM <= 64 ? 2 : 1;      // what the registers hold
    static constexpr int QUERY_BLOCKS = KEYS / QUERY_BLOCK;           // of an item of Q
    static constexpr int WARP_ROWS = 32 / LANES;
    static constexpr int WARPS = KEYS / WARP_ROWS;
    static constexpr int QUERY_WARPS = QUERY_BLOCK / WARP_ROWS; // of a block of Q
    static constexpr int LINE = THREADS + 1;                    // pieces
    static constexpr int BYTES = 2 * PIECES * LINE * 16;        // two items
    static_assert(KEYS % WARP_ROWS == 0 && QUERY_BLOCK % WARP_ROWS == 0,
                  "a warp's rows: one block's");
    static_assert(WARPS <= 32, "a lane a warp");
    static_assert(THREADS % 8 == 0, "the padding moves a line by one piece");
};

// A piece of one head of Q, K or V, and what this thread has of it.
typedef struct {
    Tensor tensor;
    bool there;     // this thread's row is none past the last one
    int64_t number; // the first of the row, in the input and in the output
    int64_t scale;  // of the item's first block, in its scales
} Item;

// How the work is cut: the same for all thread blocks.
typedef struct {
    uint32_t query_items, key_items;   // of Q; of K, and as many of V
    uint32_t query_blocks, key_blocks; // of a head
} Cut;

// Items count heads fastest, which are neighbours in memory: first Q's, then K's, then V's.
template <int HEAD_DIM>
__device__ static inline Item item_of(const Attention &a, const Cut &cut, uint32_t index) {
    using Tile = QuantiseTile<HEAD_DIM>;
    Item item;
    item.tensor = index < cut.query_items                   ? TENSOR_OF_Q
                  : index < cut.query_items + cut.key_items ? TENSOR_OF_K
                                                            : TENSOR_OF_V;
    if (item.tensor != TENSOR_OF_Q) index -= cut.query_items;
    if (item.tensor == TENSOR_OF_V) index -= cut.key_items;
    const bool of_keys = item.tensor != TENSOR_OF_Q;
    const uint32_t heads = (uint32_t)(of_keys ? a.kv_heads : a.heads);
    const int64_t seqlen = of_keys ? a.seqlen_k : a.seqlen_q;
    const uint32_t rest = index / heads, part = rest / (uint32_t)a.batch;
    const int head = (int)(index - rest * heads), batch = (int)(rest - part * (uint32_t)a.batch);
    const int rows = of_keys ? Tile::KEYS : Tile::QUERY_BLOCKS * QUERY_BLOCK;
    const int own = threadIdx.x / Tile::LANES;
    const int64_t row = (int64_t)part * rows + own;
    item.there = own < rows && row < seqlen;
    item.number = row_offset(batch, row, head, seqlen, heads, HEAD_DIM);
    item.scale = scale_offset(batch, head, of_keys ? part : part * Tile::QUERY_BLOCKS, heads,
                              of_keys ? cut.key_blocks : cut.query_blocks);
    return item;
}

template <typename Pointer>
__device__ static inline Pointer choose(Tensor tensor, Pointer q, Pointer k, Pointer v) {
    return tensor == TENSOR_OF_Q ? q : tensor == TENSOR_OF_K ? k : v;
}

// Starts copying this thread's pieces of an item; those of rows past the last come as zeros.
template <typename T, int HEAD_DIM>
__device__ static inline void start_copy(uint4 *to_smem, const Attention &a, const Item &item) {
    using Tile = QuantiseTile<HEAD_DIM>;
    const T *from = (const T *)choose(item.tensor, a.q, a.k, a.v);
    if (item.there) from += item.number + threadIdx.x % Tile::LANES * 8;
#pragma unroll
    for (int i = 0; i < Tile::PIECES; i++)
        cp_async16(to_smem + i * Tile::LINE + threadIdx.x, from + i * Tile::LANES * 8,
                   item.there ? 16 : 0);
}

__device__ static inline float2 to_float2(uint32_t pair, __half) {
    return __half22float2(*(const __half2 *)&pair);
}
__device__ static inline float2 to_float2(uint32_t pair, __nv_bfloat16) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

// Eight numbers of a piece → x; with other signs if SIGNED: from pair number `pair` of `signs` on.
template <typename T, bool SIGNED>
__device__ static inline void take_piece(float *x, uint4 piece, uint32_t signs, int pair) {
    const uint32_t pairs[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const float2 numbers =
            to_float2(SIGNED ? signed_pair(pairs[p], signs, pair + p) : pairs[p], T());
        x[p * 2] = numbers.x;
        x[p * 2 + 1] = numbers.y;
    }
}

// x = the numbers of the row that this lane works on, from what the row's lanes copied; as
// x D H if TRANSFORM.
template <typename T, int HEAD_DIM, bool TRANSFORM>
__device__ static inline void take_row(float (&x)[QuantiseTile<HEAD_DIM>::VALUES],
                                       const uint4 *from_smem, const uint32_t (&signs)[2]) {
    using Tile = QuantiseTile<HEAD_DIM>;
    const int lane = threadIdx.x % Tile::LANES;
    const uint4 *row = from_smem + lane * 2 / Tile::LANES * Tile::LINE + threadIdx.x - lane +
                       lane * 2 % Tile::LANES;
#pragma unroll
    for (int i = 0; i < Tile::PIECES; i++)
        take_piece<T, TRANSFORM>(&x[i * 8], row[i / 2 * 2 * Tile::LINE + i % 2], signs[i / 4],
                                 i % 4 * 4);
    if (TRANSFORM) multiply_hadamard<Tile::VALUES, Tile::LANES>(x);
}

// The largest magnitude of the warp's numbers, as bits: those of a float >= 0 count like a whole
// number. Of the finite ones: fmaxf drops a NaN, and where an Inf wins, every Inf is made a NaN
// and dropped too.
template <int VALUES> __device__ static inline uint32_t largest_of_warp(float (&x)[VALUES]) {
    float largest = 0;
#pragma unroll
    for (int n = 0; n < VALUES; n++) largest = fmaxf(largest, fabsf(x[n]));
    const uint32_t bits = __reduce_max_sync(0xffffffffu, __float_as_uint(largest));
    if (bits != 0x7f800000u) return bits;
    largest = 0;
#pragma unroll
    for (int n = 0; n < VALUES; n++) {
        if (isinf(x[n])) x[n] = CUDART_NAN_F;
        largest = fmaxf(largest, fabsf(x[n]));
    }
    return __reduce_max_sync(0xffffffffu, __float_as_uint(largest));
}

// The largest magnitude of the block that this warp's rows belong to, from those of the warps.
template <int HEAD_DIM>
__device__ static inline float largest_of_block(const uint32_t *largest_smem, bool of_keys) {
    using Tile = QuantiseTile<HEAD_DIM>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = of_keys ? 0 : warp / Tile::QUERY_WARPS * Tile::QUERY_WARPS;
    const int count = of_keys ? Tile::WARPS : Tile::QUERY_WARPS;
    const bool counts = lane < count && first + lane < Tile::WARPS;
    return __uint_as_float(__reduce_max_sync(0xffffffffu, counts ? largest_smem[first + lane] : 0));
}

__device__ static inline float scale_of(float largest) {
    return largest == 0 ? 1 : fmaxf(largest * (1 / E4M3_LARGEST), SMALLEST_SCALE);
}

// x times inverse → e4m3, sixteen neighbours at a time.
template <int HEAD_DIM>
__device__ static inline void store_row(uint8_t *row,
                                        const float (&x)[QuantiseTile<HEAD_DIM>::VALUES],
                                        float inverse) {
    using Tile = QuantiseTile<HEAD_DIM>;
    uint8_t *to = row + threadIdx.x % Tile::LANES * 16;
#pragma unroll
    for (int n = 0; n < Tile::VALUES; n += 16) {
        uint32_t bytes[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *y = &x[n + i * 4];
            bytes[i] = pack4_e4m3(y[0] * inverse, y[1] * inverse, y[2] * inverse, y[3] * inverse);
        }
        *(uint4 *)(to + n * Tile::LANES) = make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]);
    }
}

// An item that stands in shared memory → e4m3 and scales.
template <typename T, int HEAD_DIM, QuantiseWay WAY>
__device__ static inline void quantise_item(const Quantised &to, const Item &item,
                                            const uint4 *from_smem, uint32_t *largest_smem,
                                            const uint32_t (&signs)[2]) {
    using Tile = QuantiseTile<HEAD_DIM>;
    const bool of_keys = item.tensor != TENSOR_OF_Q;
    const bool transformed = WAY == TRANSFORMED && item.tensor != TENSOR_OF_V;
    const float norm = transformed ? rsqrtf(HEAD_DIM) : 1; // of D H; the numbers have it as scale
    float x[Tile::VALUES];
    if (transformed)
        take_row<T, HEAD_DIM, true>(x, from_smem, signs);
    else
        take_row<T, HEAD_DIM, false>(x, from_smem, signs);
    // exercise 3: begin
    const uint32_t warp_largest = largest_of_warp(x);
    if (threadIdx.x % 32 == 0) largest_smem[threadIdx.x / 32] = warp_largest;
    __syncthreads(); // all warps' largest numbers → all warps
    // exercise 3: end
    const float largest = WAY == PER_TENSOR ? __uint_as_float(to.largest[item.tensor])
                                            : largest_of_block<HEAD_DIM>(largest_smem, of_keys);
    const float scale = scale_of(largest * norm);
    if (!item.there) return;
    // exercise 4: begin
    store_row<HEAD_DIM>(choose(item.tensor, to.q, to.k, to.v) + item.number, x,
                        norm * reciprocal_approximate(scale));
    // exercise 4: end
    const int row = threadIdx.x / Tile::LANES; // of the item
    // exercise 5: begin
    if (threadIdx.x % Tile::LANES == 0 && (of_keys ? row == 0 : row % QUERY_BLOCK == 0))
        choose(item.tensor, to.q_scale, to.k_scale, to.v_scale)[item.scale + row / QUERY_BLOCK] =
            scale;
    // exercise 5: end
}

template <typename T, int HEAD_DIM, QuantiseWay WAY>
__global__ void __launch_bounds__(QuantiseTile<HEAD_DIM>::LAUNCH_BOUNDS,
                                  QuantiseTile<HEAD_DIM>::BLOCKS_PER_SM)
    quantise(const Attention a, const Quantised to, const Cut cut) {
    using Tile = QuantiseTile<HEAD_DIM>;
    extern __shared__ __align__(16) uint4 pieces_smem[];
    __shared__ uint32_t largest_smem[2][Tile::WARPS];
    const uint32_t items = cut.query_items + 2 * cut.key_items;
    const int lane = threadIdx.x % Tile::LANES;
    const uint32_t signs[2] = {sign_bits(lane, 0), sign_bits(lane, 1)};
    Item item = item_of<HEAD_DIM>(a, cut, blockIdx.x);
    start_copy<T, HEAD_DIM>(pieces_smem, a, item);
    cp_async_commit();
    int stage = 0;
    for (uint32_t index = blockIdx.x; index < items; index += gridDim.x) {
        Item next = item;
        if (index + gridDim.x < items) {
            // The other stage's item was read before the last barrier.
            next = item_of<HEAD_DIM>(a, cut, index + gridDim.x);
            start_copy<T, HEAD_DIM>(pieces_smem + (stage ^ 1) * Tile::PIECES * Tile::LINE, a, next);
        }
        cp_async_commit();
        cp_async_wait<1>(); // this thread's pieces of the item → this thread
        __syncwarp();       // → the other lanes of its row
        quantise_item<T, HEAD_DIM, WAY>(to, item, pieces_smem + stage * Tile::PIECES * Tile::LINE,
                                        largest_smem[stage], signs);
        item = next;
        stage ^= 1;
    }
}

// ---- the largest magnitude of whole tensors, before per_tensor

static const int LARGEST_THREADS = 512;

template <typename T>
__global__ void __launch_bounds__(LARGEST_THREADS)
    find_largest(const Attention a, uint32_t *largest, int64_t q_numbers, int64_t k_numbers) {
    const T *from = (const T *)(blockIdx.y == 0 ? a.q : blockIdx.y == 1 ? a.k : a.v);
    const int64_t pieces = (blockIdx.y == 0 ? q_numbers : k_numbers) / 32;
    uint32_t block_largest = 0;
    // The same trips for a whole warp: largest_of_warp needs all of its lanes.
    for (int64_t first = (int64_t)blockIdx.x * LARGEST_THREADS; first < pieces;
         first += (int64_t)gridDim.x * LARGEST_THREADS) {
        float x[32] = {};
        const int64_t piece = first + threadIdx.x;
        if (piece < pieces) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint4 bits = ((const uint4 *)from)[piece * 4 + i];
                const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    const float2 numbers = to_float2(pairs[p], T());
                    x[i * 8 + p * 2] = numbers.x;
                    x[i * 8 + p * 2 + 1] = numbers.y;
                }
            }
        }
        block_largest = max(block_largest, largest_of_warp(x));
    }
    if (threadIdx.x % 32 == 0 && block_largest > 0) atomicMax(&largest[blockIdx.y], block_largest);
}

// ---- host

// Thread blocks that fill the GPU, `per_sm` on each SM; 0: the device can't be asked.
static int blocks_that_fill(int per_sm) {
    int device = 0, sms = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    if (cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return 0;
    return sms * per_sm;
}

template <typename T, int HEAD_DIM, QuantiseWay WAY> static cudaError_t launch(const Attention *a) {
    using Tile = QuantiseTile<HEAD_DIM>;
    const int64_t query_items =
        tiles_of(a->seqlen_q, Tile::QUERY_BLOCKS * QUERY_BLOCK) * a->batch * a->heads;
    const int64_t key_items = tiles_of(a->seqlen_k, Tile::KEYS) * a->batch * a->kv_heads;
    const int64_t items = query_items + 2 * key_items;
    if (items == 0) return cudaSuccess;
    if (items > UINT32_MAX / 2) return cudaErrorInvalidValue; // the loop's counter must not wrap
    const Quantised to = quantised_of(a);
    if (WAY == PER_TENSOR) {
        const int64_t q_numbers = (int64_t)a->batch * a->seqlen_q * a->heads * HEAD_DIM;
        const int64_t k_numbers = (int64_t)a->batch * a->seqlen_k * a->kv_heads * HEAD_DIM;
        const cudaError_t error = cudaMemsetAsync(to.largest, 0, 3 * sizeof *to.largest, a->stream);
        if (error != cudaSuccess) return error;
        find_largest<T><<<dim3((unsigned)blocks_that_fill(2), 3), LARGEST_THREADS, 0, a->stream>>>(
            *a, to.largest, q_numbers, k_numbers);
    }
    const cudaError_t error = allow_shared_memory(quantise<T, HEAD_DIM, WAY>, Tile::BYTES);
    if (error != cudaSuccess) return error;
    Cut cut;
    cut.query_items = (uint32_t)query_items;
    cut.key_items = (uint32_t)key_items;
    cut.query_blocks = (uint32_t)query_blocks(a);
    cut.key_blocks = (uint32_t)key_blocks(a);
    const int64_t blocks = min(items, (int64_t)blocks_that_fill(Tile::BLOCKS_PER_SM));
    quantise<T, HEAD_DIM, WAY>
        <<<(unsigned)blocks, Tile::THREADS, Tile::BYTES, a->stream>>>(*a, to, cut);
    return cudaGetLastError();
}

template <typename T, QuantiseWay WAY> static cudaError_t launch_head_dim(const Attention *a) {
#if BUILT_64
    if (a->head_dim == 64) return launch<T, 64, WAY>(a);
#endif
#if BUILT_128
    if (a->head_dim == 128) return launch<T, 128, WAY>(a);
#endif
#if BUILT_256
    if (a->head_dim == 256) return launch<T, 256, WAY>(a);
#endif
    return cudaErrorInvalidValue;
}

template <QuantiseWay WAY> static cudaError_t launch_dtype(const Attention *a) {
    if (a->dtype == DTYPE_FP16) return launch_head_dim<__half, WAY>(a);
    if (a->dtype == DTYPE_BF16) return launch_head_dim<__nv_bfloat16, WAY>(a);
    return cudaErrorInvalidValue;
}

cudaError_t quantise_per_tensor(const Attention *a) {
    return launch_dtype<PER_TENSOR>(a);
}
cudaError_t quantise_per_block(const Attention *a) {
    return launch_dtype<PER_BLOCK>(a);
}
cudaError_t quantise_hadamard(const Attention *a) {
    return launch_dtype<TRANSFORMED>(a);
}

// ---- the same, in words for the harness

static int hadamard_sign(int head_dim, int column) {
    return sign_of_column(head_dim, column);
}

const Fp8 per_tensor_rounding = {true, QUERY_BLOCK, key_block, NULL, false};
const Fp8 per_block_rounding = {false, QUERY_BLOCK, key_block, NULL, false};
const Fp8 hadamard_rounding = {false, QUERY_BLOCK, key_block, hadamard_sign, false};
const Fp8 two_level_rounding = {false, QUERY_BLOCK, key_block, hadamard_sign, true};
