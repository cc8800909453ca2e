// What softgpu says on standard error, kept from the terminal for a test to look at.
//
// Between said_begin and said_end the variable `stderr` is a text in memory. The descriptor stays
// as it is: a sanitizer's report is still seen.
#ifndef TESTS_SAID_H
#define TESTS_SAID_H

#include <check.h>
#include <stdio.h>

static FILE *said_terminal;
static char *said_text;
static size_t said_size, said_heard;

static void said_begin(void) {
    said_terminal = stderr;
    said_heard = 0;
    stderr = open_memstream(&said_text, &said_size);
    ck_assert_ptr_nonnull(stderr);
}

// What was said since the last call.
static const char *said(void) {
    fflush(stderr);
    const char *text = said_text + said_heard;
    said_heard = said_size;
    return text;
}

// Fails if something was said that the test has not asked for.
static void said_end(void) {
    fclose(stderr); // which may move the text
    stderr = said_terminal;
    const char *rest = said_text + said_heard;
    ck_assert_msg(*rest == 0, "softgpu said, and nobody asked: %s", rest);
}

#endif
