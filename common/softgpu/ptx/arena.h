// An arena: memory that is handed out piece by piece and released all at once.
#ifndef SOFTGPU_PTX_ARENA_H
#define SOFTGPU_PTX_ARENA_H

#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void);
// Zeroed memory, aligned to 16 bytes. Never fails: out of memory ends the program with a message.
void *arena_alloc(Arena *arena, size_t size);
void arena_free(Arena *arena);

#endif
