// Which head_dims are built: the Makefile turns HEAD_DIMS="64 128" into -DBUILT_64=1 -DBUILT_128=1.
// FOR_EACH_HEAD_DIM(X) expands X(64) X(128) …; kernels instantiate and dispatch with it.
#ifndef VARIANTS_H
#define VARIANTS_H

#ifndef BUILT_64
#define BUILT_64 0
#endif
#ifndef BUILT_96
#define BUILT_96 0
#endif
#ifndef BUILT_128
#define BUILT_128 0
#endif
#ifndef BUILT_192
#define BUILT_192 0
#endif
#ifndef BUILT_256
#define BUILT_256 0
#endif

#if BUILT_64
#define IF_BUILT_64(X) X(64)
#else
#define IF_BUILT_64(X)
#endif
#if BUILT_96
#define IF_BUILT_96(X) X(96)
#else
#define IF_BUILT_96(X)
#endif
#if BUILT_128
#define IF_BUILT_128(X) X(128)
#else
#define IF_BUILT_128(X)
#endif
#if BUILT_192
#define IF_BUILT_192(X) X(192)
#else
#define IF_BUILT_192(X)
#endif
#if BUILT_256
#define IF_BUILT_256(X) X(256)
#else
#define IF_BUILT_256(X)
#endif

#define FOR_EACH_HEAD_DIM(X)                                                                       \
    IF_BUILT_64(X) IF_BUILT_96(X) IF_BUILT_128(X) IF_BUILT_192(X) IF_BUILT_256(X)

#endif
