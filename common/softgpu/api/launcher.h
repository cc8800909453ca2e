// What a program on softgpu tells the launcher that started it: a page of memory that both share, whose
// descriptor the program inherits and finds in SOFTGPU_LAUNCHER.
#ifndef SOFTGPU_API_LAUNCHER_H
#define SOFTGPU_API_LAUNCHER_H

#include <stdatomic.h>

typedef struct {
    atomic_int found;     // errors, so far
    atomic_int unwritten; // 1: the report or the timeline could not be written
} LauncherPage;

#endif
