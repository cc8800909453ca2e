// A program: the PTX modules that share one fat binary handle (several with -rdc=true), linked by
// name, with their variables placed in device memory.
//
//     Program *p = program_new();
//     program_add(p, module, &error);          once for each module, all of them before placing
//     program_place(p, memory, &error);        once
//     kernel_lower(program_function(p, "k"), program_linker(p), registers, &error);
//
// Names resolve as a linker does: a module's own definition first if it is not visible to others;
// among visible ones a strong definition wins over weak ones, and of weak ones the first. What no
// module defines is an error only where it is needed: an instruction that uses it traps.
#ifndef SOFTGPU_LINK_H
#define SOFTGPU_LINK_H

#include "softgpu/machine/code.h"
#include "softgpu/machine/global.h"

typedef struct Program Program;

Program *program_new(void);
// Takes a module over: program_free releases it. false and *error on a name defined twice.
bool program_add(Program *program, PtxModule *module, PtxError *error);
// Allocates the .global and .const variables and writes their initial values, addresses of
// variables and functions included. false and *error when memory runs out or an initialiser names a variable
// that no module defines.
bool program_place(Program *program, struct GlobalMemory *memory, PtxError *error);
// Releases the modules and the memory of their variables.
void program_free(Program *program);

// The program's linker; its `schedule` is to be set before kernel_lower.
Linker *program_linker(Program *program);

// A definition by name in any module (also of names that are not visible), or NULL.
PtxFunction *program_function(const Program *program, const char *name);
const PtxVariable *program_variable(const Program *program, const char *name);
// Device address of a placed variable, and its size; 0 if there is none of that name.
uint64_t program_variable_address(const Program *program, const char *name, uint64_t *size);

#endif
