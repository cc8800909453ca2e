// Files that appear whole or not at all: written under a temporary name beside the target, renamed
// by file_commit.
#ifndef FILES_H
#define FILES_H

#include "harness/message.h"

typedef struct {
    FILE *stream; // NULL: not open
    char path[4096], temporary[4096];
} OutputFile;

// Opens `path`; "-" is standard output.
bool file_open(OutputFile *file, const char *path, Message *message);
// Closes and renames. After a failure nothing is left behind.
bool file_commit(OutputFile *file, Message *message);
void file_abandon(OutputFile *file);

// A file that is to be moved to its place, or removed, must not outlive a program that a signal ends:
// from made to gone it stands in a list, of which SIGINT, SIGTERM and SIGHUP remove what is there, and
// folders that are still empty, before they end the program.
void temporary_made(const char *path);
void temporary_gone(const char *path);
// The name under which softgpu and file_open write `path`.
void file_temporary(const char *path, char *temporary, size_t size);
// From now on signals do so. (One that is ignored, as by nohup, stays so.)
void files_mind_signals(void);

// Makes the folder if it isn't there, and makes sure that files can be written in it.
bool folder_prepare(const char *path, Message *message);
// Removes the folders that folder_prepare made, where nothing is in them: a run that is refused
// leaves no trace.
void folders_abandon(void);
// Can this output file be written? Asked before a long run; leaves nothing behind.
bool file_probe(const char *path, Message *message);

#endif
