// A small, strict JSON reader: RFC 8259, no key twice, nothing after the value.
#include "json.h"

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *start, *at;
    int depth;
} Reader;

static void bad(const Reader *r, const char *what) {
    ck_abort_msg("not JSON: %s at byte %ld: %.60s", what, (long)(r->at - r->start), r->at);
}

static void skip_space(Reader *r) {
    while (*r->at != 0 && strchr(" \t\r\n", *r->at) != NULL) r->at++;
}

static bool take(Reader *r, const char *word) {
    size_t length = strlen(word);
    if (strncmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static Json *new_value(JsonKind kind) {
    Json *json = calloc(1, sizeof *json);
    ck_assert_ptr_nonnull(json);
    json->kind = kind;
    return json;
}

// Bytes up to the quote that ends a string, or to the end of the text.
static size_t string_bytes(const char *at) {
    size_t bytes = 0;
    while (at[bytes] != 0 && at[bytes] != '"')
        bytes += at[bytes] == '\\' && at[bytes + 1] != 0 ? 2 : 1;
    return bytes;
}

// The characters between quotes; \u escapes of ASCII only, which is all that the harness writes.
static char *read_string(Reader *r) {
    if (!take(r, "\"")) bad(r, "a string was expected");
    char *text = malloc(string_bytes(r->at) + 1), *to = text;
    for (; *r->at != '"'; r->at++) {
        if ((unsigned char)*r->at < 0x20) bad(r, "a string without its end");
        if (*r->at != '\\') {
            *to++ = *r->at;
            continue;
        }
        static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        r->at++;
        const char *name = *r->at != 0 ? strchr(names, *r->at) : NULL;
        unsigned code;
        int length = 0;
        if (name != NULL) {
            *to++ = values[name - names];
        } else if (sscanf(r->at, "u%4x%n", &code, &length) == 1 && length == 5 && code < 0x80) {
            *to++ = (char)code;
            r->at += 4;
        } else {
            bad(r, "an unknown escape");
        }
    }
    r->at++;
    *to = 0;
    return text;
}

static void digits(Reader *r) {
    if (!isdigit((unsigned char)*r->at)) bad(r, "a digit was expected");
    while (isdigit((unsigned char)*r->at)) r->at++;
}

static Json *read_number(Reader *r) {
    Json *json = new_value(JSON_NUMBER);
    json->number = strtod(r->at, NULL);
    take(r, "-");
    if (!take(r, "0")) digits(r);
    if (take(r, ".")) digits(r);
    if (take(r, "e") || take(r, "E")) {
        if (!take(r, "+")) take(r, "-");
        digits(r);
    }
    return json;
}

static Json *read_value(Reader *r);

static Json *read_children(Reader *r, JsonKind kind) {
    const char *close = kind == JSON_OBJECT ? "}" : "]";
    Json *parent = new_value(kind), **link = &parent->first;
    r->at++;
    skip_space(r);
    if (take(r, close)) return parent;
    do {
        char *key = NULL;
        skip_space(r);
        if (kind == JSON_OBJECT) {
            key = read_string(r);
            for (const Json *c = parent->first; c != NULL; c = c->next)
                if (strcmp(c->key, key) == 0) bad(r, "a key stands there twice");
            skip_space(r);
            if (!take(r, ":")) bad(r, "a colon was expected");
        }
        *link = read_value(r);
        (*link)->key = key;
        link = &(*link)->next;
        parent->count++;
        skip_space(r);
    } while (take(r, ","));
    if (!take(r, close)) bad(r, "a comma or the end was expected");
    return parent;
}

static Json *read_value(Reader *r) {
    skip_space(r);
    if (++r->depth > 64) bad(r, "too deep");
    Json *json = NULL;
    if (*r->at == '{')
        json = read_children(r, JSON_OBJECT);
    else if (*r->at == '[')
        json = read_children(r, JSON_ARRAY);
    else if (*r->at == '"') {
        json = new_value(JSON_STRING);
        json->text = read_string(r);
    } else if (*r->at == '-' || isdigit((unsigned char)*r->at)) {
        json = read_number(r);
    } else if (take(r, "null")) {
        json = new_value(JSON_NULL);
    } else {
        bool truth = take(r, "true");
        if (!truth && !take(r, "false")) bad(r, "a value was expected");
        json = new_value(JSON_BOOL);
        json->truth = truth;
    }
    r->depth--;
    return json;
}

void json_free(Json *json) {
    if (json == NULL) return;
    for (Json *child = json->first, *next; child != NULL; child = next) {
        next = child->next;
        json_free(child);
    }
    free(json->text);
    free(json->key);
    free(json);
}

Json *json_read(const char *text) {
    Reader r = {text, text, 0};
    Json *json = read_value(&r);
    skip_space(&r);
    if (*r.at != 0) bad(&r, "something follows the value");
    return json;
}

const Json *json_at(const Json *json, const char *path) {
    for (const char *part = path; *part != 0;) {
        size_t length = strcspn(part, ".");
        int number = atoi(part);
        const Json *child = json->first;
        if (json->kind == JSON_ARRAY && isdigit((unsigned char)*part)) {
            while (child != NULL && number-- > 0) child = child->next;
        } else if (json->kind == JSON_OBJECT) {
            while (child != NULL &&
                   (strlen(child->key) != length || memcmp(child->key, part, length) != 0))
                child = child->next;
        } else {
            child = NULL;
        }
        ck_assert_msg(child != NULL, "no %s in the JSON (at %.40s)", path, part);
        json = child;
        part += length;
        if (*part == '.') part++;
    }
    return json;
}

static const Json *of_kind(const Json *json, const char *path, JsonKind kind) {
    json = json_at(json, path);
    ck_assert_msg(json->kind == kind, "%s is of another kind (%d, not %d)", path, json->kind, kind);
    return json;
}

double json_number(const Json *json, const char *path) {
    return of_kind(json, path, JSON_NUMBER)->number;
}
bool json_bool(const Json *json, const char *path) {
    return of_kind(json, path, JSON_BOOL)->truth;
}
const char *json_text(const Json *json, const char *path) {
    return of_kind(json, path, JSON_STRING)->text;
}
bool json_is_null(const Json *json, const char *path) {
    return json_at(json, path)->kind == JSON_NULL;
}
int json_count(const Json *json, const char *path) {
    return of_kind(json, path, JSON_ARRAY)->count;
}

bool json_same(const Json *a, const Json *b, char *difference, int size) {
    const char *name = a->key != NULL ? a->key : "the value";
    bool same = a->kind == b->kind && a->truth == b->truth && a->count == b->count;
    if (same && a->kind == JSON_NUMBER) same = a->number == b->number;
    if (same && a->kind == JSON_STRING) same = strcmp(a->text, b->text) == 0;
    if (same && a->key != NULL) same = b->key != NULL && strcmp(a->key, b->key) == 0;
    if (!same) {
        snprintf(difference, (size_t)size, "%s differs (%g and %g)", name, a->number, b->number);
        return false;
    }
    for (const Json *x = a->first, *y = b->first; x != NULL; x = x->next, y = y->next)
        if (!json_same(x, y, difference, size)) return false;
    return true;
}
