// The arena: a list of blocks; pieces are cut from the newest one. A large piece gets a block of
// its own, so that a block is never abandoned half empty for its sake.
#include "softgpu/ptx/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_BLOCK = 16 << 10, LARGEST_BLOCK = 1 << 20, ALIGNMENT = 16 };

typedef struct Block Block;
struct Block {
    Block *next;
    size_t unused; // keeps the bytes behind the header aligned
};

struct Arena {
    Block *blocks;
    uint8_t *free, *end; // what is left of the newest block
    size_t block_size;   // of the next block
};

// Zeroed memory from the system, or the end of the program.
static void *system_memory(size_t size) {
    void *memory = calloc(1, size);
    if (memory) return memory;
    fprintf(stderr, "softgpu: out of memory (%zu bytes for the program's PTX)\n", size);
    exit(2);
}

// Adds a block with room for `size` bytes and returns its first byte.
static uint8_t *add_block(Arena *arena, size_t size) {
    Block *block = system_memory(sizeof(Block) + size);
    block->next = arena->blocks;
    arena->blocks = block;
    return (uint8_t *)(block + 1);
}

Arena *arena_new(void) {
    Arena *arena = system_memory(sizeof(Arena));
    arena->block_size = FIRST_BLOCK;
    return arena;
}

void *arena_alloc(Arena *arena, size_t size) {
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > (size_t)(arena->end - arena->free)) {
        if (size > arena->block_size / 4) return add_block(arena, size);
        arena->free = add_block(arena, arena->block_size);
        arena->end = arena->free + arena->block_size;
        if (arena->block_size < LARGEST_BLOCK) arena->block_size *= 2;
    }
    void *piece = arena->free;
    arena->free += size;
    return piece;
}

void arena_free(Arena *arena) {
    if (!arena) return;
    for (Block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}
