// The lexer. Names may hold letters, digits, _ $ and %; a directive is a dot with what clings to
// it, "::" included, so that ".mbarrier::complete_tx::bytes" and ".32x32b" are one token each.
#define _GNU_SOURCE
#include "softgpu/ptx/lexer.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { IN_NAME = 1, STARTS_NAME = 2, DIGIT = 4, HEX = 8 };

// What each character can be part of.
static const uint8_t character_class[256] = {
    ['0' ... '9'] = IN_NAME | DIGIT | HEX,
    ['a' ... 'f'] = IN_NAME | STARTS_NAME | HEX,
    ['A' ... 'F'] = IN_NAME | STARTS_NAME | HEX,
    ['g' ... 'z'] = IN_NAME | STARTS_NAME,
    ['G' ... 'Z'] = IN_NAME | STARTS_NAME,
    ['_'] = IN_NAME | STARTS_NAME,
    ['$'] = IN_NAME | STARTS_NAME,
    ['%'] = IN_NAME | STARTS_NAME,
};

static bool is(char c, int class) {
    return character_class[(uint8_t)c] & class;
}

// Skips white space and comments, counting lines. false at a comment that never ends.
static bool skip_space(Lexer *lexer) {
    const char *p = lexer->next, *end = lexer->end;
    bool good = true;
    while (p < end) {
        if (*p == '\n') {
            lexer->line++;
            p++;
        } else if (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\f' || *p == '\v') {
            p++;
        } else if (*p == '/' && end - p > 1 && p[1] == '/') {
            const char *newline = memchr(p, '\n', end - p);
            p = newline ? newline : end;
        } else if (*p == '/' && end - p > 1 && p[1] == '*') {
            const char *close = memmem(p + 2, end - p - 2, "*/", 2);
            const char *after = close ? close + 2 : end;
            for (; p < after; p++) lexer->line += *p == '\n';
            if (!close) good = false;
        } else {
            break;
        }
    }
    lexer->next = p;
    return good;
}

// The value of a hexadecimal digit.
static unsigned digit_value(char c) {
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

// Reads digits of a base from `p` on; returns where they end. Values wrap at 64 bits.
static const char *read_digits(const char *p, const char *end, unsigned base, uint64_t *value) {
    *value = 0;
    while (p < end && is(*p, HEX) && digit_value(*p) < base)
        *value = *value * base + digit_value(*p++);
    return p;
}

// Reads exactly `count` hexadecimal digits after a two-character prefix; NULL if it isn't that.
static const char *read_float_image(const char *p, const char *end, int count, uint64_t *bits) {
    if (end - p < count + 2) return NULL;
    for (int i = 0; i < count; i++) {
        if (!is(p[2 + i], HEX)) return NULL;
    }
    if (end - p > count + 2 && is(p[2 + count], IN_NAME)) return NULL;
    return read_digits(p + 2, p + 2 + count, 16, bits);
}

// Reads a decimal number with a point or an exponent. The C library does the rounding.
static const char *read_decimal(const char *begin, const char *end, uint64_t *bits) {
    char text[64];
    size_t length = 0;
    for (const char *p = begin; p < end && length < sizeof text - 1; p++) {
        bool sign = (*p == '+' || *p == '-') && length && (p[-1] | 0x20) == 'e';
        if (!is(*p, DIGIT) && *p != '.' && (*p | 0x20) != 'e' && !sign) break;
        text[length++] = *p;
    }
    text[length] = 0;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *stop;
    double value = plain ? strtod_l(text, &stop, plain) : strtod(text, &stop);
    if (plain) freelocale(plain);
    memcpy(bits, &value, sizeof value);
    return begin + (stop - text);
}

// Reads the number at lexer->next into the token.
static void read_number(Lexer *lexer) {
    Token *token = &lexer->token;
    const char *p = lexer->next, *end = lexer->end, *stop = NULL;
    char kind = end - p > 1 && *p == '0' ? p[1] | 0x20 : 0;
    token->kind = TOKEN_FLOAT;
    if (kind == 'f' && (stop = read_float_image(p, end, 8, &token->bits))) {
        token->float_bits = 32;
    } else if (kind == 'd' && (stop = read_float_image(p, end, 16, &token->bits))) {
        token->float_bits = 64;
    } else {
        token->kind = TOKEN_INTEGER;
        if (kind == 'x') {
            stop = read_digits(p + 2, end, 16, &token->bits);
        } else if (kind == 'b') {
            stop = read_digits(p + 2, end, 2, &token->bits);
        } else {
            stop = read_digits(p, end, 10, &token->bits);
            bool exponent = end - stop > 1 && (*stop | 0x20) == 'e' && !is(stop[1], STARTS_NAME);
            bool point = end - stop > 1 && *stop == '.' && is(stop[1], DIGIT);
            if (point || exponent || (stop < end && *stop == '.' && !is(stop[1], IN_NAME))) {
                token->kind = TOKEN_FLOAT;
                token->float_bits = 64;
                stop = read_decimal(p, end, &token->bits);
            } else if (*p == '0' && stop - p > 1) {
                stop = read_digits(p, end, 8, &token->bits);
            }
        }
        if (token->kind == TOKEN_INTEGER && stop < end && *stop == 'U') stop++;
    }
    if (stop < end && is(*stop, IN_NAME)) {
        token->kind = TOKEN_BAD; // 12abc
        while (stop < end && is(*stop, IN_NAME)) stop++;
    }
    lexer->next = stop;
}

// Reads a string: the token is what lies between the quotes.
static void read_string(Lexer *lexer) {
    Token *token = &lexer->token;
    const char *p = lexer->next + 1;
    while (p < lexer->end && *p != '"' && *p != '\n') p += *p == '\\' && lexer->end - p > 1 ? 2 : 1;
    token->begin = lexer->next + 1;
    if (p >= lexer->end || *p != '"') {
        token->kind = TOKEN_BAD;
        lexer->next = p < lexer->end ? p : lexer->end;
        return;
    }
    token->kind = TOKEN_STRING;
    token->length = p - token->begin;
    lexer->next = p + 1;
}

void lexer_advance(Lexer *lexer) {
    Token *token = &lexer->token;
    bool good = skip_space(lexer);
    const char *p = lexer->next, *end = lexer->end;
    token->line = lexer->line;
    token->begin = p;
    token->length = 0;
    token->mark = 0;
    if (!good) {
        token->kind = TOKEN_BAD;
        return;
    }
    if (p >= end) {
        token->kind = TOKEN_END;
        return;
    }
    bool modulo = *p == '%' && (end - p == 1 || !is(p[1], IN_NAME));
    if (is(*p, STARTS_NAME) && !modulo) {
        token->kind = TOKEN_NAME;
        while (p < end && is(*p, IN_NAME)) p++;
        lexer->next = p;
    } else if (*p == '.' && end - p > 1 && is(p[1], IN_NAME)) {
        token->kind = TOKEN_DIRECTIVE;
        for (p++; p < end; p++) {
            if (is(*p, IN_NAME)) continue;
            if (*p != ':' || end - p < 3 || p[1] != ':' || !is(p[2], IN_NAME)) break;
            p++;
        }
        lexer->next = p;
    } else if (is(*p, DIGIT)) {
        read_number(lexer);
    } else if (*p == '"') {
        read_string(lexer);
        return;
    } else {
        token->kind = strchr("{}[]()<>,;:=+-*/%!|@~&^?.#", *p) && *p ? TOKEN_MARK : TOKEN_BAD;
        token->mark = token->kind == TOKEN_MARK ? *p : 0;
        lexer->next = p + 1;
    }
    token->length = lexer->next - token->begin;
}

void lexer_start(Lexer *lexer, const char *begin, const char *end, uint32_t line) {
    memset(lexer, 0, sizeof *lexer);
    lexer->next = begin;
    lexer->end = end;
    lexer->line = line;
    lexer_advance(lexer);
}

bool lexer_skip_block(Lexer *lexer) {
    int depth = 1;
    while (depth) {
        // Hurry over what can't matter: bodies are most of a module's text.
        const char *p = lexer->next, *end = lexer->end;
        for (; p < end; p++) {
            if (*p == '\n') {
                lexer->line++;
            } else if (*p == '{' || *p == '}' || *p == '"' || *p == '/') {
                break;
            }
        }
        lexer->next = p;
        if (p >= end) return false;
        if (*p == '/' && (end - p < 2 || (p[1] != '/' && p[1] != '*'))) {
            lexer->next++;
        } else if (*p == '/') {
            if (!skip_space(lexer)) return false;
        } else if (*p == '"') {
            read_string(lexer);
        } else {
            depth += *p == '{' ? 1 : -1;
            lexer->block_end = ++lexer->next;
        }
    }
    lexer_advance(lexer);
    return true;
}

bool token_is_mark(const Lexer *lexer, char mark) {
    return lexer->token.kind == TOKEN_MARK && lexer->token.mark == mark;
}

bool token_is(const Lexer *lexer, const char *text) {
    size_t length = strlen(text);
    return (lexer->token.kind == TOKEN_NAME || lexer->token.kind == TOKEN_DIRECTIVE) &&
           lexer->token.length == length && !memcmp(lexer->token.begin, text, length);
}
