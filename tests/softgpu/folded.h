// Looking for words in a report, whose lines are folded at 100 columns.
#ifndef SOFTGPU_TEST_FOLDED_H
#define SOFTGPU_TEST_FOLDED_H

#include <ctype.h>
#include <stdbool.h>

// Do these words stand in the text, with a blank for each run of blanks and line ends?
static inline bool says(const char *text, const char *words) {
    for (; *text; text++) {
        const char *t = text, *w = words;
        for (; *w && (*w == *t || (*w == ' ' && isspace((unsigned char)*t))); w++) {
            if (*w == ' ')
                while (isspace((unsigned char)*t)) t++;
            else
                t++;
        }
        if (!*w) return true;
    }
    return false;
}

#endif
