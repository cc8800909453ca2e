// Error messages of parts that don't decide what happens next: they fill a Message and return
// false; main() prints it as one line and exits with status 2.
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct {
    char text[8192]; // a path fits
} Message;

// Fills the message and returns false, so that `return refuse(m, …)` reads well.
__attribute__((format(printf, 2, 3))) static inline bool refuse(Message *message,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    return false;
}

#endif
