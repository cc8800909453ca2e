// A small, strict JSON reader for the tests. Whatever is not JSON, or not there, fails the test that
// asks: no look-up can pass by accident.
#ifndef TEST_JSON_H
#define TEST_JSON_H

#include <stdbool.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json {
    JsonKind kind;
    bool truth;
    double number;
    char *text;                // of a string
    char *key;                 // in an object
    struct Json *first, *next; // children; the next of the same parent
    int count;                 // children
} Json;

// Reads one value that takes all of the text.
Json *json_read(const char *text);
void json_free(Json *json);

// The value at a path like "steps.0.errors.o.max"; fails the test if there is none.
const Json *json_at(const Json *json, const char *path);
// The same, of that kind.
double json_number(const Json *json, const char *path);
bool json_bool(const Json *json, const char *path);
const char *json_text(const Json *json, const char *path);
bool json_is_null(const Json *json, const char *path);
int json_count(const Json *json, const char *path); // of an array

// Are they the same value, kinds and order too? If not, `difference` says where.
bool json_same(const Json *a, const Json *b, char *difference, int size);

#endif
