// Function names as their authors wrote them: just enough of the C++ mangling to name a function,
// with its scopes and a mark where template arguments stood, and without parameters.
//
//   _Z5scalePff → scale      _ZN4attn7forwardILi64EEEvv → attn::forward<>
//
// What it can't read it returns unchanged.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"

enum { DEPTH_LIMIT = 64 };

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Steps over "5scale"; sets the name. NULL if it is broken.
static const char *skip_source_name(const char *s, const char **name, size_t *length) {
    size_t n = 0;
    if (!is_digit(*s)) return NULL;
    for (; is_digit(*s); s++) {
        n = n * 10 + (size_t)(*s - '0');
        if (n > 4096) return NULL;
    }
    if (strnlen(s, n) < n) return NULL;
    *name = s;
    *length = n;
    return s + n;
}

// Steps over one type, value or template argument. NULL if it is broken or too strange.
static const char *skip_item(const char *s, int depth) {
    const char *name;
    size_t length;
    if (!s || depth > DEPTH_LIMIT) return NULL;
    while (*s == 'P' || *s == 'R' || *s == 'O' || *s == 'K' || *s == 'V') s++;
    if (is_digit(*s)) {
        s = skip_source_name(s, &name, &length);
        return s && *s == 'I' ? skip_item(s, depth + 1) : s;
    }
    if (*s == 'L') { // literal: a type, then a value up to E
        if (s[1] == '_') return NULL;
        s = skip_item(s + 1, depth + 1);
        if (!s) return NULL;
        while (*s && *s != 'E') s++;
        return *s ? s + 1 : NULL;
    }
    if (*s == 'S') { // substitution
        s++;
        if (*s >= 'a' && *s <= 'z') {
            bool is_std = *s++ == 't';
            if (is_std) s = skip_source_name(s, &name, &length);
        } else {
            while (*s && *s != '_') s++;
            s = *s ? s + 1 : NULL;
        }
        return s && *s == 'I' ? skip_item(s, depth + 1) : s;
    }
    if (*s == 'T') {
        while (*s && *s != '_') s++;
        return *s ? s + 1 : NULL;
    }
    if (*s == 'A') {
        while (*s && *s != '_') s++;
        return *s ? skip_item(s + 1, depth + 1) : NULL;
    }
    if (*s == 'N' || *s == 'I' || *s == 'J' || *s == 'F') {
        for (s++; s && *s != 'E';) {
            if (!*s) return NULL;
            s = skip_item(s, depth + 1);
        }
        return s ? s + 1 : NULL;
    }
    if (*s == 'D') return s[1] ? s + 2 : NULL;
    return *s >= 'a' && *s <= 'z' ? s + 1 : NULL;
}

// Writes the readable name to `out`, which is at least as long as the mangled one plus 1.
static bool demangle(const char *s, char *out) {
    if (strncmp(s, "_Z", 2)) return false;
    s += 2;
    bool nested = *s == 'N';
    if (nested) s++;
    while (*s == 'K' || *s == 'V') s++;
    size_t used = 0;
    do {
        const char *name;
        size_t length;
        if (*s == 'L') s++; // internal linkage
        s = skip_source_name(s, &name, &length);
        if (!s) return false;
        // The scope that nvcc puts static functions of templates' files into is nobody's name.
        if (nested && !used && length > 10 && !strncmp(name, "_INTERNAL_", 10)) continue;
        if (used) used += (size_t)sprintf(out + used, "::");
        if (length > 10 && !strncmp(name, "_GLOBAL__N", 10)) {
            used += (size_t)sprintf(out + used, "{}");
        } else {
            memcpy(out + used, name, length);
            used += length;
        }
        if (*s == 'I') {
            s = skip_item(s, 0);
            if (!s) return false;
            used += (size_t)sprintf(out + used, "<>");
        }
    } while (nested && *s != 'E');
    out[used] = 0;
    return true;
}

char *readable_name(const char *mangled) {
    size_t size = 2 * strlen(mangled) + 8;
    char *name = malloc(size);
    if (!name) abort();
    if (!demangle(mangled, name)) snprintf(name, size, "%s", mangled);
    return name;
}
