// Private to ptx/: how instructions are matched against the forms of execute/form.h.
#ifndef SOFTGPU_TABLE_H
#define SOFTGPU_TABLE_H

#include <stdio.h>

#include "softgpu/execute/form.h"

// Does the set `modifiers` of a form take exactly the modifiers of the instruction? A set that ends
// in * takes any others, too. Fills choice.
bool modifiers_match(const char *modifiers, const PtxInstruction *p, uint8_t choice[16]);

// Do count and kinds of the operands fit the pattern `operands`? Widths are not looked at.
bool operands_match(const char *operands, const PtxInstruction *p);

// One operand of a pattern, as the string spells it.
typedef struct {
    char field; // 'd', 'a', 'b', 'c', 'e', 'm', 'v' or 'i'
    int width;  // 1, 16, 32, 64, 128; 0 for m, v and i
    bool pair;  // may be d|p
    bool optional;
} OperandPattern;

// Reads the pattern of one operand; returns what follows it, NULL at the end of the string.
const char *next_operand(const char *operands, OperandPattern *pattern);

// The forms that fit an instruction, in the order of the table: pass -1 first, then what was
// returned. -1 when there is none left.
int form_next(const PtxInstruction *p, int previous, Match *m);

// The tables of forms one after the other; NULL behind the last.
const Form *form_table(int number);

// A form that ptxas takes and softgpu refuses: its name, its set of modifiers, and why (refused.c).
typedef struct {
    const char *name, *modifiers, *why;
} RefusedForm;

// They, ended by one without a name; by name, those of one name together.
extern const RefusedForm refused_forms[];

// Why this instruction is refused, by the first row that takes its name and modifiers; NULL if no
// row does.
const char *refused_why(const PtxInstruction *p);

// Writes the table of forms, those done and those refused, as Markdown (forms.c): `softgpu --forms`.
void softgpu_forms(FILE *to);

#endif
