// Cuts PTX text into tokens. A token is a view of the text; nothing is copied or allocated.
#ifndef SOFTGPU_PTX_LEXER_H
#define SOFTGPU_PTX_LEXER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TOKEN_END,
    TOKEN_NAME,      // ld, %r12, $L__BB0_1, _
    TOKEN_DIRECTIVE, // .reg, .v4, .shared::cta: the dot is part of the token
    TOKEN_INTEGER,   // bits
    TOKEN_FLOAT,     // bits, float_bits
    TOKEN_STRING,    // the text between the quotes
    TOKEN_MARK,      // one character of punctuation: mark
    TOKEN_BAD,       // a character that PTX doesn't have, an unfinished string or comment
} TokenKind;

typedef struct {
    TokenKind kind;
    char mark;
    uint8_t float_bits; // 32: 0f…; 64: 0d… and decimals
    uint32_t line;
    const char *begin;
    uint32_t length;
    uint64_t bits;
} Token;

// `token` is the current token; lexer_advance replaces it by the next one.
typedef struct {
    Token token;
    const char *next, *end;
    const char *block_end; // behind the '}' that lexer_skip_block found last
    uint32_t line;
} Lexer;

// Starts at `begin`, which lies on line `line`, and reads the first token. *end must be readable.
void lexer_start(Lexer *lexer, const char *begin, const char *end, uint32_t line);
void lexer_advance(Lexer *lexer);
// The current token is the '{' of a block: moves behind the matching '}'. false if there is none.
bool lexer_skip_block(Lexer *lexer);

// Is the current token this mark, this directive (".reg") or this name?
bool token_is_mark(const Lexer *lexer, char mark);
bool token_is(const Lexer *lexer, const char *text);

#endif
