// ./run --schedule-study: a problem whose schedule is looked at, without computing it. The chapter
// that has one (chapter 7) gets the request, prints its tables and writes its files.
#ifndef STUDY_H
#define STUDY_H

#include "harness/device.h"
#include "harness/files.h"

typedef struct StudyRequest {
    Problem problem;
    bool chosen; // the person gave sizes or a mask: this problem alone, no example before it
    int64_t tile_cycles, block_cycles; // what a tile takes, and a block of keys; 0, 1: units
    const Device *device;
    FILE *table;           // for people
    const char *csv, *png; // the problem's files: csv may be "-", png NULL
    const char *example_csv, *example_png;
    FILE *json; // or NULL
} StudyRequest;

// Is this an option that --schedule-study has a use for? Without its dashes.
bool study_takes(const char *option);
// Does what --schedule-study asks for. May not return (device_open). False: the message says why.
bool study_run_option(const Options *options, const Chapter *chapter, char **argv,
                      Message *message);

#endif
